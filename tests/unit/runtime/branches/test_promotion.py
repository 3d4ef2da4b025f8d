"""A branch takes its pipeline's place, once, whatever is in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from laminar_dagster.core import layout
from laminar_dagster.core.branch import BranchSink
from laminar_dagster.core.errors import (
    BranchMismatch,
    BufferOverflow,
    CannotRebuild,
    CannotRetract,
    PipelineChanged,
    PipelineMovesOn,
    UnknownBranch,
    UpkeepWaits,
    VersionReplaced,
)
from laminar_dagster.core.ids import BranchName, EpochNumber, OperatorId, SinkId
from laminar_dagster.core.succession import replaced_versions
from laminar_dagster.core.upkeep import Promotion
from laminar_dagster.runtime.branches.dropping import drop
from laminar_dagster.runtime.branches.promoting import Promoter, promoted_at
from laminar_dagster.runtime.branches.promotion import require_level
from laminar_dagster.runtime.branches.replaying import Replay
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.loop import EpochDone
from laminar_dagster.runtime.recovery import RecoveryManager
from laminar_dagster.runtime.steps import plan
from laminar_dagster.runtime.survey import newest_manifest, survey
from laminar_dagster.testing.crash import Crash
from laminar_dagster.testing.faulty_store import Fault, FaultyStore
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.branches.conditions import (
    FIX,
    LOG,
    RIGHT,
    TABLE,
    WRONG,
    PlaceSink,
    Version,
    World,
    places_of_writes,
)
from tests.unit.runtime.conditions import HandClock

MORE = Version("more", 1, lambda value: True)
FEWER = Version("fewer", 1, lambda value: value % 4 == 0)


def new_world() -> World:
    world = World(MemoryStore())
    world.arrive(1, 2, 3, 4, 5, 6)
    world.run(3)
    return world


@pytest.fixture
def world() -> World:
    return new_world()


def promote(world: World, replay: Replay, version: Version = RIGHT) -> EpochNumber:
    return Promoter(world.main(version), replay).promote().epoch


def test_the_sinks_hold_what_the_branch_has_and_the_pipeline_goes_on(world: World) -> None:
    replay = world.fork(0)
    assert promote(world, replay) == 4
    assert world.rows("table") == world.right()
    assert world.rows("log") == world.right_log()
    assert promoted_at(replay.main, FIX) == 4
    # The state is the branch's: the totals go on from there.
    world.arrive(7, 8, 9)
    world.run(2, RIGHT)
    assert world.rows("table") == world.right()
    assert world.places["main/table"].epochs == [1, 2, 3, 4, 5, 6]


def test_the_plan_reads_nothing_and_names_the_branch(world: World) -> None:
    promote(world, world.fork(0))
    planned = world.main().checkpoints.plan(EpochNumber(4))
    assert planned and isinstance(planned.upkeep, Promotion)
    assert (planned.upkeep.branch, planned.fingerprint) == ("fix", "right")
    manifest = world.main().checkpoints.winner(EpochNumber(4)).manifest
    assert manifest.fingerprint == "right"
    assert manifest.counts.read == 0
    assert all(part.origin is None for part in manifest.operators[0].partitions)


def test_promoting_twice_changes_nothing(world: World) -> None:
    replay = world.fork(0)
    promote(world, replay)
    keys = [info.key for info in world.store.list("")]
    again = Promoter(world.main(RIGHT), replay).promote()
    assert (again.epoch, again.report) == (4, None)
    assert [*replay.run()] == []
    assert [info.key for info in world.store.list("")] == keys


def test_a_branch_of_the_same_name_is_not_taken_for_one_that_was_promoted(world: World) -> None:
    replay = world.fork(0)
    promote(world, replay)
    world.store.delete([info.key for info in world.store.list(layout.branch_folder(FIX))])
    for place in ("fix/table", "fix/log"):
        world.places.pop(place)
    again = world.fork(0)
    assert [each.report.epoch for each in again.run()] == [1, 2, 3, 4]
    assert promoted_at(again.main, FIX) is None
    assert promote(world, again) == 5
    assert world.rows("table") == world.right()


def test_branches_from_one_checkpoint_are_promoted_one_after_the_other(world: World) -> None:
    """Neither has replayed anything, so both have the pipeline's own checkpoint."""
    third = Version("third", 3)
    one, other = world.fork(3), world.fork(3, third, name=BranchName("third"))
    assert promote(world, one) == 4
    assert promoted_at(other.main, other.record.name) is None
    assert promote(world, other, third) == 5
    assert (promoted_at(one.main, FIX), promoted_at(one.main, other.record.name)) == (4, 5)
    world.arrive(7)
    with pytest.raises(VersionReplaced):
        world.run(1, RIGHT)
    world.run(1, third)
    assert (0, 6, 7, 21 + 3 * 7) in world.rows("table")


def test_a_branch_made_anew_from_the_same_checkpoint_is_another(
    world: World, tmp_path: Path
) -> None:
    """It has the name, the version and the checkpoint of the one that was promoted."""
    replay = world.fork(3)
    assert promote(world, replay) == 4
    drop(replay.main, tmp_path, FIX, world.clock)
    world.places.pop("fix/table")
    world.places.pop("fix/log")
    world.clock.sleep(1)
    world.sinks = (TABLE, LOG, replace_sink("extra"))
    again = world.fork(3)
    assert promoted_at(again.main, FIX) is None
    assert promote(world, again) == 5
    assert world.places["main/extra"].epochs == [5]


def test_a_branch_made_anew_is_not_what_was_planned(world: World) -> None:
    replay = world.fork(3)

    def stop(_epoch: int, _name: str) -> None:
        raise Crash

    with pytest.raises(Crash):
        Promoter(world.main(RIGHT), replay, on_step=stop).promote()
    world.store.delete([info.key for info in world.store.list(layout.branch_folder(FIX))])
    world.clock.sleep(1)
    world.fork(3)
    with pytest.raises(BranchMismatch, match="was made anew"):
        world.run(1, RIGHT)


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
def test_a_promotion_that_was_killed_at_any_write_is_finished_by_anybody(fault: Fault) -> None:
    for number, place in enumerate([*_places(), 10_000]):
        world = new_world()
        replay = world.fork(0)
        [*replay.run()]
        watched = FaultyStore(world.store, {place: fault})
        try:
            Promoter(world.main(RIGHT, watched), replay).promote()
        except Crash:
            if promoted_at(replay.main, FIX) and number % 2:
                # The pipeline itself, by the next process that has the new version.
                world.run(1, RIGHT)
            promote(world, replay)
        world.arrive(7)
        world.run(1, RIGHT)
        assert world.rows("table") == world.right()
        assert world.rows("log") == world.right_log()
        epochs = world.places["main/table"].epochs
        assert epochs == [*range(1, len(epochs) + 1)]
    assert not watched.is_dead


def _places() -> list[int]:
    world = new_world()
    replay = world.fork(0)
    [*replay.run()]
    watched = FaultyStore(world.store, {})
    Promoter(world.main(RIGHT, watched), replay).promote()
    found = places_of_writes(watched)
    assert len(found) > 8
    return found


# --- what was replaced --------------------------------------------------------------------------


def test_the_version_before_is_refused_however_late_it_comes(world: World) -> None:
    promote(world, world.fork(0))
    with pytest.raises(VersionReplaced, match=r"epoch 5 .*\(wrong\)"):
        world.run(1, WRONG)
    world.arrive(7, 8, 9, 10)
    world.run(2, RIGHT)
    with pytest.raises(VersionReplaced, match="epoch 7"):
        world.run(1, WRONG)
    # Also an epoch that the new version has planned.
    plan(world.main(RIGHT), EpochNumber(7))
    with pytest.raises(VersionReplaced, match="epoch 7"):
        world.run(1, WRONG)
    world.run(1, RIGHT)
    assert world.rows("table") == world.right()


def test_a_version_that_was_never_replaced_may_come(world: World) -> None:
    promote(world, world.fork(0))
    world.run(1, Version("newer", 2))
    with pytest.raises(VersionReplaced):
        world.run(1, WRONG)


def test_the_version_before_comes_back_by_a_branch_of_its_own(world: World) -> None:
    promote(world, world.fork(0))
    back = world.fork(0, WRONG, name=BranchName("back"))
    assert promote(world, back, WRONG) == 5
    assert world.rows("table") == world.right(WRONG)
    world.arrive(7)
    world.run(1, WRONG)
    assert world.rows("table") == world.right(WRONG)
    with pytest.raises(VersionReplaced):
        world.run(1, RIGHT)
    standing = survey(back.main)
    assert replaced_versions(newest_manifest(back.main, standing)) == ("right",)


def test_the_version_before_leaves_a_promotion_alone_at_every_step() -> None:
    """It may know fewer sinks, and would take one that it does not know for gone."""
    steps: list[str] = []
    for stop in range(1, 8):
        world = new_world()
        loaded = world.main(WRONG)
        world.sinks = (TABLE, LOG, replace_sink("extra"))
        replay = world.fork(0)
        taken: list[str] = []

        def count(_epoch: int, name: str, taken: list[str] = taken, stop: int = stop) -> None:
            taken.append(name)
            if len(taken) == stop:
                raise Crash

        try:
            Promoter(world.main(RIGHT), replay, on_step=count).promote()
        except Crash:
            steps.append(taken[-1])
            if survey(replay.main).confirmed < 4:
                with pytest.raises(PipelineChanged, match="to version right, and this one is"):
                    EpochRunner(loaded).run()
        world.run(1, RIGHT)
        assert world.rows("table") == world.rows("extra") == world.right()
    assert {"Compute", "WriteManifest", "CommitSinks", "MoveLatest"} <= {*steps}


KEYED_LOG = structs.replace(LOG, mode="upsert", key=("partition", "value"))


EXTRA = BranchSink(sink_id=SinkId("extra"), view=OperatorId("all"), mode="append")
FEWER_LOGGED = Version("right", 2, FEWER.logs)


@pytest.mark.parametrize(
    ("sinks", "version", "differs", "is_described"),
    [
        ((TABLE, LOG, EXTRA), RIGHT, "extra", True),
        ((TABLE, LOG, EXTRA), RIGHT, "extra", False),
        ((TABLE, KEYED_LOG), FEWER_LOGGED, "log", True),
    ],
    ids=["new", "new, and nothing but names is known", "has a key now"],
)
def test_a_process_with_other_sinks_leaves_a_promotion_alone_at_every_step(
    sinks: tuple[BranchSink, ...], version: Version, differs: str, is_described: bool
) -> None:
    """It computes the same, so only its sinks tell it from the version that is promoted."""
    steps: list[str] = []
    for stop in range(1, 8):
        world = new_world()
        loaded = world.main(version)
        if not is_described:
            loaded = replace(loaded, published=None)
        world.sinks = sinks
        replay = world.fork(0, version)
        taken: list[str] = []

        def count(_epoch: int, name: str, taken: list[str] = taken, stop: int = stop) -> None:
            taken.append(name)
            if len(taken) == stop:
                raise Crash

        try:
            Promoter(world.main(version), replay, on_step=count).promote()
        except Crash:
            steps.append(taken[-1])
            if survey(replay.main).confirmed < 4:
                with pytest.raises(PipelineChanged, match=f"promotion of .* sink {differs}"):
                    EpochRunner(loaded).run()
        world.run(1, version)
        assert world.rows("table") == world.right()
        assert world.rows("log") == world.right_log(version)
        if EXTRA in sinks:
            assert world.rows("extra") == world.right()
    assert {"Compute", "WriteManifest", "CommitSinks", "MoveLatest"} <= {*steps}


# --- refused ------------------------------------------------------------------------------------


def test_rows_that_cannot_be_taken_back_refuse_everything(world: World) -> None:
    both = Version("both", 2, FEWER.logs)
    replay = world.fork(0, both)
    [*replay.run()]
    keys, table = [info.key for info in world.store.list("")], world.rows("table")
    with pytest.raises(CannotRetract, match="sink log: it appends, and holds 2 rows to take back"):
        promote(world, replay, both)
    assert [info.key for info in world.store.list("")] == keys
    assert world.rows("table") == table
    world.arrive(7)
    world.run(1, WRONG)


def test_a_correction_that_is_too_large_refuses_before_anything_is_planned(world: World) -> None:
    main = world.main(RIGHT)
    sinks = [each for each in main.sinks if isinstance(each, PlaceSink)]
    # Enough for every epoch, and not for the correction of three.
    small = tuple(replace(each, max_rows=4) for each in sinks)
    with pytest.raises(BufferOverflow, match="sink table: 7 rows"):
        Promoter(replace(main, sinks=small), world.fork(0)).promote()
    assert main.checkpoints.plan(EpochNumber(4)) is None
    world.arrive(7)
    world.run(1, WRONG)


def test_every_sink_in_the_way_is_told_at_once(world: World) -> None:
    world = World(MemoryStore(), sinks=(LOG, replace_sink("other")))
    world.arrive(1, 2, 3, 4)
    world.run(2)
    both = Version("both", 2, FEWER.logs)
    with pytest.raises(CannotRetract) as caught:
        promote(world, world.fork(0, both), both)
    assert len(caught.value.sinks) == 2
    assert "sink log" in str(caught.value) and "sink other" in str(caught.value)


def replace_sink(name: str) -> BranchSink:
    return BranchSink(sink_id=SinkId(name), view=OperatorId("all"), mode="append")


def test_rows_to_add_are_appended_once(world: World) -> None:
    promote(world, world.fork(1, MORE), MORE)
    # Of epoch 1, which the branch shares, nothing is added.
    assert world.rows("log") == {(0, 2): 1, (0, 3): 1, (0, 4): 1, (0, 5): 1, (0, 6): 1}


def test_from_the_middle_only_what_came_since_is_corrected(world: World) -> None:
    promote(world, world.fork(1))
    assert world.rows("table") == world.right(begin=2)


@pytest.mark.parametrize("start", [0, 1])
def test_a_value_of_an_epoch_that_is_alike_comes_back(start: int) -> None:
    """The epoch after it differs, and has covered it in the pipeline alone."""
    by_partition = structs.replace(LOG, mode="upsert", key=("partition",))
    world = World(MemoryStore(), sinks=(by_partition,))
    world.arrive(1, 2, 3, 4, 5, 6)
    world.run(3)
    assert world.rows("log") == {(0, 6): 1}
    not_six = Version("not six", 1, lambda value: value in (2, 4))
    promote(world, world.fork(start, not_six), not_six)
    assert world.rows("log") == {(0, 4): 1}


def test_a_key_that_may_have_had_an_older_value_is_not_deleted() -> None:
    by_partition = structs.replace(LOG, mode="upsert", key=("partition",))
    world = World(MemoryStore(), sinks=(by_partition,))
    world.arrive(1, 2, 3, 4, 5, 6)
    world.run(3)
    nothing = Version("nothing", 1, lambda value: False)
    with pytest.raises(CannotRetract, match=r"sink log: 1 row by key, .* older value"):
        promote(world, world.fork(1, nothing), nothing)
    assert world.rows("log") == {(0, 6): 1}
    promote(world, world.fork(0, nothing, name=BranchName("all")), nothing)
    assert world.rows("log") == {}


def test_a_key_column_that_had_another_name_refuses_before_anything_is_planned() -> None:
    """What was put out under the old name has a key that is null."""
    world = World(MemoryStore(), sinks=(LOG,))
    world.arrive(1, 2, 3, 4)
    world.run(1)
    world.run(1, Version("renamed", column="worth"))
    keyed = structs.replace(LOG, mode="upsert", key=("partition", "worth"))
    world.sinks = (keyed,)
    last = Version("last", 1, lambda value: value > 2, column="worth")
    with pytest.raises(CannotRetract, match="sink log: its key column `worth` is null in 1 row"):
        promote(world, world.fork(0, last), last)
    assert survey(world.main().checkpoints).newest_epoch == 2
    assert world.main().checkpoints.plan(EpochNumber(3)) is None


def test_a_branch_may_begin_with_a_promotion(world: World) -> None:
    promote(world, world.fork(0))
    world.arrive(7, 8)
    world.run(1, RIGHT)
    third = Version("third", 3)
    replay = world.fork(4, third, name=BranchName("third"))
    assert [each.report.epoch for each in replay.run()] == [5]
    assert promote(world, replay, third) == 6
    totals = [row[3] for row in sorted(world.rows("table")) if row[0] == 0]
    assert totals == [2, 6, 12, 20, 30, 42, 63, 87]
    with pytest.raises(VersionReplaced):
        world.run(1, RIGHT)


def test_a_sink_that_is_new_gets_all_that_the_branch_has(world: World) -> None:
    extra = replace_sink("extra")
    world.sinks = (TABLE, LOG, extra)
    promote(world, world.fork(0))
    assert {row[3] for row in world.rows("extra")} == {row[3] for row in world.right()}
    assert sum(world.rows("extra").values()) == 7
    world.arrive(7)
    world.run(1, RIGHT)
    assert world.rows("extra") == world.right()
    assert world.places["main/extra"].epochs == [4, 5]


def test_a_sink_that_joined_late_is_corrected_from_there_on(world: World) -> None:
    world.sinks = (TABLE, LOG, structs.replace(TABLE, sink_id=SinkId("extra")))
    world.arrive(7, 8)
    world.run(1)
    assert world.rows("extra") == {(0, 6, 7, 28): 1, (0, 7, 8, 36): 1, (1, 1, 7, 8): 1}
    promote(world, world.fork(0))
    assert world.rows("extra") == {(0, 6, 7, 56): 1, (0, 7, 8, 72): 1, (1, 1, 7, 16): 1}


def test_a_key_that_the_branch_wrote_before_a_sink_joined_is_put_not_deleted() -> None:
    """The pipeline has put it out too late."""
    by_partition = structs.replace(LOG, mode="upsert", key=("partition",))
    world = World(MemoryStore(), sinks=(TABLE,))
    world.arrive(1, 2, 3, 4, 5, 6)
    world.run(2)
    world.sinks = (TABLE, by_partition)
    world.run(1)
    assert world.rows("log") == {(0, 6): 1}
    early = Version("early", 1, lambda value: value == 4)
    promote(world, world.fork(0, early), early)
    assert world.rows("log") == world.right_log(early) == {(0, 4): 1}


# --- a pipeline that runs -----------------------------------------------------------------------


def racing(world: World, replay: Replay, times: int) -> Replay:
    """A replay during which the pipeline commits one more epoch, so many times."""
    left = [times]

    class Runs(Replay):
        def run(self) -> Iterator[EpochDone]:
            yield from super().run()
            if left[0]:
                left[0] -= 1
                world.run(1, WRONG)

    return Runs(replay.main, replay.branch, replay.record)


def test_a_pipeline_that_goes_on_is_caught_up_with(world: World) -> None:
    replay = racing(world, world.fork(0), 2)
    assert promote(world, replay) == 6
    assert world.rows("table") == world.right()


def test_an_epoch_that_comes_between_the_last_look_and_the_plan(world: World) -> None:
    """The corrections are found by then, and would be one epoch short."""
    replay = world.fork(0)
    left = [1]

    def overtake() -> None:
        if left[0]:
            left[0] -= 1
            world.run(1, WRONG)

    main = world.main(RIGHT)
    sinks = [each for each in main.sinks if isinstance(each, PlaceSink)]
    asked = tuple(replace(each, on_check=overtake) for each in sinks)
    assert Promoter(replace(main, sinks=asked), replay).promote().epoch == 5
    assert world.rows("table") == world.right()


def test_a_pipeline_that_is_always_faster_has_to_be_paused(world: World) -> None:
    with pytest.raises(PipelineMovesOn) as caught:
        promote(world, racing(world, world.fork(0), 100))
    assert "pause the pipeline" in caught.value.advice()
    assert world.rows("table") == world.right(WRONG)


def test_an_epoch_on_the_way_is_waited_for_and_then_named(world: World) -> None:
    replay = world.fork(0)
    plan(world.main(WRONG), EpochNumber(4))
    with pytest.raises(UpkeepWaits, match="epoch 4"):
        promote(world, replay)
    world.run(1, WRONG)
    assert promote(world, replay) == 5
    assert world.rows("table") == world.right()


def test_an_epoch_that_was_waited_for_once_is_not_what_is_told_in_the_end(world: World) -> None:
    replay = world.fork(0)
    plan(world.main(WRONG), EpochNumber(4))

    class Finishes(HandClock):
        def sleep(self, seconds: float) -> None:
            world.run(1, WRONG)

    main = replace(world.main(RIGHT), clock=Finishes())
    with pytest.raises(PipelineMovesOn):
        Promoter(main, racing(world, replay, 100)).promote()


def test_a_branch_that_is_gone_is_named(world: World) -> None:
    replay = world.fork(0)
    [*replay.run()]
    stopped = [0]

    def stop(_epoch: int, name: str) -> None:
        stopped[0] += 1
        raise Crash

    with pytest.raises(Crash):
        Promoter(world.main(RIGHT), replay, on_step=stop).promote()
    world.store.delete([info.key for info in world.store.list(layout.branch_folder(FIX))])
    with pytest.raises(UnknownBranch):
        EpochRunner(world.main(RIGHT)).run()


def test_a_file_of_a_promotion_is_made_again_as_long_as_its_branch_is_there(world: World) -> None:
    promote(world, world.fork(0))
    manifest = world.main().checkpoints.winner(EpochNumber(4)).manifest
    path = manifest.operators[0].partitions[0].path
    key = layout.checkpoint_key(manifest.checkpoint_id, path)
    data = world.store.read(key)
    world.store.delete([key])
    RecoveryManager(world.main(RIGHT)).recover()
    assert world.store.read(key) == data
    world.store.delete([key])
    world.store.delete([info.key for info in world.store.list(layout.branch_folder(FIX))])
    before = [info.key for info in world.store.list("")]
    for dry_run in (True, False):
        with pytest.raises(CannotRebuild, match="fix"):
            RecoveryManager(world.main(RIGHT)).recover(dry_run=dry_run)
    assert [info.key for info in world.store.list("")] == before


def test_another_checkpoint_than_the_one_that_was_planned_is_not_taken(world: World) -> None:
    replay = world.fork(0)
    [*replay.run()]
    world.run(1, WRONG)
    branch = newest_manifest(replay.branch.checkpoints, survey(replay.branch.checkpoints))
    parent = newest_manifest(replay.main, survey(replay.main))
    assert branch and parent
    with pytest.raises(BranchMismatch, match="is at epoch 3, and the pipeline at 4"):
        require_level(replay.record, branch, parent)


def test_a_store_that_is_opened_anew_tells_the_same(world: World) -> None:
    replay = world.fork(0)
    promote(world, replay)
    assert promoted_at(CheckpointStore(world.store), FIX) == 4
