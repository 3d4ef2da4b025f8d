"""The columns and the watermark delay that a Kafka source's options imply."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from laminar_dagster.config.connectors import SourceTraits
from laminar_dagster.config.model import Column
from laminar_dagster.sources.changes.traits import CHANGE, HIDDEN
from laminar_dagster.sources.kafka import metadata
from laminar_dagster.sources.option_values import milliseconds

METADATA: Final = (
    Column(metadata.TOPIC, "string"),
    Column(metadata.PARTITION, "int"),
    Column(metadata.OFFSET, "bigint"),
    Column(metadata.TIMESTAMP, "timestamp"),
    Column(metadata.KEY, "binary"),
    Column(metadata.HEADERS, "array<struct<key:string,value:binary>>"),
)

_DEFAULT_DELAY: Final = timedelta(seconds=5)
_DELAY: Final = "watermark.max.out.of.orderness.ms"


def kafka_traits(options: Mapping[str, str]) -> SourceTraits:
    """The columns that the options add, and the delay. The adapter refuses invalid values."""
    columns: tuple[Column, ...] = ()
    if options.get("include.metadata", "").lower() == "true":
        columns += METADATA
    is_changelog = options.get("format") == "debezium-json"
    if is_changelog:
        columns += CHANGE
    delay, given = _DEFAULT_DELAY, ""
    if _DELAY in options:
        try:
            delay, given = milliseconds(options[_DELAY]), _DELAY
        except ValueError:
            pass
    whole = not is_changelog or options.get("debezium.before") == "required"
    return SourceTraits(
        columns=columns,
        hidden=HIDDEN if is_changelog else frozenset(),
        delay_micros=delay // timedelta(microseconds=1),
        delay_option=given,
        lacks_retractions="" if whole else "'debezium.before' = 'required'",
        replaces_rows=not whole,
    )
