"""What a branch may need is kept while it is there, and goes with it; nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from laminar_dagster.core import layout
from laminar_dagster.core.branch import BranchRecord
from laminar_dagster.core.errors import (
    BranchMismatch,
    IntegrityError,
    InvalidConfig,
    UnknownBranch,
)
from laminar_dagster.core.ids import BranchName, EpochNumber, PipelineName, SinkId
from laminar_dagster.core.ports import Clock, ObjectStore
from laminar_dagster.runtime.branches import dropping
from laminar_dagster.runtime.branches.accumulation import find_corrections
from laminar_dagster.runtime.branches.copying import copy_checkpoint
from laminar_dagster.runtime.branches.dropping import drop
from laminar_dagster.runtime.branches.places import table_folder
from laminar_dagster.runtime.branches.promoting import Promoter
from laminar_dagster.runtime.branches.records import (
    find_branches,
    held_since,
    mark_dropped,
    read_branch,
)
from laminar_dagster.runtime.collector import Retention, collect
from laminar_dagster.testing.crash import Crash
from laminar_dagster.testing.faulty_store import Fault, FaultyStore
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.branches.conditions import FIX, RIGHT, Version, World


@pytest.fixture
def world() -> World:
    world = World(MemoryStore())
    world.arrive(1, 2, 3, 4, 5, 6)
    world.run(3)
    return world


def plans(world: World) -> list[int]:
    keys = (layout.parse_epoch_key(info.key) for info in world.store.list(layout.EPOCHS))
    return [key.epoch for key in keys if key and key.is_plan]


def remove(world: World, project: Path) -> int:
    return drop(world.main().checkpoints, project, FIX, world.clock)


def test_collection_keeps_what_a_branch_may_need(world: World, tmp_path: Path) -> None:
    replay = world.fork(1)
    world.arrive(7, 8, 9, 10)
    world.run(3, retain=1)
    assert plans(world) == [1, 2, 3, 4, 5, 6]
    # Everything that the branch is to replay and to be compared with is there.
    assert len([*replay.run()]) == 5
    Promoter(world.main(RIGHT), replay).promote()
    first = {row for row in world.rows("table") if row[0] == 0}
    assert first == {row for row in world.right(begin=2) if row[0] == 0}
    remove(world, tmp_path)
    world.run(1, RIGHT, retain=1)
    assert plans(world) == [8]


def test_a_branch_from_the_beginning_keeps_everything(world: World) -> None:
    replay = world.fork(0)
    world.run(3, retain=1)
    assert plans(world) == [1, 2, 3, 4, 5, 6]
    assert held_since(world.store) == 0
    assert len([*replay.run()]) == 6


def test_a_damaged_record_stops_collection(world: World) -> None:
    world.fork(1)
    key = layout.branch_key(FIX)
    data = world.store.read(key)
    world.store.put(key, data.replace(b"right", b"wrung"))
    keys = [info.key for info in world.store.list("")]
    with pytest.raises(IntegrityError):
        collect(world.main().checkpoints, Retention(1), world.clock.now())
    assert [info.key for info in world.store.list("")] == keys


def test_what_is_nobodys_branch_holds_nothing(world: World) -> None:
    world.store.put("branches/notes.txt", b"")
    world.store.put("branches/stray/checkpoints/x", b"")
    assert [*find_branches(world.store)] == []
    assert held_since(world.store) is None


def test_a_dropped_branch_leaves_nothing_and_takes_nothing_else(
    world: World, tmp_path: Path
) -> None:
    keys = world.own_keys()
    [*world.fork(1).run()]
    [*world.fork(1, name=BranchName("fix2")).run()]
    others = [info.key for info in world.store.list("branches/fix2/")]
    mine = table_folder(tmp_path, PipelineName("memory"), FIX, SinkId("table"))
    theirs = table_folder(tmp_path, PipelineName("memory"), BranchName("fix2"), SinkId("table"))
    for folder in (mine, theirs):
        folder.mkdir(parents=True)
        (folder / "part.parquet").touch()
    assert remove(world, tmp_path) > 10
    assert [info.key for info in world.store.list("branches/")] == others
    assert world.own_keys() == keys
    assert theirs.exists() and not mine.exists() and not mine.parent.exists()
    with pytest.raises(UnknownBranch):
        remove(world, tmp_path)


def test_an_interrupted_drop_is_finished_by_the_next(tmp_path: Path) -> None:
    for place in range(1, 40):
        world = World(MemoryStore())
        world.arrive(1, 2, 3, 4)
        world.run(2)
        [*world.fork(1).run()]
        store = FaultyStore(world.store, {place: Fault.CRASH_AFTER})
        try:
            drop(world.main(store=store).checkpoints, tmp_path, FIX, world.clock)
        except Crash:
            left = [*find_branches(world.store)]
            if left and left[0].dropped_at:
                # Nobody goes on with it; what it needs is kept until it is gone.
                assert held_since(world.store) == 1
                with pytest.raises(BranchMismatch, match="is being dropped"):
                    world.fork(1)
            if left:
                remove(world, tmp_path)
        assert [*world.store.list("branches/")] == []
        assert held_since(world.store) is None
        if not store.is_dead:
            return
    raise AssertionError("it never ended")


def test_what_a_replay_leaves_behind_a_drop_is_nobodys(world: World, tmp_path: Path) -> None:
    """It went on while the branch was dropped, and wrote once more."""
    replay = world.fork(1)
    remove(world, tmp_path)
    copy_checkpoint(
        replay.main, replay.branch.checkpoints, replay.main.winner(EpochNumber(1)).manifest
    )
    with pytest.raises(BranchMismatch, match="has no record, and there are files in branches/fix/"):
        world.fork(1, Version("other", 3))
    assert [*find_branches(world.store)] == []
    world.fork(1, name=BranchName("fix2"))


def test_an_epoch_that_another_version_left_is_not_promoted(world: World, tmp_path: Path) -> None:
    """It was written after the new branch of that name was made."""
    late = world.fork(1)
    remove(world, tmp_path)
    other = Version("other", 3)
    replay = world.fork(1, other)
    [*late.run()]
    with pytest.raises(BranchMismatch, match="epoch 2 that another version has computed"):
        find_corrections(replay.main, replay.record, replay.main.winner(EpochNumber(3)).manifest)
    world.arrive(7, 8)
    world.run(1)
    with pytest.raises(BranchMismatch, match="epoch 2 that another version has computed"):
        Promoter(world.main(other), replay).promote()
    assert plans(world) == [1, 2, 3, 4]


def test_tables_behind_a_link_are_left_alone(world: World, tmp_path: Path) -> None:
    world.fork(1)
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "fix").mkdir(parents=True)
    project = tmp_path / "project"
    (project / "branches").mkdir(parents=True)
    (project / "branches" / "memory").symlink_to(elsewhere)
    with pytest.raises(InvalidConfig, match="symbolic link"):
        remove(world, project)
    assert (elsewhere / "fix").exists()
    assert [each.name for each in find_branches(world.store)] == ["fix"]


def test_a_promotion_that_is_planned_meanwhile_saves_the_branch(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = world.fork(0)

    def plans_first(objects: ObjectStore, name: BranchName, clock: Clock) -> BranchRecord:
        with pytest.raises(Crash):
            Promoter(world.main(RIGHT), replay, on_step=die).promote()
        return mark_dropped(objects, name, clock)

    def die(_epoch: int, _name: str) -> None:
        raise Crash

    monkeypatch.setattr(dropping, "mark_dropped", plans_first)
    with pytest.raises(BranchMismatch, match="is being promoted"):
        remove(world, tmp_path)
    world.run(1, RIGHT)
    assert world.rows("table") == world.right()


@pytest.mark.parametrize("who", ["run", "drop"])
def test_a_drop_that_was_killed_before_it_took_its_mark_back_stops_nobody(
    world: World, tmp_path: Path, who: str
) -> None:
    replay = world.fork(0)

    def mark_and_die(_epoch: int, _name: str) -> None:
        mark_dropped(world.store, FIX, world.clock)
        raise Crash

    with pytest.raises(Crash):
        Promoter(world.main(RIGHT), replay, on_step=mark_and_die).promote()
    assert held_since(world.store) == 0
    if who == "run":
        world.run(1, RIGHT)
    else:
        with pytest.raises(BranchMismatch, match="`laminar promote` finishes that"):
            remove(world, tmp_path)
        # And that it does.
        read_branch(world.store, FIX)
        Promoter(world.main(RIGHT), replay).promote()
    assert world.rows("table") == world.right()
    remove(world, tmp_path)
    assert held_since(world.store) is None


def test_a_branch_that_is_being_dropped_is_not_promoted(world: World) -> None:
    replay = world.fork(0)
    mark_dropped(world.store, FIX, world.clock)
    with pytest.raises(BranchMismatch, match="is being dropped"):
        Promoter(world.main(RIGHT), replay).promote()
    assert plans(world) == [1, 2, 3]


def test_a_branch_that_is_being_promoted_is_needed(world: World, tmp_path: Path) -> None:
    replay = world.fork(0)

    def stop(_epoch: int, name: str) -> None:
        if name == "CommitSinks":
            raise Crash

    with pytest.raises(Crash):
        Promoter(world.main(RIGHT), replay, on_step=stop).promote()
    with pytest.raises(BranchMismatch, match="is being promoted in epoch 4"):
        remove(world, tmp_path)
    world.run(1, RIGHT)
    remove(world, tmp_path)
    assert world.main().checkpoints.winner(EpochNumber(4)).manifest.fingerprint == "right"
