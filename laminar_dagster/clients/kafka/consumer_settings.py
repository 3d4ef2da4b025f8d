"""The settings of librdkafka that a reader of ranges depends on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from laminar_dagster.clients.kafka.settings import RECONNECT

# Users may have reasons to choose otherwise.
_DEFAULTS: Final = {
    # Manual assignment never joins it.
    "group.id": "laminar-reader",
    # The default of a second stalls a reader that empties the queue faster than it is filled.
    "fetch.queue.backoff.ms": "5",
    # How long a broker holds back the news that there is nothing more.
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
    # Tells how far the broker has been read while nothing is delivered.
    "statistics.interval.ms": "1000",
}


def consumer_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """What is given, with what has to be set over it."""
    return {**_DEFAULTS, **settings, **_MUSTS}
