"""Decodes messages of a partition into rows: value, key and Kafka's metadata.

Each part is decoded for all messages of a batch at once, and the parts are put together by offset:
a message may become no row, one, or two.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.core.ports import ReadingCost
from laminar_dagster.sources.changes.columns import declared
from laminar_dagster.sources.decoded import BadRecord, PlacedChunk, chunk_of
from laminar_dagster.sources.formats.records import Offsets, Outcome
from laminar_dagster.sources.kafka import metadata
from laminar_dagster.sources.kafka.messages import MessageBatch
from laminar_dagster.sources.kafka.options import KafkaOptions
from laminar_dagster.sources.kafka.value_decoders import ValueDecoder, decoder_of

if TYPE_CHECKING:
    from laminar_dagster.clients.schema_registry import SchemaRegistry

# How much is kept of a value that is too long.
HEAD_BYTES: Final = 64 * 1024
# The end of the year 9999, the last of Spark's timestamps.
_LAST_MILLISECOND: Final = 253_402_300_799_999

Flags = npt.NDArray[np.bool_]


class MessageDecoder:
    """Decodes batches of messages of one source. Keeps state, so it must not be shared."""

    def __init__(
        self,
        schema: pa.Schema,
        options: KafkaOptions,
        source_id: str,
        registry: SchemaRegistry | None = None,
    ) -> None:
        """Build the decoders of value and key.

        Args:
            schema: The declared columns, and those that ``kafka_traits`` adds.
            options: The source's options.
            source_id: The source's name.
            registry: Resolves schema ids; by default the registry in the options.

        Raises:
            InvalidConfig: The columns do not match the formats.
        """
        self._schema = schema
        self._limit = options.max_record_bytes
        self._keeps_nulls = options.format == "raw"
        self._has_changes = options.format == "debezium-json"
        self._has_time = metadata.TIMESTAMP in schema.names
        self._needs_time = any(
            each.name == metadata.TIMESTAMP and not each.nullable for each in schema
        )
        keys = set(options.key_columns)
        values = [
            each for each in schema if each.name not in keys and each.name not in metadata.NAMES
        ]
        if not declared(pa.schema(values)):
            where = f"source `{source_id}`"
            raise InvalidConfig(where, "no column is left for the value", "all are of the key")
        registry = registry or registry_of(options)
        self._values = decoder_of(options.format, pa.schema(values), options, source_id, registry)
        self._key_schema = pa.schema([each for each in schema if each.name in keys])
        self._keys: ValueDecoder | None = None
        if keys and options.key_format is not None:
            self._keys = decoder_of(
                options.key_format, self._key_schema, options, source_id, registry
            )

    def decode(self, topic: str, partition: int, batch: MessageBatch) -> PlacedChunk:
        """Decode all messages of a batch, whose values and keys may be null.

        Raises:
            DecodeFailed: A schema is unknown or incompatible, and the options say to fail.
            RegistryUnavailable, AuthFailed: The registry cannot be queried.
        """
        began = time.perf_counter()
        places, reasons, skipped = self._set_aside(batch)
        values, offsets = batch.values, batch.offsets
        if len(places) < len(offsets):
            values, offsets = values.take(pa.array(places)), offsets[places]
        found = self._values.decode(values, offsets)
        reasons |= {each.position: each.reason for each in found.bad}
        positions = found.positions
        columns = dict(zip(found.rows.schema.names, found.rows.columns, strict=True))
        schema_ids = found.schema_ids
        if self._keys is not None and batch.keys is not None:
            wanted = np.unique(positions)
            places = np.searchsorted(batch.offsets, wanted)
            keys = self._decode_keys(self._keys, batch.keys.take(pa.array(places)), wanted)
            reasons |= {each.position: f"key: {each.reason}" for each in keys.bad}
            schema_ids |= keys.schema_ids
            is_good = np.isin(positions, keys.positions)
            if not is_good.all():
                columns = {name: each.filter(pa.array(is_good)) for name, each in columns.items()}
                positions = positions[is_good]
            rows = pa.array(np.searchsorted(keys.positions, positions))
            for name, column in zip(keys.rows.schema.names, keys.rows.columns, strict=True):
                columns[name] = column.take(rows)
        columns |= self._metadata(topic, partition, batch, positions)
        rows = pa.RecordBatch.from_arrays(
            [columns[each.name] for each in self._schema], schema=self._schema
        )
        return chunk_of(
            f"{topic}/{partition}",
            rows,
            pa.array(positions, pa.int64()),
            self._bad_records(batch, reasons),
            _length(batch.values) + (_length(batch.keys) if batch.keys is not None else 0),
            records=len(batch),
            added=int(np.count_nonzero(np.diff(positions) == 0)),
            skipped=skipped + found.skipped,
            schema_ids=schema_ids,
            cost=ReadingCost(
                batch.fetch_seconds, time.perf_counter() - began, batch.pauses, batch.errors
            ),
            bad_at=None if self._has_changes else partial(self._bad_records, batch),
        )

    def _set_aside(self, batch: MessageBatch) -> tuple[Offsets, dict[int, str], int]:
        """Which messages to decode, why others are bad, and how many tombstones are skipped."""
        lengths = pc.binary_length(batch.values).fill_null(0).to_numpy(zero_copy_only=False)
        is_wanted = np.ones(len(batch), np.bool_)
        if not self._keeps_nulls and batch.values.null_count:
            is_wanted = batch.values.is_valid().to_numpy(zero_copy_only=False).copy()
        skipped = len(batch) - int(is_wanted.sum())
        reasons: dict[int, str] = {}
        for place in np.flatnonzero(is_wanted & (lengths > self._limit)).tolist():
            reasons[place] = (
                f"{lengths[place]} bytes long, more than `max.record.bytes` = {self._limit}; "
                "cut off here"
            )
        if self._needs_time and batch.timestamps is not None:
            for place in np.flatnonzero(is_wanted & (batch.timestamps < 0)).tolist():
                reasons.setdefault(place, f"`{metadata.TIMESTAMP}` must not be null")
        if self._has_time and batch.timestamps is not None:
            # Producers choose the timestamp; one beyond 9999 is most often of another unit.
            for place in np.flatnonzero(
                is_wanted & (batch.timestamps > _LAST_MILLISECOND)
            ).tolist():
                reasons.setdefault(
                    place,
                    f"`{metadata.TIMESTAMP}`: {batch.timestamps[place]} milliseconds are beyond "
                    "the year 9999",
                )
        if batch.headers is not None and batch.headers.null_count:
            for place in np.flatnonzero(batch.headers.is_null().to_numpy(False)).tolist():
                if is_wanted[place]:
                    told = f"`{metadata.HEADERS}`: the name of a header is not UTF-8"
                    reasons.setdefault(place, told)
        is_wanted[list(reasons)] = False
        by_offset = {int(batch.offsets[place]): reason for place, reason in reasons.items()}
        return np.flatnonzero(is_wanted), by_offset, skipped

    def _decode_keys(
        self, decoder: ValueDecoder, keys: pa.BinaryArray, positions: Offsets
    ) -> Outcome:
        """Decode the keys of messages. A null key is a row of nulls."""
        if not keys.null_count:
            return decoder.decode(keys, positions)
        is_there = keys.is_valid().to_numpy(zero_copy_only=False)
        found = decoder.decode(keys.filter(pa.array(is_there)), positions[is_there])
        missing = positions[~is_there]
        needed = [each.name for each in self._key_schema if not each.nullable]
        if needed:
            reason = f"there is none, and `{needed[0]}` must not be null"
            bad = [BadRecord(int(each), b"", reason) for each in missing.tolist()]
            return replace(found, bad=[*found.bad, *bad])
        nulls = pa.RecordBatch.from_arrays(
            [pa.nulls(len(missing), each.type) for each in self._key_schema],
            schema=self._key_schema,
        )
        places = np.concatenate([found.positions, missing])
        order = np.argsort(places)
        rows = pa.concat_batches([found.rows, nulls]).take(pa.array(order))
        return replace(found, rows=rows, positions=places[order])

    def _metadata(
        self, topic: str, partition: int, batch: MessageBatch, positions: Offsets
    ) -> Mapping[str, pa.Array]:
        """The metadata columns of each row's message."""
        found: dict[str, pa.Array] = {}
        places = np.searchsorted(batch.offsets, positions)
        for each in self._schema:
            match each.name:
                case metadata.TOPIC:
                    column = pa.repeat(pa.scalar(topic, pa.string()), len(places))
                case metadata.PARTITION:
                    column = pa.array(np.full(len(places), partition, np.int32))
                case metadata.OFFSET:
                    column = pa.array(positions)
                case metadata.TIMESTAMP if batch.timestamps is not None:
                    millis = batch.timestamps[places]
                    column = pa.array(millis, pa.timestamp("ms", tz="UTC"), mask=millis < 0)
                case metadata.KEY if batch.keys is not None:
                    column = batch.keys.take(pa.array(places))
                case metadata.HEADERS if batch.headers is not None:
                    column = batch.headers.take(pa.array(places))
                case metadata.TIMESTAMP | metadata.KEY | metadata.HEADERS:
                    raise ValueError(f"`{each.name}` was not fetched")
                case _:
                    continue
            found[each.name] = column.cast(each.type)
        return found

    def _bad_records(self, batch: MessageBatch, reasons: Mapping[int, str]) -> list[BadRecord]:
        """The bad records in order, each with the raw value of its message."""
        bad: list[BadRecord] = []
        for offset in sorted(reasons):
            raw = batch.values[int(np.searchsorted(batch.offsets, offset))].as_py()
            is_whole = raw is not None and len(raw) <= self._limit
            kept = (raw or b"")[: None if is_whole else HEAD_BYTES]
            bad.append(BadRecord(offset, kept, reasons[offset], is_whole))
        return bad


def registry_of(options: KafkaOptions) -> SchemaRegistry | None:
    """The schema registry in the options, if any."""
    found = options.registry
    if found is None:
        return None
    # Imported here: most sources have no registry.
    from laminar_dagster.clients.schema_registry import SchemaRegistry

    return SchemaRegistry(found.url, found.username, found.password, found.ca_location)


def _length(values: pa.BinaryArray) -> int:
    return int(pc.sum(pc.binary_length(values)).as_py() or 0)
