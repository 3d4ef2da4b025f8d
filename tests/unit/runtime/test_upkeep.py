"""An epoch of upkeep: planned on purpose, and from then on an epoch like any other."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest
from msgspec import structs

from laminar_dagster.core.definition import OperatorDefinition, PipelineDefinition
from laminar_dagster.core.errors import (
    InvalidState,
    NoCheckpointAvailable,
    PipelineChanged,
    SinkUnavailable,
    StateIncompatible,
    UnknownBranch,
    UpkeepFenced,
    UpkeepWaits,
)
from laminar_dagster.core.ids import (
    BranchName,
    CheckpointId,
    EpochNumber,
    OperatorId,
    PipelineName,
    SinkId,
)
from laminar_dagster.core.manifest import CheckpointManifest, RecordCounts
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Admission, ObjectStore
from laminar_dagster.core.upkeep import Promotion, Rescale
from laminar_dagster.runtime import steps
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.loop import EpochLoop
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.rerun import rerun
from laminar_dagster.runtime.survey import newest_manifest, survey
from laminar_dagster.runtime.upkeep import plan_upkeep
from laminar_dagster.testing.crash import Crash
from laminar_dagster.testing.faulty_store import Fault, FaultyStore
from laminar_dagster.testing.memory_pipeline import MemorySink, MemorySource, MemoryTable
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.conditions import World

RESCALE = Rescale(buckets_before=8, buckets_after=4)
STEPS = ["Compute", "Gate", "Prepare", "WriteManifest", "CommitSinks", "MoveLatest"]


class DeafSource(MemorySource):
    """Must not be asked anything."""

    def plan(self, *_arguments: object) -> SourcePlan:
        raise AssertionError("upkeep asked a source for a plan")

    def verify(self, plan: SourcePlan) -> None:
        raise AssertionError("upkeep asked a source whether it is still the same")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def world() -> World:
    world = World()
    world.log.partitions = [[1, 2, 3, 4], [10, 20]]
    return world


def newest(pipeline: Pipeline) -> CheckpointManifest:
    found = newest_manifest(pipeline.checkpoints, survey(pipeline.checkpoints))
    assert found
    return found


def rescale(pipeline: Pipeline) -> CheckpointManifest:
    EpochRunner(pipeline).run(plan_upkeep(pipeline, RESCALE))
    return newest(pipeline)


def finish(world: World, store: ObjectStore) -> None:
    """An ordinary process that comes along afterwards."""
    runner = world.runner(store)
    EpochLoop(world.pipeline(store), runner).run_until_caught_up()
    assert sorted(world.table.rows) == world.log.expected()
    assert world.table.epochs == [*range(1, len(world.table.epochs) + 1)]


# --- what it does -------------------------------------------------------------------------------


def test_it_takes_the_same_steps_and_reads_nothing(world: World, store: MemoryStore) -> None:
    EpochRunner(world.pipeline(store)).run()
    before = newest(world.pipeline(store))
    world.log.partitions[0].append(5)
    pipeline = dataclasses.replace(world.pipeline(store), sources=(DeafSource(world.log),))
    epoch = plan_upkeep(pipeline, RESCALE)
    report = EpochRunner(pipeline).run(epoch)
    assert [step.name for step in report.steps][: len(STEPS)] == STEPS
    after = newest(pipeline)
    assert (after.epoch, after.counts) == (2, RecordCounts())
    assert [each.positions for each in after.sources] == [each.positions for each in before.sources]
    assert [each.files for each in after.sinks] == [()]
    assert world.table.epochs == [1, 2]
    finish(world, store)


def test_its_plan_follows_from_the_last_one(world: World, store: MemoryStore) -> None:
    late = MemorySink(MemoryTable(), SinkId("late"))
    pipeline = world.pipeline(store)
    EpochRunner(pipeline).run()
    previous = pipeline.checkpoints.plan(EpochNumber(1))
    world.clock.moment -= timedelta(hours=1)
    both = dataclasses.replace(pipeline, sinks=(*pipeline.sinks, late))
    planned = both.checkpoints.plan(plan_upkeep(both, RESCALE))
    assert previous and planned
    assert planned.clock == previous.clock, "the logical clock never runs backwards"
    assert planned.sources[0].identity == previous.sources[0].identity
    assert [part.start for part in planned.sources[0].ranges] == [
        part.end for part in previous.sources[0].ranges
    ]
    assert all(part.is_empty for part in planned.sources[0].ranges)
    assert [(each.sink_id, each.joined_at) for each in planned.sinks] == [("table", 1)]
    EpochRunner(both).run(planned.epoch)
    EpochRunner(both).run()
    assert late.table.epochs == [3], "a new sink takes part from the next ordinary epoch on"


def test_it_can_be_run_again_and_compared(world: World, store: MemoryStore) -> None:
    pipeline = world.pipeline(store)
    EpochRunner(pipeline).run()
    epoch = rescale(pipeline).epoch
    assert rerun(pipeline, epoch).is_identical


def test_a_branch_that_is_not_there_cannot_be_promoted(world: World, store: MemoryStore) -> None:
    pipeline = world.pipeline(store)
    EpochRunner(pipeline).run()
    manifest = newest(pipeline)
    promotion = Promotion(
        branch=BranchName("trial"),
        checkpoint_id=manifest.checkpoint_id,
        manifest_checksum="0" * 64,
    )
    epoch = plan_upkeep(pipeline, promotion)
    with pytest.raises(UnknownBranch, match="trial"):
        EpochRunner(pipeline).run(epoch)
    # It is no work for an engine.
    planned = pipeline.checkpoints.plan(epoch)
    assert planned
    with pytest.raises(InvalidState, match="promote"):
        pipeline.engine.compute(planned, manifest, manifest.checkpoint_id)


# --- when it waits ------------------------------------------------------------------------------


def test_it_needs_a_checkpoint(world: World, store: MemoryStore) -> None:
    with pytest.raises(NoCheckpointAvailable):
        plan_upkeep(world.pipeline(store), RESCALE)


def test_it_waits_for_an_epoch_that_is_planned(world: World, store: MemoryStore) -> None:
    pipeline = world.pipeline(store)
    EpochRunner(pipeline).run()
    steps.plan(pipeline, EpochNumber(2))
    with pytest.raises(UpkeepWaits) as caught:
        plan_upkeep(pipeline, RESCALE)
    assert caught.value.behind == 2
    finish(world, store)
    assert rescale(pipeline).epoch == len(world.table.epochs)


def test_it_waits_for_every_sink(world: World, store: MemoryStore) -> None:
    pipeline = world.pipeline(store)
    EpochRunner(pipeline).run()
    world.table.is_away = True
    with pytest.raises(SinkUnavailable):
        EpochRunner(pipeline).run()
    with pytest.raises(UpkeepWaits):
        plan_upkeep(pipeline, RESCALE)
    world.table.is_away = False
    EpochRunner(pipeline).run()
    assert rescale(pipeline).epoch == 3


def test_another_upkeep_on_the_way_is_finished_first(world: World, store: MemoryStore) -> None:
    pipeline = world.pipeline(store)
    EpochRunner(pipeline).run()
    plan_upkeep(pipeline, RESCALE)
    with pytest.raises(UpkeepWaits):
        plan_upkeep(pipeline, Rescale(buckets_before=8, buckets_after=5))


# --- races and crashes --------------------------------------------------------------------------


class Overtaken(MemoryStore):
    """Somebody else's plan arrives just before ours."""

    def __init__(self) -> None:
        super().__init__()
        self.rival: Pipeline | None = None
        self.upkeep: Rescale | None = None

    def create(self, key: str, data: bytes) -> None:
        rival, self.rival = self.rival if key.endswith("plan.json") else None, None
        if rival and self.upkeep:
            plan_upkeep(rival, self.upkeep)
        elif rival:
            steps.plan(rival, EpochNumber(2))
        super().create(key, data)


def test_a_plan_of_another_process_fences_it(world: World) -> None:
    store = Overtaken()
    pipeline = world.pipeline(store)
    EpochRunner(pipeline).run()
    store.rival = world.pipeline(store)
    with pytest.raises(UpkeepFenced, match="epoch 2 first: it reads records") as caught:
        plan_upkeep(pipeline, RESCALE)
    assert "stop whatever runs" in caught.value.advice()
    finish(world, store)


def test_two_that_want_the_same_do_it_once(world: World) -> None:
    store = Overtaken()
    pipeline = world.pipeline(store)
    EpochRunner(pipeline).run()
    store.rival, store.upkeep = world.pipeline(store), RESCALE
    assert plan_upkeep(pipeline, RESCALE) == 2
    finish(world, store)


def test_an_ordinary_process_that_comes_second_carries_it_out(
    world: World, store: MemoryStore
) -> None:
    pipeline = world.pipeline(store)
    EpochRunner(pipeline).run()
    epoch = plan_upkeep(pipeline, RESCALE)
    report = world.runner(store).run()
    assert (report.epoch, report.steps[0].name) == (epoch, "Compute")
    assert newest(pipeline).counts == RecordCounts()
    finish(world, store)


@pytest.mark.parametrize("second", ["the same command", "an ordinary process"])
@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
def test_a_crash_at_any_operation_is_recovered_from(fault: Fault, second: str) -> None:
    place, crashes = 0, 0
    while True:
        place += 1
        world, store = World(), MemoryStore()
        world.log.partitions = [[1, 2, 3, 4], [10, 20]]
        EpochRunner(world.pipeline(store)).run()
        dying = FaultyStore(store, {place: fault})
        try:
            rescale(world.pipeline(dying))
            break
        except Crash:
            crashes += 1
        checkpoints = world.pipeline(store).checkpoints
        was_planned = checkpoints.plan(EpochNumber(2)) is not None
        was_done = survey(checkpoints).confirmed == 2
        if second == "the same command":
            EpochRunner(world.pipeline(store)).run(plan_upkeep(world.pipeline(store), RESCALE))
        finish(world, store)
        plans = [checkpoints.plan(EpochNumber(each)) for each in world.table.epochs]
        done = [each.epoch for each in plans if each and each.upkeep == RESCALE]
        if second == "an ordinary process":
            assert done == ([2] if was_planned else [])
        else:
            # What is unfinished is gone on with; what is done, a second command does once more.
            assert done == ([2, 3] if was_done else [2])
    assert crashes > 20


# --- whose pipeline it is -----------------------------------------------------------------------


def definition(buckets: int, **changes: object) -> PipelineDefinition:
    operator = OperatorDefinition(
        operator_id=OperatorId("totals"),
        time="ts",
        size_micros=1,
        slide_micros=1,
        keys=("k",),
        partials=("count(*)",),
        reads={},
        columns={},
    )
    return PipelineDefinition(
        version=1,
        pipeline=PipelineName("memory"),
        fingerprint="-".join([str(buckets), *changes]),
        buckets=buckets,
        operators=(structs.replace(operator, **changes),),
    )


def with_definition(world: World, store: ObjectStore, found: PipelineDefinition) -> Pipeline:
    return dataclasses.replace(
        world.pipeline(store), definition=found, fingerprint=found.fingerprint
    )


def test_only_the_number_of_buckets_is_let_through(world: World, store: MemoryStore) -> None:
    EpochRunner(with_definition(world, store, definition(8))).run()
    fewer = with_definition(world, store, definition(4))
    with pytest.raises(StateIncompatible) as caught:
        EpochRunner(fewer).run()
    assert "laminar rescale" in caught.value.advice()
    other = with_definition(world, store, definition(4, time="at"))
    with pytest.raises(StateIncompatible, match="event time") as caught:
        plan_upkeep(other, RESCALE)
    assert "laminar rescale" not in caught.value.advice()
    assert survey(other.checkpoints).unfinished == ()
    assert rescale(fewer).fingerprint == fewer.fingerprint
    EpochRunner(fewer).run()


def test_a_pipeline_that_does_not_fit_refuses_by_name(world: World, store: MemoryStore) -> None:
    old = with_definition(world, store, definition(8))
    EpochRunner(old).run()
    with pytest.raises(PipelineChanged, match="to 4 buckets, and this one has 8"):
        plan_upkeep(old, RESCALE)
    fewer = with_definition(world, store, definition(4))
    plan_upkeep(fewer, RESCALE)
    with pytest.raises(PipelineChanged, match="rescale from 8 to 4 buckets, and this one has 8"):
        EpochRunner(old).run()
    EpochRunner(fewer).run()
    with pytest.raises(StateIncompatible, match="spread over 4 buckets, not 8"):
        EpochRunner(old).run()


def test_a_source_that_is_gone_from_the_pipeline_is_left_out(
    world: World, store: MemoryStore
) -> None:
    pipeline = world.pipeline(store)
    EpochRunner(pipeline).run()
    planned = pipeline.checkpoints.plan(
        plan_upkeep(dataclasses.replace(pipeline, sources=()), RESCALE)
    )
    assert planned and planned.sources == ()


def test_limits_do_not_matter(world: World, store: MemoryStore) -> None:
    pipeline = dataclasses.replace(world.pipeline(store), limits=Admission(max_records=1))
    EpochRunner(pipeline).run()
    assert isinstance(rescale(pipeline).checkpoint_id, CheckpointId)
    finish(world, store)
