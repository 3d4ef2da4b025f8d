"""The life of a sink's transaction: one for each epoch, from its begin to its end.

::

    idle ── begin ──► active ── send the commit ──► committing ── confirmed ──► idle
                        │                            │      │
                        │ an error           refused │      └── no reply ──► failed
                        ▼                            ▼
                       aborting ◄────────────────────┘
                        │      │
                        │      └── not confirmed ──► failed
                        └── rolled back ──► idle

After *failed* the outcome on the server is unknown: the ledger is read, and a new transaction
begins or none is needed. The records are for people and metrics; no decision depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from laminar_dagster.core.errors import InvalidState
from laminar_dagster.core.ids import EpochNumber, SinkId


class TransactionState(StrEnum):
    """The state of a transaction."""

    IDLE = "idle"
    ACTIVE = "active"
    COMMITTING = "committing"
    ABORTING = "aborting"
    FAILED = "failed"


class Outcome(StrEnum):
    """How a transaction ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


_ALLOWED: Final = {
    TransactionState.IDLE: {TransactionState.ACTIVE},
    TransactionState.ACTIVE: {TransactionState.COMMITTING, TransactionState.ABORTING},
    TransactionState.COMMITTING: {
        TransactionState.IDLE,
        TransactionState.ABORTING,
        TransactionState.FAILED,
    },
    TransactionState.ABORTING: {TransactionState.IDLE, TransactionState.FAILED},
    TransactionState.FAILED: {TransactionState.ACTIVE},
}


@dataclass(frozen=True, slots=True)
class EpochTransactionRecord:
    """A record of an epoch's transaction in one sink. All times in seconds of one clock.

    Attributes:
        rows: The rows that were written so far.
        asked_at: When the sink was asked to commit the epoch.
        opened_at: When its transaction began.
        sent_at: When its commit, or its rollback, was sent.
        completed_at: When the outcome was confirmed, or given up as unknown.
        outcome: None while it goes on, and if the sink had the epoch already.
    """

    sink_id: SinkId
    epoch: EpochNumber
    asked_at: float
    state: TransactionState = TransactionState.IDLE
    rows: int = 0
    opened_at: float | None = None
    sent_at: float | None = None
    completed_at: float | None = None
    outcome: Outcome | None = None

    def begun(self, now: float) -> EpochTransactionRecord:
        """The transaction is open.

        Raises:
            InvalidState: One is open already.
        """
        moved = self._moved(TransactionState.ACTIVE, "begin a transaction")
        return replace(moved, rows=0, opened_at=now, sent_at=None, completed_at=None, outcome=None)

    def wrote(self, rows: int) -> EpochTransactionRecord:
        """More rows are in the transaction.

        Raises:
            InvalidState: None is open.
        """
        if self.state is not TransactionState.ACTIVE:
            raise self._wrong("write rows")
        return replace(self, rows=self.rows + rows)

    def committing(self, now: float) -> EpochTransactionRecord:
        """The commit is about to be sent.

        Raises:
            InvalidState: No transaction is open.
        """
        return replace(self._moved(TransactionState.COMMITTING, "commit"), sent_at=now)

    def aborting(self, now: float) -> EpochTransactionRecord:
        """The transaction is being rolled back, by us or because the server refused the commit.

        Raises:
            InvalidState: No transaction is open.
        """
        return replace(self._moved(TransactionState.ABORTING, "abort"), sent_at=now)

    def confirmed(self, now: float) -> EpochTransactionRecord:
        """The server confirmed the commit or the rollback.

        Raises:
            InvalidState: Neither was sent.
        """
        is_commit = self.state is TransactionState.COMMITTING
        outcome = Outcome.COMMITTED if is_commit else Outcome.ABORTED
        moved = self._moved(TransactionState.IDLE, "take a confirmation")
        return replace(moved, completed_at=now, outcome=outcome)

    def failed(self, now: float) -> EpochTransactionRecord:
        """The server did not confirm: the outcome is unknown.

        Raises:
            InvalidState: No commit or rollback was sent.
        """
        moved = self._moved(TransactionState.FAILED, "fail")
        return replace(moved, completed_at=now, outcome=Outcome.UNKNOWN)

    @property
    def begin_seconds(self) -> float | None:
        """From being asked until the transaction was open: connecting, fencing, the ledger."""
        return None if self.opened_at is None else self.opened_at - self.asked_at

    @property
    def commit_seconds(self) -> float | None:
        """From sending the commit until its confirmation."""
        if self.outcome is not Outcome.COMMITTED:
            return None
        assert self.sent_at is not None
        assert self.completed_at is not None
        return self.completed_at - self.sent_at

    def _moved(self, to: TransactionState, action: str) -> EpochTransactionRecord:
        if to not in _ALLOWED[self.state]:
            raise self._wrong(action)
        return replace(self, state=to)

    def _wrong(self, action: str) -> InvalidState:
        what = f"the transaction of sink {self.sink_id}, epoch {self.epoch}"
        return InvalidState(what, str(self.state), action)


@dataclass(frozen=True, slots=True)
class TransactionalSinkMetrics:
    """Sums over the transactions of a sink.

    Attributes:
        commit_failures: Commits that were not confirmed.
    """

    commits: int = 0
    aborts: int = 0
    commit_failures: int = 0
    rows_written: int = 0
    commit_seconds: float = 0.0
    max_commit_seconds: float = 0.0

    @property
    def mean_commit_seconds(self) -> float:
        """The mean duration of confirmed commits; zero before the first."""
        return self.commit_seconds / self.commits if self.commits else 0.0

    def with_finished(self, record: EpochTransactionRecord) -> TransactionalSinkMetrics:
        """The sums with one more transaction, if it is finished and was needed."""
        match record.outcome:
            case Outcome.COMMITTED:
                took = record.commit_seconds or 0.0
                return replace(
                    self,
                    commits=self.commits + 1,
                    rows_written=self.rows_written + record.rows,
                    commit_seconds=self.commit_seconds + took,
                    max_commit_seconds=max(self.max_commit_seconds, took),
                )
            case Outcome.ABORTED:
                return replace(self, aborts=self.aborts + 1)
            case Outcome.UNKNOWN:
                return replace(self, commit_failures=self.commit_failures + 1)
            case None:
                return self
