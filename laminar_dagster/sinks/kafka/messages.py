"""Convert rows to Kafka messages (key, value, partition), one group of partitions at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.clients.schema_registry import SchemaRegistry
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.sinks.bad_values import show_row
from laminar_dagster.sinks.changes import Unwritable, check_columns, split, stored_columns
from laminar_dagster.sinks.kafka.ledger import Cut
from laminar_dagster.sinks.kafka.options import KafkaSinkOptions
from laminar_dagster.sinks.kafka.partitions import Partitions, by_key, by_turns
from laminar_dagster.sinks.kafka.serialising import Form, form_of, registry_of, schema_id

# The bytes of rows that are encoded and handed to the client at a time.
_BYTES: Final = 32 * 2**20
# Room for what the client adds to a key and a value.
_AROUND: Final = 512
_CLIENT_LARGEST: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages in the order of their rows; a value of None is a tombstone."""

    values: list[bytes | None]
    keys: list[bytes | None]
    partitions: list[int]


@dataclass(frozen=True, slots=True)
class Shape:
    """How the rows of a view are encoded as messages."""

    options: KafkaSinkOptions
    value: Form
    key: Form | None

    @classmethod
    def of(cls, schema: pa.Schema, options: KafkaSinkOptions) -> Shape:
        """The shape for a view's columns and a sink's options.

        Raises:
            Unwritable: The columns do not fit the formats; says why.
        """
        check_columns(schema, options.key_of_rows)
        stored = pa.schema(stored_columns(schema))
        key = form_of("key", stored, options) if options.key_columns else None
        return cls(options, form_of("value", stored, options), key)

    def check_schemas(self) -> None:
        """Ask the registry whether it accepts the schemas. Registers nothing.

        Raises:
            Unwritable: The registry does not accept a schema.
            RegistryUnavailable, AuthFailed: The registry cannot be asked.
        """
        registry = registry_of(self.options)
        for form in (self.value, self.key):
            if form is not None:
                schema_id(form, self.options, registry, only_ask=True)

    def registered(self) -> Writer:
        """Register the schemas, and return the writer of messages.

        Raises:
            Unwritable: The registry does not accept a schema.
            RegistryUnavailable, AuthFailed: The registry cannot be asked.
        """
        registry: SchemaRegistry | None = registry_of(self.options)
        value = schema_id(self.value, self.options, registry, only_ask=False)
        key = schema_id(self.key, self.options, registry, only_ask=False) if self.key else None
        return Writer(self, value, key)


@dataclass(frozen=True, slots=True)
class Writer:
    """Encodes rows as messages."""

    shape: Shape
    value_id: int | None
    key_id: int | None

    def portions(
        self,
        table: pa.Table,
        first_row: int,
        epoch: EpochNumber,
        group: int,
        cut: Cut,
        largest: int | None,
    ) -> Iterator[Messages]:
        """The messages of one group, in batches of what may be buffered.

        Args:
            table: The rows of one staged file.
            first_row: The number of rows in the files before it.
            epoch: The rows' epoch.
            group: The group whose partitions to write.
            cut: How the epoch is split.
            largest: The topic's maximum message size in bytes, if it is known.

        Raises:
            Unwritable: A value, a key or a weight does not fit, or a message is too large.
        """
        options = self.shape.options
        key = options.key_of_rows
        changes = split(table, key, one_row_per_key=bool(key))
        turn = int(epoch) + first_row
        for rows in _slices(changes.rows, options.limits.buffered):
            keys = self._keys(rows)
            partitions = self._partitions(keys, rows.num_rows, turn, cut.partitions)
            turn += rows.num_rows
            if cut.instances > 1:
                own = pa.array(partitions % cut.instances == group)
                rows, keys = rows.filter(own), keys.filter(own) if keys is not None else None
                partitions = partitions[partitions % cut.instances == group]
            values = self.shape.value.encode(rows, self.value_id)
            _check_sizes(rows, keys, values, options, largest)
            yield Messages(values.to_pylist(), _listed(keys, len(values)), partitions.tolist())
        if changes.deleted is None:
            return
        for rows in _slices(changes.deleted, options.limits.buffered):
            keys = self._keys(rows)
            partitions = self._partitions(keys, rows.num_rows, 0, cut.partitions)
            if cut.instances > 1 and keys is not None:
                keys = keys.filter(pa.array(partitions % cut.instances == group))
                partitions = partitions[partitions % cut.instances == group]
            found = _listed(keys, len(partitions))
            yield Messages([None] * len(found), found, partitions.tolist())

    def _keys(self, rows: pa.Table) -> pa.Array | None:
        if self.shape.key is None:
            return None
        return self.shape.key.encode(rows, self.key_id)

    def _partitions(self, keys: pa.Array | None, rows: int, turn: int, count: int) -> Partitions:
        if keys is None or keys.null_count == len(keys):
            return by_turns(turn, rows, count)
        if not keys.null_count:
            return by_key(keys, count, self.shape.options.partitioner)
        # A key in format raw may be null: such messages go round-robin, like those without a key.
        found = by_turns(turn, rows, count)
        there = np.flatnonzero(keys.is_valid().to_numpy(zero_copy_only=False))
        whole = keys.drop_null()
        found[there] = by_key(whole, count, self.shape.options.partitioner)
        return found


def _listed(keys: pa.Array | None, count: int) -> list[bytes | None]:
    if keys is None:
        return [None] * count
    found: list[bytes | None] = keys.to_pylist()
    return found


def _slices(rows: pa.Table, most: int) -> Iterator[pa.Table]:
    """Rows in slices of at most ``most`` rows and about ``_BYTES`` bytes."""
    if not rows.num_rows:
        return
    by_bytes = max(1, rows.num_rows * _BYTES // max(1, rows.nbytes))
    step = min(most, by_bytes)
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def _check_sizes(
    rows: pa.Table,
    keys: pa.Array | None,
    values: pa.Array,
    options: KafkaSinkOptions,
    largest: int | None,
) -> None:
    """Refuse messages too large for the client or the topic, whose own errors do not name the row.

    Raises:
        Unwritable: A message is too large; names its row.
    """
    client = int(options.properties.get("message.max.bytes", _CLIENT_LARGEST))
    is_compressed = any(
        options.properties.get(name, "none") != "none"
        for name in ("compression.type", "compression.codec")
    )
    limit = client if is_compressed or largest is None else min(client, largest)
    sizes = pc.fill_null(pc.binary_length(values), 0)
    if keys is not None:
        sizes = pc.add(sizes, pc.fill_null(pc.binary_length(keys), 0))
    if not len(sizes) or (most := pc.max(sizes).as_py()) <= limit - _AROUND:
        return
    place = pc.index(sizes, most).as_py()
    shown = show_row(rows, place, options.key_columns or rows.column_names[:3])
    help_ = (
        "raise `kafka.message.max.bytes`"
        if limit == client
        else "raise `max.message.bytes` of the topic"
    )
    raise Unwritable(
        f"the row {shown} makes a message of {most} bytes, and {limit} is the most; {help_}"
    )
