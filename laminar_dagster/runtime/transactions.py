"""Tracks the transactions of a pipeline's sinks, for reports, metrics and Dagster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from laminar_dagster.core.errors import UnknownOutcome
from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.core.points import Point, reach
from laminar_dagster.core.ports import Clock, TransactionProgress
from laminar_dagster.core.transactions import (
    EpochTransactionRecord,
    TransactionalSinkMetrics,
    TransactionState,
)
from laminar_dagster.runtime.clock import SystemClock

# How many records are kept for each sink: a resident process runs for weeks.
_KEPT: Final = 100

_Change = Callable[[EpochTransactionRecord, float], EpochTransactionRecord]


class EpochTransactionTracker:
    """The newest transactions of every sink. Sinks commit side by side, so it has a lock."""

    def __init__(self, clock: Clock | None = None) -> None:
        """Begin without any transactions."""
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._records: dict[tuple[SinkId, EpochNumber], EpochTransactionRecord] = {}
        self._metrics: dict[SinkId, TransactionalSinkMetrics] = {}

    def record(self, sink_id: SinkId, epoch: EpochNumber) -> EpochTransactionRecord | None:
        """The transaction of an epoch in a sink; None if this process did not begin it."""
        with self._lock:
            return self._records.get((sink_id, epoch))

    def metrics(self, sink_id: SinkId) -> TransactionalSinkMetrics:
        """The totals of all transactions of a sink in this process."""
        with self._lock:
            return self._metrics.get(sink_id, TransactionalSinkMetrics())

    @contextmanager
    def follow(self, sink_id: SinkId, epoch: EpochNumber) -> Iterator[TransactionProgress]:
        """Track the commit of an epoch inside the block, whose end or error is the outcome."""
        now = self._clock.monotonic()
        self._put(EpochTransactionRecord(sink_id, epoch, asked_at=now))

        def change(how: _Change) -> None:
            self._change(sink_id, epoch, how)

        try:
            yield _Progress(sink_id, change)
        except BaseException as error:
            change(_unanswered if isinstance(error, UnknownOutcome) else _rolled_back)
            raise
        else:
            change(_done)

    def _put(self, record: EpochTransactionRecord) -> None:
        with self._lock:
            # Re-inserted last, as a retry of an old epoch is the newest record, too.
            self._records.pop((record.sink_id, record.epoch), None)
            self._records[record.sink_id, record.epoch] = record
            own = [each for each in self._records if each[0] == record.sink_id]
            for each in own[:-_KEPT]:
                del self._records[each]

    def _change(self, sink_id: SinkId, epoch: EpochNumber, how: _Change) -> None:
        with self._lock:
            before = self._records[sink_id, epoch]
            after = how(before, self._clock.monotonic())
            self._records[sink_id, epoch] = after
            if after.outcome is not None and after.outcome is not before.outcome:
                known = self._metrics.get(sink_id, TransactionalSinkMetrics())
                self._metrics[sink_id] = known.with_finished(after)


class _Progress:
    """Implements ``TransactionProgress``: a sink reports its transaction's progress to it."""

    def __init__(self, sink_id: SinkId, change: Callable[[_Change], None]) -> None:
        self._sink_id = sink_id
        self._change = change

    def begun(self) -> None:
        self._change(EpochTransactionRecord.begun)

    def wrote(self, rows: int) -> None:
        self._change(lambda record, _now: record.wrote(rows))

    def committing(self) -> None:
        self._change(EpochTransactionRecord.committing)
        reach(Point.SINK_SENDS_COMMIT, self._sink_id)

    def aborted(self) -> None:
        self._change(_rolled_back)


def _done(record: EpochTransactionRecord, now: float) -> EpochTransactionRecord:
    """Mark a commit as confirmed; a sink that had the epoch already has sent none."""
    if record.state is TransactionState.COMMITTING:
        return record.confirmed(now)
    return _rolled_back(record, now)


def _rolled_back(record: EpochTransactionRecord, now: float) -> EpochTransactionRecord:
    """Mark a transaction as rolled back: its commit was not sent, or was refused."""
    if record.state in (TransactionState.ACTIVE, TransactionState.COMMITTING):
        return record.aborting(now).confirmed(now)
    return record


def _unanswered(record: EpochTransactionRecord, now: float) -> EpochTransactionRecord:
    """Mark a commit without a reply as failed: the server may have committed it."""
    if record.state is TransactionState.COMMITTING:
        return record.failed(now)
    return _rolled_back(record, now)
