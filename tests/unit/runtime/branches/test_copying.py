"""A checkpoint is copied with every file it names, wherever that was written, or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from laminar_dagster.core import layout
from laminar_dagster.core.branch import BranchSink
from laminar_dagster.core.errors import ChecksumMismatch, ObjectMissing
from laminar_dagster.core.ids import BranchName, EpochNumber, OperatorId, PipelineName
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.runtime.branches.assembly import NEVER
from laminar_dagster.runtime.branches.forking import fork
from laminar_dagster.runtime.branches.records import branch_area
from laminar_dagster.runtime.branches.replaying import Replay
from laminar_dagster.runtime.branches.sources import ReadOnlySource
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.testing.memory_pipeline import TABLE, MemoryEngine, MemorySink, MemoryTable
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.conditions import World

FIX = BranchName("fix")
SINK = BranchSink(sink_id=TABLE, view=OperatorId("totals"), mode="append")


@pytest.fixture
def world() -> World:
    world = World()
    world.log.partitions = [[*range(1, 16)], [*range(20, 30)]]
    return world


def branch_of(main: Pipeline, world: World, table: MemoryTable) -> Pipeline:
    area = branch_area(main.checkpoints.objects, FIX)
    return replace(
        main,
        checkpoints=CheckpointStore(area),
        engine=MemoryEngine(area, world.log),
        sources=tuple(ReadOnlySource(each) for each in main.sources),
        sinks=(MemorySink(table),),
        collect_every=NEVER,
    )


def make(main: Pipeline, branch: Pipeline, epoch: int) -> Replay:
    name, sinks = PipelineName("memory"), (SINK,)
    made = fork(main.checkpoints, branch, FIX, name, EpochNumber(epoch), sinks)
    return Replay(main.checkpoints, branch, made.record)


def manifest_of(main: Pipeline, epoch: int) -> CheckpointManifest:
    return main.checkpoints.winner(EpochNumber(epoch)).manifest


@pytest.mark.parametrize("start", [1, 2, 3, 4])
def test_chains_that_began_in_earlier_checkpoints_are_copied_whole(
    world: World, start: int
) -> None:
    store = MemoryStore()
    main = world.pipeline(store, retain=10)
    for _ in range(5):
        EpochRunner(main).run()
    assert any(part.origin for part in manifest_of(main, 3).operators[0].partitions)
    table = MemoryTable()
    replay = make(main, branch_of(main, world, table), start)
    # Of the pipeline's files the branch needs none from here on.
    state = [info.key for info in store.list(layout.CHECKPOINTS) if "/operators/" in info.key]
    store.delete(state)
    assert [each.report.epoch for each in replay.run()] == [*range(start + 1, 6)]
    begin = {0: 3 * start, 1: 3 * start}
    assert sorted(table.rows) == [row for row in world.log.expected() if row[1] >= begin[row[0]]]


def test_a_damaged_file_is_found_on_its_way(world: World) -> None:
    store = MemoryStore()
    main = world.pipeline(store, retain=10)
    for _ in range(3):
        EpochRunner(main).run()
    part = manifest_of(main, 3).operators[0].partitions[0]
    home = manifest_of(main, 3).origin_of(part).checkpoint_id
    key = layout.checkpoint_key(home, part.path)
    whole = store.read(key)
    branch = branch_of(main, world, MemoryTable())
    for damage, error in ((b"9", ChecksumMismatch), (None, ObjectMissing)):
        store.delete([key])
        if damage:
            store.put(key, damage)
        with pytest.raises(error):
            make(main, branch, 3)
        # It is not taken for whole.
        assert branch.checkpoints.latest() is None
    store.put(key, whole)
    assert [*make(main, branch, 3).run()] == []
    latest = branch.checkpoints.latest()
    assert latest and latest.epoch == 3
