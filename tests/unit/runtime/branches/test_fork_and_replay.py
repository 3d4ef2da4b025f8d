"""A branch replays what its pipeline did, and nobody who reads the pipeline notices."""

from __future__ import annotations

import pytest

from laminar_dagster.core import layout
from laminar_dagster.core.errors import (
    BranchMismatch,
    CannotReplay,
    EpochNotCommitted,
    RetentionExpired,
    UnknownBranch,
)
from laminar_dagster.core.ids import EpochNumber, OperatorId, SinkId
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Grouped, Observable
from laminar_dagster.runtime.branches.comparing import compare_outputs
from laminar_dagster.runtime.branches.records import branch_checkpoints, read_branch
from laminar_dagster.runtime.branches.sources import ReadOnlySource
from laminar_dagster.runtime.survey import survey
from laminar_dagster.testing.crash import Crash
from laminar_dagster.testing.faulty_store import Fault, FaultyStore
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.branches.conditions import (
    FIX,
    LOG,
    RIGHT,
    TABLE,
    WRONG,
    World,
    places_of_writes,
)


def new_world() -> World:
    world = World(MemoryStore())
    world.arrive(1, 2, 3, 4, 5, 6)
    world.run(3)
    return world


@pytest.fixture
def world() -> World:
    return new_world()


@pytest.mark.parametrize("start", [0, 1, 2, 3])
def test_the_epochs_after_the_start_are_replayed(world: World, start: int) -> None:
    keys, acknowledged = world.own_keys(), world.source.acknowledged
    replay = world.fork(start)
    done = [each.report.epoch for each in replay.run()]
    assert done == [*range(start + 1, 4)]
    assert [*replay.run()] == []
    # Two records an epoch of each partition: what was before the start is the pipeline's.
    right = world.right(begin=2 * start)
    assert {*world.rows("table", "fix")} == {row for row in right if row[1] >= 2 * start}
    assert world.own_keys() == keys
    assert world.source.acknowledged == acknowledged
    assert world.rows("table") == world.right(WRONG)


def test_plans_keep_their_ranges_and_their_clock(world: World) -> None:
    [*world.fork(1).run()]
    branch = branch_checkpoints(world.main().checkpoints, FIX)
    for epoch in (EpochNumber(2), EpochNumber(3)):
        ours, theirs = world.main().checkpoints.plan(epoch), branch.plan(epoch)
        assert ours and theirs
        assert (theirs.sources, theirs.clock) == (ours.sources, ours.clock)
        assert (theirs.pipeline, theirs.fingerprint) == ("memory.fix", "right")
        assert {sink.joined_at for sink in theirs.sinks} == {2}


def test_what_the_pipeline_does_meanwhile_is_replayed_later(world: World) -> None:
    replay = world.fork(0)
    assert len([*replay.run()]) == 3
    world.arrive(7, 8)
    world.run(1)
    assert [each.report.epoch for each in replay.run()] == [4]
    assert world.rows("table", "fix") == world.right()


def test_a_source_of_a_branch_is_read_only(world: World) -> None:
    source = ReadOnlySource(world.source)
    before = world.source.acknowledged
    source.acknowledge(())
    assert world.source.acknowledged == before
    assert not isinstance(source, Grouped)
    assert not isinstance(source, Observable)


def test_differences_are_told_by_sink_and_epoch(world: World) -> None:
    replay = world.fork(1)
    [*replay.run()]
    found = {
        (str(each.sink_id), int(each.epoch)): each
        for each in compare_outputs(replay.main, replay.record)
    }
    assert set(found) == {(sink, epoch) for sink in ("table", "log") for epoch in (2, 3)}
    assert all(found["log", epoch].is_same for epoch in (2, 3))
    second = found["table", 2]
    assert (second.rows_main, second.rows_branch, second.removed, second.added) == (2, 2, 2, 2)
    assert second.only_main is not None and second.only_branch is not None
    assert second.only_main.column("total").to_pylist() == [6, 10]
    assert second.only_branch.column("total").to_pylist() == [9, 17]


def test_the_same_version_puts_out_the_same(world: World) -> None:
    replay = world.fork(0, WRONG)
    [*replay.run()]
    assert all(each.is_same for each in compare_outputs(replay.main, replay.record))


# --- interrupted --------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
@pytest.mark.parametrize("start", [0, 2])
def test_a_fork_that_was_killed_at_any_write_is_finished_by_the_next(
    start: int, fault: Fault
) -> None:
    for place in [*_places(start), 10_000]:
        world = new_world()
        keys = world.own_keys()
        watched = FaultyStore(world.store, {place: fault})
        try:
            [*world.fork(start, store=watched).run()]
        except Crash:
            [*world.fork(start).run()]
        assert {*world.rows("table", "fix")} <= {*world.right(begin=2 * start)}
        assert world.places["fix/table"].epochs == [*range(start + 1, 4)]
        assert world.own_keys() == keys
    assert not watched.is_dead


def _places(start: int) -> list[int]:
    world = new_world()
    watched = FaultyStore(world.store, {})
    [*world.fork(start, store=watched).run()]
    found = places_of_writes(watched)
    assert len(found) > 10
    return found


def test_a_half_made_branch_is_finished_by_running_it(world: World) -> None:
    for place in range(1, 60):
        store = FaultyStore(world.store, {place: Fault.CRASH_AFTER})
        try:
            world.fork(2, store=store)
        except Crash:
            if not [*world.store.list(layout.branch_key(FIX))]:
                continue
            record = read_branch(world.store, FIX)
            replay = world.fork(2)
            assert replay.record == record
        break
    assert [each.report.epoch for each in replay.run()] == [3]


# --- refused ------------------------------------------------------------------------------------


def test_a_name_stands_for_one_branch(world: World) -> None:
    world.fork(1)
    assert world.fork(1).record.from_epoch == 1
    with pytest.raises(BranchMismatch, match="was made from epoch 1, not 2"):
        world.fork(2)
    with pytest.raises(BranchMismatch, match=r"computed by version right.*this one is wrong"):
        world.fork(1, WRONG)
    world.sinks = (TABLE,)
    with pytest.raises(BranchMismatch, match="was made when there was a sink log"):
        world.fork(1)
    other = LOG.__class__(sink_id=SinkId("log"), view=OperatorId("all"), mode="upsert", key=("a",))
    world.sinks = (TABLE, other)
    with pytest.raises(BranchMismatch, match="sink log had another view, mode or key"):
        world.fork(1)


def test_another_version_does_not_go_on_with_a_branch(world: World) -> None:
    replay = world.fork(1)
    replay.require_version(world.sinks)
    other = replay.__class__(replay.main, world.branch(WRONG), replay.record)
    with pytest.raises(BranchMismatch):
        other.require_version(world.sinks)


def test_an_epoch_that_is_not_committed_cannot_be_forked() -> None:
    world = World(MemoryStore())
    with pytest.raises(EpochNotCommitted, match="epoch 1"):
        world.fork(0)
    world.arrive(1, 2)
    world.run(1)
    with pytest.raises(EpochNotCommitted, match="epoch 2"):
        world.fork(2)
    assert [*world.store.list(layout.BRANCHES)] == []


def test_what_was_collected_cannot_be_replayed(world: World) -> None:
    world.run(3, retain=2)
    with pytest.raises(CannotReplay, match="epoch 1 cannot be replayed: its plan"):
        world.fork(0)
    with pytest.raises(CannotReplay, match="epoch 2 cannot be replayed: its checkpoint"):
        world.fork(2)
    assert world.fork(5).record.from_epoch == 5


def test_a_plan_that_is_gone_is_named(world: World) -> None:
    replay = world.fork(1)
    world.store.delete([layout.plan_key(EpochNumber(3))])
    with pytest.raises(CannotReplay, match="epoch 3 cannot be replayed: its plan"):
        [*replay.run()]
    assert survey(replay.branch.checkpoints).confirmed == 2


def test_a_source_that_no_longer_holds_a_range_is_named_with_the_epoch(world: World) -> None:
    replay = world.fork(1)

    def lost(plan: SourcePlan) -> None:
        raise RetentionExpired(plan.source_id, "offset 2", "offset 4")

    world.source.verify = lost  # type: ignore[method-assign]
    with pytest.raises(CannotReplay, match="epoch 2 cannot be replayed: source numbers no longer"):
        [*replay.run()]


def test_an_unknown_branch_names_those_there_are(world: World) -> None:
    world.fork(1)
    with pytest.raises(UnknownBranch) as caught:
        read_branch(world.store, FIX.__class__("fax"))
    assert caught.value.advice() == "there is: fix"
    assert RIGHT.name == read_branch(world.store, FIX).fingerprint
