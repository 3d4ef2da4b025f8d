"""An upsert sink in memory: the simplest one that meets ``KeyContract``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pyarrow as pa

from laminar_dagster.core.errors import FencedOut, InvalidConfig, LedgerMismatch, WriteFailed
from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.core.ports import ArrowRows, ArrowSchema, HeldKeys, StagedOutput
from laminar_dagster.testing.key_kinds import Key, KeyKind
from laminar_dagster.testing.sink_places import TABLE

_NOT_KEYS: Final = (pa.types.is_floating, pa.types.is_nested)


@dataclass
class MemoryRows:
    """Stands in for a database: rows by key and a ledger, changed together.

    Attributes:
        same_as: Maps a key to its identity: keys with equal identities are the same key.
    """

    same_as: Callable[[Key], object] = lambda key: key
    ledger: EpochNumber | None = None
    rows: dict[object, tuple[Key, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class MemoryUpsertSink:
    """Upserts rows of the columns ``key`` and ``value`` into ``MemoryRows``."""

    table: MemoryRows
    key: tuple[str, ...]
    sink_id: SinkId = TABLE
    address: str = "memory://rows"

    @property
    def targets(self) -> frozenset[str]:
        """The table's address."""
        return frozenset({self.address})

    def ledger(self) -> EpochNumber | None:
        """The epoch in the table's ledger."""
        return self.table.ledger

    def check(self, schema: ArrowSchema, staged: StagedOutput | None = None) -> None:
        """Refuse key types without reliable equality: floats and nested types."""
        self._check(pa.schema(schema), partial(InvalidConfig, f"sink {self.sink_id}"))

    def held_keys(self, schema: ArrowSchema, keys: ArrowRows) -> HeldKeys:
        """See ``Searchable``."""
        held = [key for key in self._keys(pa.table(keys)) if self._id(key) in self.table.rows]
        return HeldKeys(len(held), repr(held[0]) if held else "")

    def commit(self, epoch: EpochNumber, staged: StagedOutput) -> None:
        """Upsert and delete rows in order, and advance the ledger, in one step."""
        stands = self.table.ledger or staged.entry.joined_at.previous()
        if stands == epoch:
            return
        if stands > epoch:
            raise FencedOut(self.sink_id, f"it is at epoch {stands}, past {epoch}")
        if stands != epoch.previous():
            raise LedgerMismatch(self.sink_id, epoch, stands)
        rows = dict(self.table.rows)
        staged.progress.begun()
        for file in staged.entry.files:
            read = pa.ipc.open_file(pa.BufferReader(staged.read(file))).read_all()
            self._check(read.schema, partial(WriteFailed, self.sink_id, epoch))
            values, weights = read["value"].to_pylist(), read["_weight"].to_pylist()
            for key, value, weight in zip(self._keys(read), values, weights, strict=True):
                rows.pop(self._id(key), None)
                if weight > 0:
                    rows[self._id(key)] = (key, value)
            staged.progress.wrote(read.num_rows)
        staged.progress.committing()
        self.table.rows, self.table.ledger = rows, epoch

    def _id(self, key: Key) -> object:
        return self.table.same_as(key)

    def _keys(self, rows: pa.Table) -> list[Key]:
        return [*zip(*(rows[name].to_pylist() for name in self.key), strict=True)]

    def _check(self, schema: pa.Schema, refusal: Callable[[str], Exception]) -> None:
        for name in self.key:
            kind = schema.field(name).type
            if any(is_none(kind) for is_none in _NOT_KEYS):
                raise refusal(f"key column `{name}` is of type {kind}, which does not compare well")


@dataclass(frozen=True)
class MemoryKeyPlace:
    """A ``KeyPlace`` in memory."""

    table: MemoryRows = field(default_factory=MemoryRows)

    def open_keyed(self, key: tuple[str, ...]) -> MemoryUpsertSink:
        """See ``KeyPlace``."""
        return MemoryUpsertSink(self.table, key)

    def read_keyed(self, kind: KeyKind) -> list[tuple[Key, str]]:
        """See ``KeyPlace``."""
        return [*self.table.rows.values()]
