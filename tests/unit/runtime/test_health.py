"""How the sources of a pipeline do, and whom it is worth asking."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from laminar_dagster.core.errors import AuthFailed, LaminarError, SourceReplaced, SourceUnavailable
from laminar_dagster.core.health import HealthReport
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.offsets import KafkaPosition, SourcePosition
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Admission, Observable, Source
from laminar_dagster.runtime.backlog import measure
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.figures import figures_of
from laminar_dagster.runtime.health import ANSWERS, ask_health
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.testing.memory_pipeline import MemorySource
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.conditions import World
from tests.unit.runtime.observed import ObservedSource, ReadingEngine
from tests.unit.runtime.test_backlog import AwaySource


@pytest.fixture
def world() -> World:
    world = World()
    world.log.partitions = [[1, 2, 3, 4], [10, 20]]
    return world


def manifest_after_one_epoch(world: World) -> CheckpointManifest:
    return newest(world.pipeline(MemoryStore()))


def newest(pipeline: Pipeline) -> CheckpointManifest:
    EpochRunner(pipeline).run()
    latest = pipeline.checkpoints.latest()
    assert latest
    found = pipeline.checkpoints.manifest(latest.checkpoint_id)
    assert found
    return found


def ask(world: World, source: Source, parent: CheckpointManifest | None = None) -> HealthReport:
    backlog = measure([source], parent, None, world.clock.now())
    return ask_health([source], parent, backlog)[source.source_id]


class Refused(ObservedSource):
    """Plans nothing any more, and can still be asked."""

    error: LaminarError

    def plan(
        self,
        previous: SourcePlan | None,
        start: tuple[SourcePosition, ...],
        limits: Admission,
        clock: datetime,
    ) -> SourcePlan:
        raise self.error


def test_only_a_source_that_can_tell_is_asked(world: World) -> None:
    assert not isinstance(MemorySource(world.log), Observable)
    assert isinstance(ObservedSource(world.log), Observable)
    assert ask(world, MemorySource(world.log)) is ANSWERS
    away = ask(world, AwaySource(world.log))
    assert (away.healthy, away.total_lag) == (False, None)
    assert "no route to host" in away.message


def test_it_is_asked_from_where_the_next_epoch_begins(world: World) -> None:
    source = ObservedSource(world.log)
    assert ask(world, source).total_lag == 6
    report = ask(world, source, manifest_after_one_epoch(world))
    assert report.total_lag == 1
    assert [each.lag for each in report.partitions] == [1, 0]
    assert source.asked[-1] == (
        KafkaPosition(topic="numbers", partition=0, offset=3),
        KafkaPosition(topic="numbers", partition=1, offset=2),
    )


@pytest.mark.parametrize(
    "error", [SourceUnavailable("numbers", "no route"), AuthFailed("numbers", "no such user")]
)
def test_one_that_has_just_not_answered_is_not_asked_again(
    world: World, error: LaminarError
) -> None:
    source = Refused(world.log)
    source.error = error
    report = ask(world, source)
    assert (report.healthy, report.error, source.asked) == (False, error, [])


def test_one_that_answers_and_cannot_go_on_tells_both(world: World) -> None:
    """For example when records were deleted before they were read."""
    source = Refused(world.log)
    source.error = SourceReplaced("numbers", "a log", "another")
    report = ask(world, source, manifest_after_one_epoch(world))
    assert (report.healthy, report.error) == (False, source.error)
    assert report.message == str(source.error)
    assert report.total_lag == 1


def test_the_figures_of_an_epoch(world: World) -> None:
    (silent,) = figures_of(manifest_after_one_epoch(world))
    assert (silent.reading, silent.fetched_per_second, silent.decoded_per_second) == (None,) * 3
    store, world = MemoryStore(), World(log=world.log)
    (figures,) = figures_of(
        newest(replace(world.pipeline(store), engine=ReadingEngine(store, world.log)))
    )
    assert (figures.dead_letters, figures.late, figures.schema_ids) == (1, 2, (7, 9))
    # Five records in half a second of fetching and a quarter of decoding.
    assert (figures.fetched_per_second, figures.decoded_per_second) == (10.0, 20.0)
