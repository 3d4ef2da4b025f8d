"""The sink at work: epoch after epoch through ``Sink.commit``, watched as the runtime does."""

from __future__ import annotations

import time
from dataclasses import replace

from bench.sinks.rows import SINK
from laminar_dagster.core.errors import WriteFailed
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.ports import Sink, StagedOutput, Unwatched
from laminar_dagster.core.transactions import EpochTransactionRecord
from laminar_dagster.runtime.transactions import EpochTransactionTracker


class EpochWriter:
    """Commits the same output again and again, each time as the next epoch."""

    def __init__(self, sink: Sink) -> None:
        """Go on after the last epoch of the sink."""
        self._sink = sink
        self._tracker = EpochTransactionTracker()
        self._last = int(sink.ledger() or 0)

    def commit(self, output: StagedOutput) -> EpochTransactionRecord:
        """Commit the next epoch, and tell how its transaction went."""
        epoch = EpochNumber(self._last + 1)
        with self._tracker.follow(SINK, epoch) as progress:
            self._sink.commit(epoch, replace(output, progress=progress))
        self._last = int(epoch)
        record = self._tracker.record(SINK, epoch)
        if record is None or record.commit_seconds is None:
            raise RuntimeError(f"epoch {epoch} was not committed: {record}")
        return record

    def abort(self, output: StagedOutput) -> float:
        """Fail when all rows are written and the commit is about to be sent.

        Returns:
            Seconds from the failure until the error is out, and all is rolled back.
        """
        epoch = EpochNumber(self._last + 1)
        failure = _Failure(epoch)
        try:
            self._sink.commit(epoch, replace(output, progress=failure))
        except WriteFailed:
            seconds = time.perf_counter() - failure.at
        else:
            raise RuntimeError(f"epoch {epoch} was committed in spite of a failure")
        if (self._sink.ledger() or 0) != self._last:
            raise RuntimeError(f"epoch {epoch} was to be rolled back and is in the ledger")
        return seconds


class _Failure(Unwatched):
    """Fails at the last moment at which nothing is published."""

    def __init__(self, epoch: EpochNumber) -> None:
        self._epoch = epoch
        self.at = 0.0

    def committing(self) -> None:
        self.at = time.perf_counter()
        raise WriteFailed(SINK, self._epoch, "a failure that was asked for")
