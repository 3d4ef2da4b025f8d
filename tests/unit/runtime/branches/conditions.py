"""A pipeline in memory that multiplies, wrongly at first, and branches of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pyarrow as pa

from laminar_dagster.core import layout
from laminar_dagster.core.branch import BranchSink
from laminar_dagster.core.errors import BufferOverflow
from laminar_dagster.core.ids import (
    BranchName,
    CheckpointId,
    EpochNumber,
    FileName,
    OperatorId,
    PartitionId,
    PipelineName,
    SinkId,
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
from laminar_dagster.core.offsets import KafkaPosition
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.ports import (
    Admission,
    ArrowSchema,
    EpochOutput,
    Examination,
    ObjectStore,
    StagedOutput,
)
from laminar_dagster.runtime.branches.assembly import NEVER
from laminar_dagster.runtime.branches.forking import fork
from laminar_dagster.runtime.branches.records import branch_area
from laminar_dagster.runtime.branches.replaying import Replay
from laminar_dagster.runtime.branches.sources import ReadOnlySource
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.collector import Retention
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.sinks.changes import split
from laminar_dagster.sinks.ledger import Decision, decide
from laminar_dagster.sinks.staged import staged_tables
from laminar_dagster.spark.arrow_files import file_bytes, sha256
from laminar_dagster.testing.faulty_store import FaultyStore
from laminar_dagster.testing.memory_pipeline import MemoryLog, MemorySource
from tests.unit.runtime.conditions import HandClock, Mint

FIX = BranchName("fix")
TABLE = BranchSink(
    sink_id=SinkId("table"), view=OperatorId("all"), mode="upsert", key=("partition", "offset")
)
LOG = BranchSink(sink_id=SinkId("log"), view=OperatorId("all"), mode="append")


@dataclass(frozen=True)
class Version:
    """What the pipeline computes: running totals of ``factor`` times each value it keeps."""

    name: str = "wrong"
    factor: int = 1
    logs: Callable[[int], bool] = lambda value: value % 2 == 0
    column: str = "value"


WRONG = Version()
RIGHT = Version("right", 2)


@dataclass
class Multiplier:
    """Keeps one total for each partition, in one file, and stages Arrow."""

    store: ObjectStore
    log: MemoryLog
    version: Version

    def compute(
        self, plan: EpochPlan, parent: CheckpointManifest | None, attempt: CheckpointId
    ) -> EpochOutput:
        rows: list[dict[str, int]] = []
        states, ends = [], []
        for part in plan.sources[0].ranges:
            assert isinstance(part.start, KafkaPosition)
            assert isinstance(part.end, KafkaPosition)
            partition = PartitionId(part.start.partition)
            total = self._total(parent, partition)
            values = self.log.partitions[partition][part.start.offset : part.end.offset]
            for offset, value in enumerate(values, part.start.offset):
                total += self.version.factor * value
                rows.append(
                    {"partition": partition, "offset": offset, "value": value, "total": total}
                )
            ends.append(part.end)
            states.append(self._write(attempt, partition, total))
        source = plan.sources[0].source_id
        return EpochOutput(
            operators=(
                OperatorSnapshotEntry(
                    operator_id=OperatorId("all"),
                    operator_type="sum",
                    state_backend="json",
                    partitions=tuple(states),
                ),
            ),
            sources=(
                SourceOffsetEntry(
                    source_id=source, positions=tuple(ends), path=layout.offsets_path(source)
                ),
            ),
            sinks=tuple(
                self._stage(attempt, each.sink_id, each.joined_at, rows) for each in plan.sinks
            ),
            dead_letters=(),
            counts=RecordCounts(read=len(rows), processed=len(rows)),
            watermark=None,
        )

    def examine(self) -> Examination:
        return Examination()

    def _total(self, parent: CheckpointManifest | None, partition: PartitionId) -> int:
        for entry in parent.operators[0].partitions if parent else ():
            assert parent
            if entry.partition_id == partition:
                key = layout.checkpoint_key(parent.origin_of(entry).checkpoint_id, entry.path)
                data = self.store.read(key)
                assert sha256(data) == entry.sha256
                return int(json.loads(data))
        return 0

    def _write(
        self, attempt: CheckpointId, partition: PartitionId, total: int
    ) -> PartitionSnapshotEntry:
        path, data = layout.snapshot_path(OperatorId("all"), partition), json.dumps(total).encode()
        self.store.put(layout.checkpoint_key(attempt, path), data)
        return PartitionSnapshotEntry(
            partition_id=partition, path=path, size_bytes=len(data), sha256=sha256(data)
        )

    def _stage(
        self, attempt: CheckpointId, sink: SinkId, joined: EpochNumber, rows: list[dict[str, int]]
    ) -> SinkEntry:
        mine = rows
        if sink == LOG.sink_id:
            mine = [row for row in rows if self.version.logs(row["value"])]
            column = self.version.column
            mine = [{"partition": row["partition"], column: row["value"]} for row in mine]
        if not mine:
            return SinkEntry(sink_id=sink, joined_at=joined, files=(), output_sha256=sha256(b""))
        data = file_bytes(pa.Table.from_pylist(mine))
        path = layout.staged_path(sink, FileName("rows.arrow"))
        self.store.put(layout.checkpoint_key(attempt, path), data)
        file = FileEntry(path=path, size_bytes=len(data), sha256=sha256(data), rows=len(mine))
        return SinkEntry(sink_id=sink, joined_at=joined, files=(file,), output_sha256=sha256(data))


@dataclass
class Place:
    """What a database would hold; it outlives the process."""

    ledger: EpochNumber | None = None
    rows: list[dict[str, int]] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)


@dataclass
class PlaceSink:
    """Appends to a place, or keeps one row for each key of it."""

    sink_id: SinkId
    key: tuple[str, ...]
    place: Place
    address: str = "memory://place"
    on_check: Callable[[], None] = lambda: None
    max_rows: int = 100

    @property
    def targets(self) -> frozenset[str]:
        return frozenset({self.address})

    def ledger(self) -> EpochNumber | None:
        return self.place.ledger

    def check(self, schema: ArrowSchema, staged: StagedOutput | None = None) -> None:
        self.on_check()
        self._check_amount(staged.entry if staged else None)

    def commit(self, epoch: EpochNumber, staged: StagedOutput) -> None:
        self._check_amount(staged.entry)
        tables = [*staged_tables(staged)]
        there = decide(self.sink_id, epoch, staged.entry.joined_at, self.place.ledger)
        if there is Decision.SKIP:
            return
        rows = list(self.place.rows)
        for table in tables:
            changes = split(table, self.key)
            gone = changes.deleted.to_pylist() if changes.deleted is not None else []
            rows = [row for row in rows if not any(self._key(row) == self._key(g) for g in gone)]
            for row in changes.rows.to_pylist():
                if self.key:
                    rows = [each for each in rows if self._key(each) != self._key(row)]
                rows.append(row)
        # At once: nothing that can fail stands between these.
        self.place.rows, self.place.ledger = rows, epoch
        self.place.epochs.append(epoch)

    def _check_amount(self, staged: SinkEntry | None) -> None:
        rows = sum(file.rows for file in staged.files) if staged else 0
        if rows > self.max_rows:
            raise BufferOverflow(self.sink_id, rows, self.max_rows)

    def _key(self, row: dict[str, int]) -> tuple[int, ...]:
        return tuple(row[name] for name in self.key)


@dataclass
class World:
    """What outlives every process, and ways to open what is in it."""

    store: ObjectStore
    log: MemoryLog = field(default_factory=MemoryLog)
    source: MemorySource = field(init=False)
    clock: HandClock = field(default_factory=HandClock)
    mint: Mint = field(default_factory=Mint)
    places: dict[str, Place] = field(default_factory=dict)
    sinks: tuple[BranchSink, ...] = (TABLE, LOG)

    def __post_init__(self) -> None:
        self.source = MemorySource(self.log)

    def arrive(self, *values: int) -> None:
        self.log.partitions[0].extend(values)
        self.log.partitions[1].extend(values[:1])

    def main(
        self, version: Version = WRONG, store: ObjectStore | None = None, retain: int = 10
    ) -> Pipeline:
        objects = store or self.store
        return Pipeline(
            name=PipelineName("memory"),
            fingerprint=version.name,
            checkpoints=CheckpointStore(objects),
            engine=Multiplier(objects, self.log, version),
            sources=(self.source,),
            sinks=self._sinks("main"),
            published=self.sinks,
            limits=Admission(max_records=2),
            retention=Retention(retain),
            collect_every=1,
            clock=self.clock,
            mint=self.mint,
        )

    def branch(
        self, version: Version = RIGHT, store: ObjectStore | None = None, name: BranchName = FIX
    ) -> Pipeline:
        main = self.main(version, store)
        area = branch_area(main.checkpoints.objects, name)
        return replace(
            main,
            name=PipelineName(f"memory.{name}"),
            checkpoints=CheckpointStore(area),
            engine=Multiplier(area, self.log, version),
            sources=(ReadOnlySource(self.source),),
            sinks=self._sinks(str(name)),
            collect_every=NEVER,
        )

    def fork(
        self,
        epoch: int,
        version: Version = RIGHT,
        store: ObjectStore | None = None,
        name: BranchName = FIX,
    ) -> Replay:
        main = CheckpointStore(store or self.store)
        branch = self.branch(version, store, name)
        made = fork(main, branch, name, PipelineName("memory"), EpochNumber(epoch), self.sinks)
        return Replay(main, branch, made.record)

    def run(self, epochs: int, version: Version = WRONG, retain: int = 10) -> None:
        for _ in range(epochs):
            EpochRunner(self.main(version, retain=retain)).run()

    def rows(self, sink: str, where: str = "main") -> Counter[tuple[int, ...]]:
        return Counter(tuple(row.values()) for row in self.places[f"{where}/{sink}"].rows)

    def right(self, version: Version = RIGHT, begin: int = 0) -> Counter[tuple[int, ...]]:
        """What the table must hold in the end; before ``begin`` the wrong version was right."""
        found: Counter[tuple[int, ...]] = Counter()
        for partition, values in enumerate(self.log.partitions):
            total = 0
            for offset, value in enumerate(values):
                total += value * (version.factor if offset >= begin else WRONG.factor)
                found[partition, offset, value, total] += 1
        return found

    def right_log(self, version: Version = RIGHT) -> Counter[tuple[int, ...]]:
        return Counter(
            (partition, value)
            for partition, values in enumerate(self.log.partitions)
            for value in values
            if version.logs(value)
        )

    def own_keys(self) -> list[str]:
        """Every object that is not a branch's."""
        keys = (info.key for info in self.store.list(""))
        return [key for key in keys if not key.startswith(layout.BRANCHES)]

    def _sinks(self, where: str) -> tuple[PlaceSink, ...]:
        return tuple(
            PlaceSink(
                sink.sink_id,
                sink.key,
                self.places.setdefault(f"{where}/{sink.sink_id}", Place()),
            )
            for sink in self.sinks
        )


def places_of_writes(store: FaultyStore) -> list[int]:
    """The numbers of the operations that changed a store."""
    writes = ("create", "replace", "put", "put_file", "delete")
    return [place for place, (name, _) in enumerate(store.operations, 1) if name in writes]
