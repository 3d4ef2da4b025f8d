"""A process that is paused while others finish its epoch, go on, and collect what it stands on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from laminar_dagster.core import layout
from laminar_dagster.core.errors import ComputeFailed, EpochTaken, ObjectMissing
from laminar_dagster.core.ids import CheckpointId, EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.ports import EpochOutput
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.testing.memory_pipeline import MemoryEngine
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.conditions import World


@dataclass
class PausedEngine(MemoryEngine):
    """Something happens before it computes epoch 4."""

    meanwhile: Callable[[], None] = lambda: None

    def compute(
        self, plan: EpochPlan, parent: CheckpointManifest | None, attempt: CheckpointId
    ) -> EpochOutput:
        if plan.epoch == 4:
            self.meanwhile()
        return super().compute(plan, parent, attempt)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def world() -> World:
    world = World()
    world.clock.moment = world.clock.moment.replace(year=2040)
    world.log.partitions = [list(range(200)), list(range(200))]
    return world


def paused(world: World, store: MemoryStore, meanwhile: Callable[[], None]) -> EpochRunner:
    engine = PausedEngine(store, world.log, meanwhile=meanwhile)
    return EpochRunner(replace(world.pipeline(store), engine=engine))


def test_a_base_that_others_have_collected_is_no_damage(world: World, store: MemoryStore) -> None:
    others = world.runner(store)
    for _ in range(3):
        others.run()

    def go_on() -> None:
        for _ in range(8):
            others.run()

    with pytest.raises(EpochTaken) as caught:
        paused(world, store, go_on).run(EpochNumber(4))
    assert caught.value.epoch == 4
    assert others.run().epoch == 12


def test_a_base_that_is_lost_is_damage(world: World, store: MemoryStore) -> None:
    others = world.runner(store)
    for _ in range(3):
        others.run()

    def lose_state() -> None:
        keys = [info.key for info in store.list(layout.CHECKPOINTS)]
        store.delete([key for key in keys if "/operators/" in key or "totals" in key])

    with pytest.raises(ObjectMissing):
        paused(world, store, lose_state).run(EpochNumber(4))


def test_a_file_that_an_executor_misses_is_told_from_a_failure(
    world: World, store: MemoryStore
) -> None:
    others = world.runner(store)
    for _ in range(3):
        others.run()

    def fail() -> None:
        raise ComputeFailed("the epoch's job", "a file is missing")

    with pytest.raises(ComputeFailed):
        paused(world, store, fail).run(EpochNumber(4))

    def go_on_and_fail() -> None:
        others.run()
        fail()

    with pytest.raises(EpochTaken):
        paused(world, store, go_on_and_fail).run(EpochNumber(4))
