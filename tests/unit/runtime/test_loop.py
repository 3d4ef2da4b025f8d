"""Epochs one after the other, on a clock that no test has to wait for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from laminar_dagster.core.errors import (
    EpochTaken,
    GateFailed,
    LaminarError,
    SinkUnavailable,
    SourceUnavailable,
    WriteOutcomeUnknown,
)
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.ports import Violation
from laminar_dagster.runtime.backlog import Backlog, backlog_of
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.loop import EpochDone, EpochLoop, Event, Retrying, Waiting
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.survey import survey
from laminar_dagster.testing.memory_pipeline import MemoryEngine, MemoryLog
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.conditions import HandClock, World
from tests.unit.runtime.test_backlog import AwaySource


@dataclass
class BusyClock(HandClock):
    """While somebody sleeps, things happen at their time."""

    due: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    begun: float = 0.0

    def __post_init__(self) -> None:
        self.begun = self.monotonic()

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        super().sleep(seconds)
        while self.due and self.due[0][0] <= self.elapsed:
            self.due.pop(0)[1]()

    @property
    def elapsed(self) -> float:
        return self.monotonic() - self.begun


@dataclass
class Stage:
    """A pipeline in a loop, and what the loop told."""

    world: World = field(default_factory=lambda: World(clock=BusyClock()))
    store: MemoryStore = field(default_factory=MemoryStore)
    events: list[Event] = field(default_factory=list)
    stop_after: float = 60.0
    changes: dict[str, object] = field(default_factory=dict)

    @property
    def clock(self) -> BusyClock:
        assert isinstance(self.world.clock, BusyClock)
        return self.world.clock

    @property
    def pipeline(self) -> Pipeline:
        return dataclasses.replace(self.world.pipeline(self.store), **self.changes)  # type: ignore[arg-type]

    def loop(self) -> EpochLoop:
        pipeline = self.pipeline
        return EpochLoop(
            pipeline,
            EpochRunner(pipeline),
            self.events.append,
            lambda: self.clock.elapsed >= self.stop_after,
        )

    def at(self, second: float, act: Callable[[], None]) -> None:
        self.clock.due.append((second, act))
        self.clock.due.sort(key=lambda each: each[0])

    def arrive(self, *values: int) -> Callable[[], None]:
        return lambda: self.world.log.partitions[0].extend(values)

    def reads(self) -> list[int]:
        return [each.manifest.counts.read for each in self.events if isinstance(each, EpochDone)]

    def pauses(self) -> list[float]:
        return [each.seconds for each in self.events if isinstance(each, Retrying)]


@pytest.fixture
def stage() -> Stage:
    return Stage()


# --- a number of epochs, and until caught up ----------------------------------------------------


def test_runs_as_many_epochs_as_asked_for_even_empty_ones(stage: Stage) -> None:
    stage.arrive(1, 2)()
    stage.loop().run_epochs(3)
    assert stage.reads() == [2, 0, 0]


def test_stops_between_epochs_when_asked(stage: Stage) -> None:
    stage.stop_after = 0
    stage.loop().run_epochs(3)
    stage.arrive(1)()
    stage.loop().run_until_caught_up()
    stage.loop().run_forever(timedelta(0))
    assert stage.events == []


def test_catches_up_and_makes_no_empty_epoch(stage: Stage) -> None:
    stage.arrive(1, 2, 3, 4, 5, 6, 7)()
    stage.loop().run_until_caught_up()
    assert stage.reads() == [3, 3, 1]
    stage.loop().run_until_caught_up()
    assert stage.reads() == [3, 3, 1]
    assert sorted(stage.world.table.rows) == stage.world.log.expected()


def test_catches_up_with_at_most_so_many_epochs(stage: Stage) -> None:
    stage.arrive(1, 2, 3, 4, 5, 6, 7)()
    stage.loop().run_until_caught_up(2)
    assert stage.reads() == [3, 3]
    stage.loop().run_until_caught_up(0)
    assert stage.reads() == [3, 3]
    stage.loop().run_until_caught_up(2)
    assert stage.reads() == [3, 3, 1]


def test_without_data_not_even_the_first_epoch_is_made(stage: Stage) -> None:
    stage.loop().run_until_caught_up()
    assert stage.events == []
    assert stage.pipeline.checkpoints.plan(EpochRunner(stage.pipeline).next_epoch()) is None


def test_an_unfinished_epoch_is_finished_first_though_nothing_waits(stage: Stage) -> None:
    stage.arrive(1)()
    stage.world.table.is_away = True
    with pytest.raises(SinkUnavailable):
        stage.loop().run_until_caught_up()
    assert stage.events == []
    stage.world.table.is_away = False
    stage.loop().run_until_caught_up()
    (done,) = stage.events
    assert isinstance(done, EpochDone)
    assert done.report.steps[0].name == "CommitSinks"
    assert stage.world.table.ledger == 1


def test_an_error_of_a_source_is_not_taken_for_the_end_of_the_data(stage: Stage) -> None:
    stage.changes["sources"] = (AwaySource(MemoryLog(), SourceId("away")),)
    with pytest.raises(SourceUnavailable):
        stage.loop().run_until_caught_up()


def test_a_checkpoint_that_was_collected_at_once_is_still_reported(stage: Stage) -> None:
    stage.arrive(*range(20))()
    stage.loop().run_until_caught_up()
    assert sum(stage.reads()) == 20


# --- for ever -------------------------------------------------------------------------------------


def test_waits_for_more_until_the_delay_is_over(stage: Stage) -> None:
    stage.at(10, stage.arrive(1))
    stage.at(13, stage.arrive(2))
    done_at: list[float] = []
    loop = stage.loop()

    def note(event: Event) -> None:
        stage.events.append(event)
        if isinstance(event, EpochDone):
            done_at.append(stage.clock.elapsed)

    loop.on_event = note
    loop.run_forever(timedelta(seconds=5))
    assert stage.reads() == [2]
    (moment,) = done_at
    # Seen within a second of its arrival, and then five seconds later.
    assert 15 <= moment <= 16.5
    kinds = [type(event) for event in stage.events]
    # Nothing waits, something waits, the epoch, nothing waits: and no news in between.
    assert kinds == [Waiting, Waiting, EpochDone, Waiting]


def test_enough_data_does_not_wait(stage: Stage) -> None:
    stage.at(10, stage.arrive(1, 2, 3, 4))
    stage.stop_after = 14
    stage.loop().run_forever(timedelta(hours=1))
    # Four are more than one epoch takes. The rest was seen waiting, and waits on.
    assert stage.reads() == [3]


def test_what_an_epoch_left_has_been_waiting_since_it_was_seen(stage: Stage) -> None:
    stage.at(10, stage.arrive(1, 2, 3, 4))
    stage.stop_after = 40
    ends: list[float] = []
    loop = stage.loop()
    loop.on_event = lambda event: ends.append(stage.clock.elapsed)
    loop.run_forever(timedelta(seconds=20))
    # First look, epoch of three, waiting for the fourth; then its twenty seconds are over.
    assert len(stage.world.table.rows) == 4
    assert any(30 <= moment <= 31.5 for moment in ends)


def test_pauses_grow_while_a_service_is_away_and_shrink_when_it_is_back(stage: Stage) -> None:
    stage.arrive(1)()
    stage.world.table.is_away = True

    def back() -> None:
        stage.world.table.is_away = False

    stage.at(200, back)
    stage.at(300, lambda: setattr(stage.world.table, "is_away", True))
    stage.at(300, stage.arrive(2))
    stage.stop_after = 310
    stage.loop().run_forever(timedelta(0))
    assert stage.pauses()[:7] == [1, 2, 4, 8, 16, 30, 30]
    assert max(stage.pauses()) == 30
    assert stage.reads() == [1]
    # After the service came back, the first pause is short again.
    assert stage.pauses()[-4:] == [1, 2, 4, 8]
    assert sorted(stage.world.table.rows) == stage.world.log.expected()[:1]


@pytest.mark.parametrize(
    "error",
    [
        EpochTaken(1, "another"),
        WriteOutcomeUnknown("epochs/1/plan.json", "no reply"),
        SourceUnavailable("numbers", "it is away"),
    ],
    ids=lambda error: error.kind,
)
def test_another_process_or_a_lost_reply_is_looked_at_again(
    stage: Stage, error: LaminarError, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.arrive(1)()
    loop = stage.loop()
    failures = [error]
    run = loop.runner.run

    def once(*args: object) -> object:
        if failures:
            raise failures.pop()
        return run()

    monkeypatch.setattr(loop.runner, "run", once)
    loop.run_forever(timedelta(0))
    assert [type(event) for event in stage.events][:2] == [Retrying, EpochDone]
    assert stage.reads() == [1]


def test_what_another_process_took_meanwhile_makes_no_empty_epoch(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(pipeline: Pipeline) -> Backlog:
        found = backlog_of(pipeline)
        if not found.is_empty:
            EpochRunner(pipeline).run()
        return found

    monkeypatch.setattr("laminar_dagster.runtime.loop.backlog_of", overtaken)
    stage.arrive(1)()
    stage.loop().run_until_caught_up()
    assert stage.reads() == [1]
    assert survey(CheckpointStore(stage.store)).newest_epoch == 1


def test_what_cannot_be_retried_ends_the_loop(stage: Stage) -> None:
    def refuse(_plan: EpochPlan) -> tuple[Violation, ...]:
        return (Violation("contract", "totals", "no"),)

    stage.arrive(1)()
    stage.changes["engine"] = MemoryEngine(stage.store, stage.world.log, refuse)
    with pytest.raises(GateFailed):
        stage.loop().run_forever(timedelta(0))
    assert stage.world.table.rows == []


def test_a_wish_to_stop_is_noticed_during_a_long_pause(stage: Stage) -> None:
    stage.arrive(1)()
    stage.world.table.is_away = True
    stage.stop_after = 20
    stage.loop().run_forever(timedelta(0))
    # In the middle of the pause of 16 seconds.
    assert stage.pauses() == [1, 2, 4, 8, 16]
    assert stage.clock.elapsed == pytest.approx(20, abs=0.5)


def test_a_runner_tells_of_each_step_as_it_begins(stage: Stage) -> None:
    told: list[tuple[int, str]] = []
    stage.arrive(1)()
    report = EpochRunner(stage.pipeline, lambda epoch, step: told.append((epoch, step))).run()
    assert told == [(1, step.name) for step in report.steps]
