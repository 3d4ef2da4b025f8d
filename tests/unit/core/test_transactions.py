"""The life of a sink's transaction."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from laminar_dagster.core.errors import InvalidState
from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.core.transactions import (
    EpochTransactionRecord,
    Outcome,
    TransactionalSinkMetrics,
    TransactionState,
)

ASKED = EpochTransactionRecord(SinkId("table"), EpochNumber(7), asked_at=10.0)
OPEN = ASKED.begun(10.5)
SENT = OPEN.wrote(3).committing(12.0)
ABORTING = OPEN.wrote(3).aborting(12.0)
Change = Callable[[EpochTransactionRecord], EpochTransactionRecord]

BEGIN: Change = lambda record: record.begun(20.0)  # noqa: E731
WRITE: Change = lambda record: record.wrote(1)  # noqa: E731
COMMIT: Change = lambda record: record.committing(20.0)  # noqa: E731
ABORT: Change = lambda record: record.aborting(20.0)  # noqa: E731
CONFIRM: Change = lambda record: record.confirmed(20.0)  # noqa: E731
FAIL: Change = lambda record: record.failed(20.0)  # noqa: E731


def test_transaction_state_transitions_idle_to_active() -> None:
    assert ASKED.state is TransactionState.IDLE
    assert OPEN.state is TransactionState.ACTIVE
    assert OPEN.begin_seconds == 0.5


def test_transaction_state_transitions_active_to_committing() -> None:
    assert SENT.state is TransactionState.COMMITTING
    done = SENT.confirmed(12.25)
    assert (done.state, done.outcome, done.rows) == (TransactionState.IDLE, Outcome.COMMITTED, 3)
    assert done.commit_seconds == 0.25


def test_transaction_state_transitions_active_to_aborting() -> None:
    assert ABORTING.state is TransactionState.ABORTING
    done = ABORTING.confirmed(12.25)
    assert (done.state, done.outcome) == (TransactionState.IDLE, Outcome.ABORTED)
    assert done.commit_seconds is None


def test_a_commit_that_is_refused_is_rolled_back() -> None:
    assert SENT.aborting(13.0).confirmed(13.1).outcome is Outcome.ABORTED


@pytest.mark.parametrize("record", [SENT, ABORTING])
def test_without_a_reply_the_outcome_is_unknown_until_another_begins(
    record: EpochTransactionRecord,
) -> None:
    lost = record.failed(42.0)
    assert (lost.state, lost.outcome) == (TransactionState.FAILED, Outcome.UNKNOWN)
    again = lost.begun(50.0)
    assert (again.rows, again.outcome, again.completed_at) == (0, None, None)


@pytest.mark.parametrize(
    ("record", "change"),
    [
        pytest.param(OPEN, BEGIN, id="begin_while_active_returns_error"),
        pytest.param(ASKED, COMMIT, id="commit_while_idle_returns_error"),
        pytest.param(SENT, BEGIN, id="begin while committing"),
        pytest.param(SENT, WRITE, id="write while committing"),
        pytest.param(SENT, COMMIT, id="commit twice"),
        pytest.param(ASKED, WRITE, id="write while idle"),
        pytest.param(ASKED, ABORT, id="abort while idle"),
        pytest.param(ABORTING, COMMIT, id="commit while aborting"),
        pytest.param(OPEN, CONFIRM, id="a reply to nothing"),
        pytest.param(OPEN, FAIL, id="no reply to nothing"),
        pytest.param(SENT.failed(1.0), COMMIT, id="commit after no reply"),
    ],
)
def test_transaction_state_wrong_order(record: EpochTransactionRecord, change: Change) -> None:
    with pytest.raises(InvalidState, match="sink table, epoch 7") as caught:
        change(record)
    assert caught.value.state == record.state.value


def test_metrics_increment_on_commit() -> None:
    found = TransactionalSinkMetrics().with_finished(SENT.confirmed(12.25))
    assert (found.commits, found.aborts, found.commit_failures) == (1, 0, 0)
    assert found.rows_written == 3


def test_metrics_increment_on_abort() -> None:
    found = TransactionalSinkMetrics().with_finished(ABORTING.confirmed(12.25))
    assert (found.commits, found.aborts, found.commit_failures) == (0, 1, 0)
    assert found.rows_written == 0


def test_metrics_commit_latency_tracked() -> None:
    found = TransactionalSinkMetrics()
    assert found.mean_commit_seconds == 0.0
    for took in (0.25, 0.75):
        found = found.with_finished(SENT.confirmed(12.0 + took))
    assert (found.mean_commit_seconds, found.max_commit_seconds) == (0.5, 0.75)


def test_metrics_of_a_lost_reply_and_of_an_epoch_that_was_there() -> None:
    found = TransactionalSinkMetrics().with_finished(SENT.failed(13.0))
    assert (found.commits, found.commit_failures) == (0, 1)
    assert found.with_finished(ASKED) == found
