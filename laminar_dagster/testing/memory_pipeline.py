"""A whole pipeline in memory: a source, an engine that keeps state, and a sink with a ledger.

Small, but realistic where it matters: state is read back from the store's files, so a file that
was wrongly garbage-collected makes the run fail; the sink's "server" outlives the process that
talks to it, and may lose a reply.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from msgspec import structs

from laminar_dagster.core import layout
from laminar_dagster.core.errors import (
    ChecksumMismatch,
    CommitOutcomeUnknown,
    FencedOut,
    InvalidState,
    LedgerMismatch,
    SinkUnavailable,
)
from laminar_dagster.core.ids import (
    CheckpointId,
    EpochNumber,
    FileName,
    OperatorId,
    PartitionId,
    SinkId,
    SourceId,
)
from laminar_dagster.core.manifest import (
    CheckpointManifest,
    FileEntry,
    OperatorSnapshotEntry,
    PartitionSnapshotEntry,
    RecordCounts,
    SinkEntry,
    SourceOffsetEntry,
)
from laminar_dagster.core.offsets import (
    CustomIdentity,
    KafkaPosition,
    SourceIdentity,
    SourcePosition,
    SourceRange,
)
from laminar_dagster.core.plan import EpochPlan, SourcePlan
from laminar_dagster.core.ports import (
    Admission,
    ArrowSchema,
    EpochOutput,
    Examination,
    ObjectStore,
    Published,
    SplitReader,
    StagedOutput,
    Violation,
)
from laminar_dagster.core.upkeep import Rescale
from laminar_dagster.core.upkeep_output import output_of_upkeep

TOTALS: Final = OperatorId("totals")
NUMBERS: Final = SourceId("numbers")
TABLE: Final = SinkId("table")


@dataclass
class MemoryLog:
    """Stands in for a broker: append-only partitions of numbers."""

    partitions: list[list[int]] = field(default_factory=lambda: [[], []])

    def expected(self) -> list[tuple[int, int, int, int]]:
        """Every row a sink must hold in the end: partition, offset, value, running total."""
        rows = []
        for partition, values in enumerate(self.partitions):
            total = 0
            for offset, value in enumerate(values):
                total += value
                rows.append((partition, offset, value, total))
        return rows


@dataclass
class MemorySource:
    """Reads a ``MemoryLog``."""

    log: MemoryLog
    source_id: SourceId = NUMBERS
    address: str = "memory://log"
    acknowledged: tuple[SourcePosition, ...] = ()

    def identity(self) -> SourceIdentity:
        """A constant: there is only one log."""
        return CustomIdentity(source_type="memory", identity="log")

    def plan(
        self,
        previous: SourcePlan | None,
        start: tuple[SourcePosition, ...],
        limits: Admission,
        clock: datetime,
    ) -> SourcePlan:
        """Plan up to ``max_records`` of every partition."""
        stood = {
            position.partition: position.offset
            for position in start
            if isinstance(position, KafkaPosition)
        }
        ranges = []
        for partition, values in enumerate(self.log.partitions):
            begin = stood.get(partition, 0)
            end = len(values)
            if limits.max_records is not None:
                end = min(end, begin + limits.max_records)
            ranges.append(
                SourceRange(
                    start=KafkaPosition(topic="numbers", partition=partition, offset=begin),
                    end=KafkaPosition(topic="numbers", partition=partition, offset=end),
                )
            )
        return SourcePlan(source_id=self.source_id, identity=self.identity(), ranges=tuple(ranges))

    def splits(self, part: SourceRange) -> tuple[SourceRange, ...]:
        """One split per partition."""
        return (part,)

    def reader(self) -> SplitReader:
        """Not implemented: ``MemoryEngine`` reads the log itself."""
        raise NotImplementedError

    def verify(self, plan: SourcePlan) -> None:
        """Accept every plan: the log never changes what it holds."""

    def check_seek(self, position: SourcePosition) -> None:
        """Accept every position: the log retains everything."""

    def acknowledge(self, positions: tuple[SourcePosition, ...]) -> None:
        """Record the positions, for tests to inspect."""
        self.acknowledged = positions


@dataclass
class MemoryEngine:
    """Sums each partition's numbers; the running total is its state, in files of the store.

    An epoch writes its addition as a delta; a chain of three files is compacted to a snapshot.
    """

    store: ObjectStore
    log: MemoryLog
    gate: Callable[[EpochPlan], tuple[Violation, ...]] = lambda _plan: ()

    def compute(
        self, plan: EpochPlan, parent: CheckpointManifest | None, attempt: CheckpointId
    ) -> EpochOutput:
        """Read the planned ranges, add to the state, stage one row for each record."""
        if plan.upkeep and parent:
            return self._upkeep(plan, parent, attempt)
        chains = _chains_of(parent)
        rows: list[tuple[int, int, int, int]] = []
        ends: list[SourcePosition] = []
        written: list[PartitionSnapshotEntry] = []
        for part in plan.sources[0].ranges:
            assert isinstance(part.start, KafkaPosition)
            assert isinstance(part.end, KafkaPosition)
            partition = PartitionId(part.start.partition)
            chain = chains[partition]
            total = sum(self._added(entry, parent) for entry in chain)
            values = self.log.partitions[partition][part.start.offset : part.end.offset]
            begin = total
            for offset, value in enumerate(values, part.start.offset):
                total += value
                rows.append((partition, offset, value, total))
            ends.append(part.end)
            if len(chain) >= 3 or not chain:
                written.append(self._write(attempt, partition, total, is_incremental=False))
            else:
                written.extend(chain)
                if values:
                    written.append(
                        self._write(attempt, partition, total - begin, is_incremental=True)
                    )
        return EpochOutput(
            operators=(
                OperatorSnapshotEntry(
                    operator_id=TOTALS,
                    operator_type="sum",
                    state_backend="json",
                    partitions=tuple(written),
                ),
            ),
            sources=(
                SourceOffsetEntry(
                    source_id=plan.sources[0].source_id,
                    positions=tuple(ends),
                    path=layout.offsets_path(plan.sources[0].source_id),
                ),
            ),
            sinks=tuple(
                self._stage(attempt, sink.sink_id, sink.joined_at, rows) for sink in plan.sinks
            ),
            dead_letters=(),
            counts=RecordCounts(read=len(rows), processed=len(rows)),
            watermark=None,
            violations=self.gate(plan),
        )

    def examine(self) -> Examination:
        """Empty: there are no queries to examine."""
        return Examination()

    def _upkeep(
        self, plan: EpochPlan, parent: CheckpointManifest, attempt: CheckpointId
    ) -> EpochOutput:
        """Compact every chain to one snapshot. Only ``Rescale``: there are no branches."""
        if not isinstance(plan.upkeep, Rescale):
            raise InvalidState("the engine in memory", "without branches", "promote one")
        written = tuple(
            self._write(
                attempt,
                partition,
                sum(self._added(entry, parent) for entry in chain),
                is_incremental=False,
            )
            for partition, chain in sorted(_chains_of(parent).items())
        )
        operators = tuple(structs.replace(each, partitions=written) for each in parent.operators)
        return output_of_upkeep(plan, parent, operators, self.gate(plan))

    def _added(self, entry: PartitionSnapshotEntry, parent: CheckpointManifest | None) -> int:
        assert parent is not None
        home = parent.origin_of(entry).checkpoint_id
        key = layout.checkpoint_key(home, entry.path)
        data = self.store.read(key)
        digest = hashlib.sha256(data).hexdigest()
        if digest != entry.sha256:
            raise ChecksumMismatch(key, entry.sha256, digest)
        return int(json.loads(data))

    def _write(
        self, attempt: CheckpointId, partition: PartitionId, total: int, *, is_incremental: bool
    ) -> PartitionSnapshotEntry:
        build = layout.delta_path if is_incremental else layout.snapshot_path
        path = build(TOTALS, partition)
        data = json.dumps(total).encode()
        self.store.put(layout.checkpoint_key(attempt, path), data)
        return PartitionSnapshotEntry(
            partition_id=partition,
            path=path,
            size_bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            is_incremental=is_incremental,
        )

    def _stage(
        self,
        attempt: CheckpointId,
        sink: SinkId,
        joined_at: EpochNumber,
        rows: list[tuple[int, int, int, int]],
    ) -> SinkEntry:
        data = json.dumps(rows).encode()
        path = layout.staged_path(sink, FileName("rows.json"))
        self.store.put(layout.checkpoint_key(attempt, path), data)
        digest = hashlib.sha256(data).hexdigest()
        return SinkEntry(
            sink_id=sink,
            joined_at=joined_at,
            files=(FileEntry(path=path, size_bytes=len(data), sha256=digest, rows=len(rows)),),
            output_sha256=digest,
        )


def _chains_of(
    parent: CheckpointManifest | None,
) -> defaultdict[PartitionId, list[PartitionSnapshotEntry]]:
    """The parent's state files by partition, with the origin that a new manifest must name."""
    chains: defaultdict[PartitionId, list[PartitionSnapshotEntry]] = defaultdict(list)
    if parent is None:
        return chains
    for operator in parent.operators:
        for entry in operator.partitions:
            owned = structs.replace(entry, origin=parent.origin_of(entry))
            chains[entry.partition_id].append(owned)
    return chains


@dataclass
class MemoryTable:
    """Stands in for a database: rows and a ledger, changed in one transaction."""

    ledger: EpochNumber | None = None
    output: str = ""
    rows: list[tuple[int, int, int, int]] = field(default_factory=list)
    epochs: list[EpochNumber] = field(default_factory=list)
    is_away: bool = False
    lose_next_reply: bool = False
    fail_next_commit: bool = False


@dataclass
class MemorySink:
    """Commits to a ``MemoryTable``."""

    table: MemoryTable
    sink_id: SinkId = TABLE
    address: str = "memory://table"

    @property
    def targets(self) -> frozenset[str]:
        """The table's address."""
        return frozenset({self.address})

    def ledger(self) -> EpochNumber | None:
        """The epoch in the table's ledger."""
        self._reach()
        return self.table.ledger

    def published(self) -> Published | None:
        """The epoch and output digest in the table's ledger."""
        self._reach()
        table = self.table
        known = table.ledger if table.output else None
        return Published(known, table.output) if known else None

    def check(self, schema: ArrowSchema, staged: StagedOutput | None = None) -> None:
        """Accept every schema."""
        self._reach()

    def commit(self, epoch: EpochNumber, staged: StagedOutput) -> None:
        """Append the rows and advance the ledger, in one step."""
        self._reach()
        table = self.table
        # Read the files before the ledger: an operation between the ledger check and the write
        # would let another committer in.
        rows = [
            (partition, offset, value, total)
            for file in staged.entry.files
            for partition, offset, value, total in json.loads(staged.read(file))
        ]
        stands = staged.entry.joined_at.previous() if table.ledger is None else table.ledger
        if stands == epoch:
            return
        if stands > epoch:
            raise FencedOut(self.sink_id, f"it is at epoch {stands}, past {epoch}")
        if stands != epoch.previous():
            raise LedgerMismatch(self.sink_id, epoch, stands)
        staged.progress.begun()
        if table.fail_next_commit:
            table.fail_next_commit = False
            raise SinkUnavailable(self.sink_id, "the connection broke before the commit")
        staged.progress.wrote(len(rows))
        staged.progress.committing()
        table.rows.extend(rows)
        table.ledger, table.output = epoch, staged.entry.output_sha256
        table.epochs.append(epoch)
        if table.lose_next_reply:
            table.lose_next_reply = False
            raise CommitOutcomeUnknown(self.sink_id, epoch, "the reply was lost")

    def _reach(self) -> None:
        if self.table.is_away:
            raise SinkUnavailable(self.sink_id, "it is away")
