"""The transactions of sinks, followed while epochs are committed; and what sinks say before."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from laminar_dagster.core.errors import (
    CommitOutcomeUnknown,
    GateFailed,
    InvalidConfig,
    LaminarError,
    SinkUnavailable,
    WriteFailed,
)
from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.core.ports import ArrowSchema, StagedOutput
from laminar_dagster.core.transactions import Outcome, TransactionState
from laminar_dagster.runtime import sink_fit
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.transactions import EpochTransactionTracker
from laminar_dagster.testing.memory_pipeline import TABLE, MemorySink, MemoryTable
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.conditions import HandClock, World

FIRST = EpochNumber(1)


@pytest.fixture
def world() -> World:
    world = World()
    world.log.partitions[0].extend([1, 2, 3])
    return world


def test_epoch_tracker_records_transaction_lifecycle() -> None:
    clock = HandClock()
    tracker = EpochTransactionTracker(clock)
    with tracker.follow(TABLE, FIRST) as progress:
        clock.sleep(1)
        progress.begun()
        progress.wrote(5)
        progress.aborted()
        progress.begun()
        progress.wrote(2)
        progress.wrote(3)
        known = tracker.record(TABLE, FIRST)
        assert known is not None
        assert (known.state, known.rows) == (TransactionState.ACTIVE, 5)
        progress.committing()
        clock.sleep(2)
    done = tracker.record(TABLE, FIRST)
    assert done is not None
    assert (done.outcome, done.begin_seconds, done.commit_seconds) == (Outcome.COMMITTED, 1, 2)
    found = tracker.metrics(TABLE)
    assert (found.commits, found.aborts, found.rows_written) == (1, 1, 5)
    assert tracker.record(TABLE, EpochNumber(2)) is None
    assert tracker.metrics(SinkId("other")).commits == 0


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (CommitOutcomeUnknown(TABLE, FIRST, "no reply"), Outcome.UNKNOWN),
        (WriteFailed(TABLE, FIRST, "refused"), Outcome.ABORTED),
        (KeyboardInterrupt(), Outcome.ABORTED),
    ],
)
def test_the_end_of_a_commit_tells_its_outcome(error: BaseException, outcome: Outcome) -> None:
    tracker = EpochTransactionTracker(HandClock())
    with pytest.raises(type(error)), tracker.follow(TABLE, FIRST) as progress:
        progress.begun()
        progress.committing()
        raise error
    record = tracker.record(TABLE, FIRST)
    assert record is not None
    assert record.outcome is outcome


def test_old_records_go_and_a_second_try_at_an_old_epoch_stays() -> None:
    tracker = EpochTransactionTracker(HandClock())
    for epoch in [*range(1, 151), 3]:
        with tracker.follow(TABLE, EpochNumber(epoch)) as progress:
            progress.begun()
            progress.committing()
    assert tracker.record(TABLE, EpochNumber(3))
    assert tracker.record(TABLE, EpochNumber(52))
    assert tracker.record(TABLE, EpochNumber(51)) is None
    assert tracker.metrics(TABLE).commits == 151


def test_a_report_has_the_transactions_of_its_epoch(world: World) -> None:
    pipeline = world.pipeline(MemoryStore())
    world.table.lose_next_reply = True
    report = EpochRunner(pipeline).run()
    # The ledger has it, so it was not asked for twice.
    (record,) = report.transactions
    assert (record.sink_id, record.epoch) == (TABLE, 1)
    assert (record.outcome, record.rows) == (Outcome.UNKNOWN, 3)
    assert EpochRunner(pipeline).run().transactions[0].outcome is Outcome.COMMITTED
    found = pipeline.transactions.metrics(TABLE)
    assert (found.commits, found.commit_failures) == (1, 1)


@dataclass
class Choosy(MemorySink):
    """A sink that has something against an epoch."""

    error: LaminarError | None = None
    asked: list[StagedOutput | None] = field(default_factory=list)

    def check(self, schema: ArrowSchema, staged: StagedOutput | None = None) -> None:
        self.asked.append(staged)
        if self.error:
            raise self.error


@pytest.fixture
def any_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the engine in memory stages has no columns to look at."""
    monkeypatch.setattr(sink_fit, "staged_schema", lambda *_: object())


@pytest.mark.usefixtures("any_columns")
def test_a_sink_that_cannot_take_an_epoch_is_heard_before_it_is_published(world: World) -> None:
    other = Choosy(MemoryTable(), sink_id=SinkId("other"))
    wrong = Choosy(world.table, error=InvalidConfig("sink table", "there is no column `total`"))
    store = MemoryStore()
    pipeline = world.pipeline(store, sinks=(other, wrong))
    with pytest.raises(GateFailed, match="there is no column `total`") as caught:
        EpochRunner(pipeline).run()
    assert (caught.value.check, caught.value.subject) == ("sink fit", "table")
    assert pipeline.checkpoints.prepared(FIRST) is None
    assert (world.table.ledger, other.table.ledger) == (None, None)
    (asked,) = other.asked
    assert asked is not None
    assert asked.entry.files[0].rows == 3
    assert asked.open is not None
    with asked.open(asked.entry.files[0]) as file:
        assert file.read() == asked.read(asked.entry.files[0])
    wrong.error = None
    EpochRunner(pipeline).run()
    assert (world.table.ledger, other.table.ledger) == (1, 1)


@pytest.mark.usefixtures("any_columns")
def test_a_sink_that_cannot_be_asked_holds_back_nobody(world: World) -> None:
    sink = Choosy(world.table, error=SinkUnavailable(TABLE, "asleep"))
    EpochRunner(world.pipeline(MemoryStore(), sinks=(sink,))).run()
    assert world.table.ledger == 1


@dataclass
class Away(MemorySink):
    """A sink that takes its time to say nothing."""

    asked: int = 0

    def ledger(self) -> EpochNumber | None:
        self.asked += 1
        raise SinkUnavailable(self.sink_id, "asleep")


def test_a_sink_that_is_away_is_asked_once_and_holds_back_no_other(world: World) -> None:
    away = Away(MemoryTable(), sink_id=SinkId("away"))
    pipeline = world.pipeline(MemoryStore(), sinks=(away, MemorySink(world.table)))
    EpochRunner(pipeline).prepare(FIRST)
    away.asked = 0
    with pytest.raises(SinkUnavailable, match="asleep"):
        EpochRunner(pipeline).commit(FIRST)
    assert world.table.ledger == 1
    assert away.asked == 1
