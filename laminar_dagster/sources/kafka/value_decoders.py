"""Decodes values or keys of messages into columns: one decoder for each format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.sources.decoded import BadRecord
from laminar_dagster.sources.formats.csv_records import CsvDecoder
from laminar_dagster.sources.formats.debezium import DebeziumDecoder
from laminar_dagster.sources.formats.lines import (
    as_lines,
    as_records,
    edges_of,
    folded,
    several_records,
)
from laminar_dagster.sources.formats.ndjson import JsonDecoder
from laminar_dagster.sources.formats.raw import RawDecoder
from laminar_dagster.sources.formats.records import Offsets, Outcome, Records
from laminar_dagster.sources.kafka.options import Format, KafkaOptions, OnSchemaProblem

if TYPE_CHECKING:
    from laminar_dagster.clients.schema_registry import SchemaRegistry
    from laminar_dagster.sources.formats.wire_format import OnProblem

# Confluent's wire format: a byte 0, and the schema's id in the registry as four bytes.
_PREFIX: Final = 5
_BLANK: Final = (b"", b"\n", b"\r", b"\r\n")
_ON_PROBLEM: Final[Mapping[OnSchemaProblem, OnProblem]] = {"dead_letter": "bad", "fail": "fail"}


class ValueDecoder(Protocol):
    """Decodes values into columns."""

    def decode(self, values: pa.BinaryArray, positions: Offsets) -> Outcome:
        """Decode the values, none of which may be null, except for ``RawDecoder``."""
        ...


class RecordDecoder(Protocol):
    """A format's decoder, which all kinds of sources share."""

    def decode(self, records: Records) -> Outcome:
        """Decode the records."""
        ...


def decoder_of(
    kind: Format,
    schema: pa.Schema,
    options: KafkaOptions,
    source_id: str,
    registry: SchemaRegistry | None = None,
) -> ValueDecoder:
    """The decoder of a format.

    Args:
        kind: The format.
        schema: The columns that the values hold.
        options: The source's options.
        source_id: The source's name.
        registry: Resolves schema ids, if there is one.

    Raises:
        InvalidConfig: The columns do not match the format, or a file cannot be read.
    """
    try:
        return _decoder_of(kind, schema, options, source_id, registry)
    except (ValueError, OSError) as error:
        raise InvalidConfig(f"source `{source_id}`", str(error)) from None


def _decoder_of(
    kind: Format,
    schema: pa.Schema,
    options: KafkaOptions,
    source_id: str,
    registry: SchemaRegistry | None,
) -> ValueDecoder:
    match kind:
        case "raw":
            return RawDecoder(schema)
        case "json":
            return JsonValues(JsonDecoder(schema), may_have_prefix=registry is not None)
        case "debezium-json":
            return JsonValues(
                DebeziumDecoder(
                    schema,
                    time_unit=options.debezium_time_unit,
                    decimal_mode=options.debezium_decimal_mode,
                    requires_before=options.debezium_before == "required",
                )
            )
        case "csv":
            return CsvValues(CsvDecoder(schema, options.csv_delimiter, options.csv_null))
        case "avro":
            return BinaryValues(_avro(schema, options, source_id, registry))
        case "protobuf":
            return BinaryValues(_protobuf(schema, options, source_id, registry))


def _avro(
    schema: pa.Schema, options: KafkaOptions, source_id: str, registry: SchemaRegistry | None
) -> RecordDecoder:
    # Imported here, as in ``_protobuf``: sources of text formats need no Avro.
    from laminar_dagster.sources.formats.avro import AvroDecoder

    text = options.avro_schema.read_text(encoding="utf-8") if options.avro_schema else ""
    then = _ON_PROBLEM[options.on_schema_problem]
    decoder = AvroDecoder(schema, registry, source_id, then, then, writer_schema=text)
    if registry is None:
        # Raise for an incompatible schema now, instead of for every record.
        decoder.plan(None)
    return decoder


def _protobuf(
    schema: pa.Schema, options: KafkaOptions, source_id: str, registry: SchemaRegistry | None
) -> RecordDecoder:
    from laminar_dagster.sources.formats.protobuf import ProtobufDecoder

    file = options.protobuf_descriptor
    descriptor = file.read_bytes() if file is not None else b""
    then = _ON_PROBLEM[options.on_schema_problem]
    decoder = ProtobufDecoder(
        schema,
        registry,
        source_id,
        then,
        then,
        descriptor_set=descriptor,
        message=options.protobuf_message,
    )
    if registry is None:
        decoder.plan(None)
    return decoder


@dataclass(frozen=True, slots=True)
class JsonValues:
    """Decodes values that are one JSON object each, which may span several lines.

    Attributes:
        may_have_prefix: Whether values may begin with a schema id, as serializers with a registry
            write it.
    """

    decoder: RecordDecoder
    may_have_prefix: bool = False

    def decode(self, values: pa.BinaryArray, positions: Offsets) -> Outcome:
        """Decode the values."""
        schema_ids: frozenset[int] = frozenset()
        if self.may_have_prefix:
            values, schema_ids = without_prefix(values)
        decoder = self.decoder
        if isinstance(decoder, JsonDecoder):
            thoroughly = decoder.decode_thoroughly
            found = decoder.decode_with(
                as_records(values, positions),
                lambda places: _decode_lines(
                    thoroughly, values.take(pa.array(places)), positions[places]
                ),
            )
        else:
            found = _decode_lines(decoder.decode, values, positions)
        return replace(found, schema_ids=schema_ids)


@dataclass(frozen=True, slots=True)
class CsvValues:
    """Decodes values that are one CSV record each, without a header."""

    decoder: CsvDecoder

    def decode(self, values: pa.BinaryArray, positions: Offsets) -> Outcome:
        """Decode the values."""
        records = as_lines(values, positions)
        is_blank = pc.is_in(values, pa.array(_BLANK, pa.binary())).to_numpy(zero_copy_only=False)
        reasons = dict.fromkeys(several_records(records).tolist(), "more than one record")
        reasons |= dict.fromkeys(np.flatnonzero(is_blank).tolist(), "it is empty")
        bad = [records.bad(place, reason) for place, reason in reasons.items()]
        if bad:
            records = records.without(np.array(list(reasons), np.int64))
        found = self.decoder.decode(records)
        return replace(found, bad=_in_order(found.bad, bad))


@dataclass(frozen=True, slots=True)
class BinaryValues:
    """Decodes values that are one binary message each."""

    decoder: RecordDecoder

    def decode(self, values: pa.BinaryArray, positions: Offsets) -> Outcome:
        """Decode the values."""
        return self.decoder.decode(as_records(values, positions))


def without_prefix(values: pa.BinaryArray) -> tuple[pa.BinaryArray, frozenset[int]]:
    """The values without their schema ids, and the ids; a value without one is unchanged."""
    edges, raw = edges_of(values)
    starts, lengths = edges[:-1], np.diff(edges)
    is_long = lengths >= _PREFIX
    has_prefix = is_long.copy()
    has_prefix[is_long] = raw[starts[is_long]] == 0
    if not has_prefix.any():
        return values, frozenset()
    numbers = raw[starts[has_prefix][:, None] + np.arange(1, _PREFIX)].astype(np.int64)
    ids = numbers @ np.array([1 << 24, 1 << 16, 1 << 8, 1])
    # Not ``binary_slice``: in Arrow 26 it fails on a value shorter than its start.
    shorter = pc.binary_replace_slice(values, 0, _PREFIX, b"")
    if not has_prefix.all():
        shorter = pc.if_else(pa.array(has_prefix), shorter, values)
    return shorter, frozenset(np.unique(ids).tolist())


def _decode_lines(
    decode: Callable[[Records], Outcome], values: pa.BinaryArray, positions: Offsets
) -> Outcome:
    """Decode values of JSON with a decoder of lines."""
    records, broken = folded(as_lines(values, positions))
    bad = [records.bad(place, "a newline inside a string") for place in broken.tolist()]
    found = decode(records.without(broken) if bad else records)
    return replace(found, bad=_in_order(found.bad, bad))


def _in_order(some: list[BadRecord], others: list[BadRecord]) -> list[BadRecord]:
    return sorted([*some, *others], key=lambda each: each.position) if others else some
