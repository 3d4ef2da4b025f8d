"""A pipeline in memory, put together for tests of the runtime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from laminar_dagster.core.ids import CheckpointId, PipelineName
from laminar_dagster.core.ports import Admission, ObjectStore, Sink
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.collector import Retention
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.testing.memory_pipeline import (
    MemoryEngine,
    MemoryLog,
    MemorySink,
    MemorySource,
    MemoryTable,
)


@dataclass
class HandClock:
    """A clock that a test moves."""

    moment: datetime = field(default_factory=lambda: datetime(2026, 1, 1, tzinfo=UTC))

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return self.moment.timestamp()

    def sleep(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


@dataclass
class Mint:
    """Ids in order, the same in every replay."""

    minted: int = 0

    def __call__(self) -> CheckpointId:
        self.minted += 1
        return CheckpointId.from_parts(1_767_225_600_000 + self.minted, self.minted)


@dataclass
class World:
    """What outlives a process: the log, the tables, the clock."""

    log: MemoryLog = field(default_factory=MemoryLog)
    table: MemoryTable = field(default_factory=MemoryTable)
    clock: HandClock = field(default_factory=HandClock)
    mint: Mint = field(default_factory=Mint)

    def pipeline(
        self,
        store: ObjectStore,
        *,
        sinks: tuple[Sink, ...] | None = None,
        max_records: int | None = 3,
        retain: int = 2,
        grace: timedelta = timedelta(0),
        collect_every: int = 1,
        fingerprint: str = "code",
        mint: Callable[[], CheckpointId] | None = None,
    ) -> Pipeline:
        return Pipeline(
            name=PipelineName("memory"),
            fingerprint=fingerprint,
            checkpoints=CheckpointStore(store),
            engine=MemoryEngine(store, self.log),
            sources=(MemorySource(self.log),),
            sinks=(MemorySink(self.table),) if sinks is None else sinks,
            limits=Admission(max_records=max_records),
            retention=Retention(retain, grace),
            collect_every=collect_every,
            clock=self.clock,
            mint=mint or self.mint,
        )

    def runner(self, store: ObjectStore) -> EpochRunner:
        return EpochRunner(self.pipeline(store))
