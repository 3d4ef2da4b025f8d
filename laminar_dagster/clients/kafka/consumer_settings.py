"""The librdkafka settings that a reader of ranges depends on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from laminar_dagster.clients.kafka.settings import RECONNECT

# Users may override these.
_DEFAULTS: Final = {
    # The group is never joined: partitions are assigned manually.
    "group.id": "laminar-reader",
    # The default of a second stalls a reader that drains the queue faster than it fills.
    "fetch.queue.backoff.ms": "5",
    # How long a broker waits for more data before it reports the end of the partition.
    "fetch.wait.max.ms": "50",
    **RECONNECT,
}
# Without these, records would be lost, read twice, or read before they are committed.
_MUSTS: Final = {
    "auto.offset.reset": "error",
    "check.crcs": "true",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    "isolation.level": "read_committed",
    # Statistics tell how far the broker was read while no message is delivered.
    "statistics.interval.ms": "1000",
}


def consumer_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The given settings, over defaults and under the required ones."""
    return {**_DEFAULTS, **settings, **_MUSTS}
