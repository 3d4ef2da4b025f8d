"""Branches of a project's pipeline: made, compared and promoted under crashes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from laminar_dagster.core.branch import BranchRecord, BranchSink
from laminar_dagster.core.ids import BranchName, EpochNumber, PipelineName
from laminar_dagster.runtime.branches.comparing import compare_outputs
from laminar_dagster.runtime.branches.forking import fork
from laminar_dagster.runtime.branches.promoting import Promoter
from laminar_dagster.runtime.branches.replaying import Replay
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.testing.crash import Crash
from laminar_dagster.testing.faulty_store import Fault, FaultyStore

Branch = Callable[[str], "Branched"]


@dataclass
class Branched:
    """A branch of the project as it is now."""

    main: CheckpointStore
    pipeline: Pipeline
    name: BranchName
    sinks: tuple[BranchSink, ...]

    def fork(self, epoch: int) -> Replay:
        made = fork(
            self.main,
            self.pipeline,
            self.name,
            PipelineName("clicks"),
            EpochNumber(epoch),
            self.sinks,
        )
        return Replay(self.main, self.pipeline, made.record)


def run(pipeline: Pipeline, epochs: int) -> None:
    for _ in range(epochs):
        EpochRunner(pipeline).run()


def totals(main: CheckpointStore, record: BranchRecord) -> dict[str, tuple[int, int]]:
    removed: Counter[str] = Counter()
    added: Counter[str] = Counter()
    for each in compare_outputs(main, record):
        removed[str(each.sink_id)] += each.removed
        added[str(each.sink_id)] += each.added
    return {name: (removed[name], added[name]) for name in {*removed, *added}}


def crash_until_done(pipeline: Pipeline, replay: Replay) -> int:
    """Promote, killed at one operation of the store after the other; how often it was."""
    for killed, place in enumerate(range(1, 10_000, 80)):
        store = FaultyStore(pipeline.checkpoints.objects, {place: Fault.CRASH_AFTER})
        victim = replace(pipeline, checkpoints=CheckpointStore(store))
        try:
            Promoter(victim, replay).promote()
        except Crash:
            continue
        return killed
    raise AssertionError("it never ended")
