"""A small engine for the proof: no Spark, and otherwise as real as one. State and staged output are
Arrow files in the store, and state is read back from there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from laminar_dagster.core import layout
from laminar_dagster.core.ids import CheckpointId, FileName, OperatorId, PartitionId, SinkId
from laminar_dagster.core.manifest import (
    CheckpointManifest,
    FileEntry,
    OperatorSnapshotEntry,
    PartitionSnapshotEntry,
    RecordCounts,
    SinkEntry,
    SourceOffsetEntry,
)
from laminar_dagster.core.offsets import KafkaPosition, SourcePosition
from laminar_dagster.core.plan import EpochPlan, SinkPlan
from laminar_dagster.core.ports import EpochOutput, Examination, ObjectStore
from laminar_dagster.runtime.checked_files import read_verified
from laminar_dagster.testing.memory_pipeline import MemoryLog
from tests.integration.proof.sinks.accounts import View, read_number
from tests.unit.sinks.staging import file_bytes

_BALANCES: Final = OperatorId("balances")
_SCHEMAS: Final[dict[View, pa.Schema]] = {
    "moves": pa.schema(
        {"lane": pa.int32(), "place": pa.int64(), "account": pa.string(), "amount": pa.int64()}
    ),
    "balances": pa.schema(
        {
            "account": pa.string(),
            "balance": pa.int64(),
            "changes": pa.int32(),
            "_weight": pa.int8(),
        }
    ),
}
_STATE: Final = _SCHEMAS["balances"].remove(3)

_Balances = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class AccountEngine:
    """Adds up accounts. An epoch stages one file a lane and sink, with a row for every change."""

    store: ObjectStore
    log: MemoryLog
    views: Mapping[SinkId, View]

    def compute(
        self, plan: EpochPlan, parent: CheckpointManifest | None, attempt: CheckpointId
    ) -> EpochOutput:
        """See ``Engine.compute``."""
        (source,) = plan.sources
        staged: list[dict[View, pa.Table]] = []
        state: list[PartitionSnapshotEntry] = []
        ends: list[SourcePosition] = []
        for part in source.ranges:
            assert isinstance(part.start, KafkaPosition)
            assert isinstance(part.end, KafkaPosition)
            lane = part.start.partition
            balances = self._read_state(lane, parent)
            numbers = self.log.partitions[lane][part.start.offset : part.end.offset]
            staged.append(_apply(lane, part.start.offset, numbers, balances))
            state.append(self._write_state(lane, balances, attempt))
            ends.append(part.end)
        count = sum(tables["moves"].num_rows for tables in staged)
        return EpochOutput(
            operators=(
                OperatorSnapshotEntry(
                    operator_id=_BALANCES,
                    operator_type="balances",
                    state_backend="arrow",
                    partitions=tuple(state),
                ),
            ),
            sources=(
                SourceOffsetEntry(
                    source_id=source.source_id,
                    positions=tuple(ends),
                    path=layout.offsets_path(source.source_id),
                ),
            ),
            sinks=tuple(self._stage(sink, staged, attempt) for sink in plan.sinks),
            dead_letters=(),
            counts=RecordCounts(read=count, processed=count),
            watermark=None,
        )

    def examine(self) -> Examination:
        """There are no queries."""
        return Examination()

    def _read_state(self, lane: int, parent: CheckpointManifest | None) -> _Balances:
        if parent is None:
            return {}
        (operator,) = parent.operators
        entry = next(each for each in operator.partitions if each.partition_id == lane)
        key = layout.checkpoint_key(parent.checkpoint_id, entry.path)
        data = read_verified(self.store, key, entry.size_bytes, entry.sha256)
        with pa.ipc.open_file(pa.BufferReader(data)) as reader:
            rows = reader.read_all().to_pylist()
        return {row["account"]: (row["balance"], row["changes"]) for row in rows}

    def _write_state(
        self, lane: int, balances: _Balances, attempt: CheckpointId
    ) -> PartitionSnapshotEntry:
        rows = [(account, *held) for account, held in sorted(balances.items())]
        path = layout.snapshot_path(_BALANCES, PartitionId(lane))
        size, sha256 = self._put(path, _table(rows, _STATE), attempt)
        return PartitionSnapshotEntry(
            partition_id=PartitionId(lane), path=path, size_bytes=size, sha256=sha256
        )

    def _stage(
        self, sink: SinkPlan, staged: list[dict[View, pa.Table]], attempt: CheckpointId
    ) -> SinkEntry:
        files = []
        for lane, tables in enumerate(staged):
            table = tables[self.views[sink.sink_id]]
            path = layout.staged_path(sink.sink_id, FileName(f"lane-{lane}.arrow"))
            size, sha256 = self._put(path, table, attempt)
            files.append(FileEntry(path=path, size_bytes=size, sha256=sha256, rows=table.num_rows))
        together = hashlib.sha256("".join(file.sha256 for file in files).encode()).hexdigest()
        return SinkEntry(
            sink_id=sink.sink_id,
            joined_at=sink.joined_at,
            files=tuple(files),
            output_sha256=together,
        )

    def _put(self, path: str, table: pa.Table, attempt: CheckpointId) -> tuple[int, str]:
        data = file_bytes(table)
        self.store.put(layout.checkpoint_key(attempt, path), data)
        return len(data), hashlib.sha256(data).hexdigest()


def _apply(lane: int, begin: int, numbers: list[int], balances: _Balances) -> dict[View, pa.Table]:
    """Change the balances; a row of each view for every change, the closed accounts' negative."""
    moves, changed = [], []
    for place, (account, amount) in enumerate(map(read_number, numbers), begin):
        moves.append((lane, place, account, amount))
        balance, changes = balances.pop(account, (0, 0))
        if amount:
            balances[account] = (balance + amount, changes + 1)
            changed.append((account, balance + amount, changes + 1, 1))
        else:
            changed.append((account, balance, changes, -1))
    return {
        "moves": _table(moves, _SCHEMAS["moves"]),
        "balances": _table(changed, _SCHEMAS["balances"]),
    }


def _table(rows: list[Any], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)
