"""Reports the progress of a recovery: at intervals, and never backwards."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from laminar_dagster.core.ports import Clock
from laminar_dagster.core.recovery import RecoveryPhase, RecoveryProgress

# The progress, from 0 to 1, at which each phase begins. Reading files takes most of the time.
_BEGINS: Final = {
    RecoveryPhase.READING_MANIFEST: 0.0,
    RecoveryPhase.DOWNLOADING_SNAPSHOTS: 0.05,
    RecoveryPhase.RESTORING_STATE: 0.85,
    RecoveryPhase.SEEKING_SOURCES: 0.88,
    RecoveryPhase.REBUILDING: 0.9,
    RecoveryPhase.COMPLETE: 1.0,
}


class ProgressReporter:
    """Counts, and reports to a callback; safe to use from several threads."""

    def __init__(
        self, tell: Callable[[RecoveryProgress], None] | None, clock: Clock, interval: float
    ) -> None:
        """Call ``tell`` at most once in an interval, and as every phase begins."""
        self._tell = tell
        self._clock = clock
        self._interval = interval
        self._lock = threading.Lock()
        self._phase = RecoveryPhase.READING_MANIFEST
        self._progress = 0.0
        self._told_at: float | None = None
        self._reading_since: float | None = None
        self._epochs = (0, 0)
        self.bytes_downloaded = 0
        self.total_bytes = 0
        self.operators_restored = 0
        self.total_operators = 0

    def expect(self, more_bytes: int) -> None:
        """Add to the bytes that are to be read."""
        with self._lock:
            self.total_bytes += more_bytes

    def begin(self, operators: int) -> None:
        """Set how many operators are to be restored, and count them from zero."""
        with self._lock:
            self.operators_restored, self.total_operators = 0, operators

    def enter(self, phase: RecoveryPhase) -> None:
        """Begin a phase."""
        with self._lock:
            self._phase = phase
            if phase is RecoveryPhase.DOWNLOADING_SNAPSHOTS:
                self._reading_since = self._clock.monotonic()
            self._report(is_due=True)

    def read(self, count: int) -> None:
        """Count bytes that were read."""
        with self._lock:
            self.bytes_downloaded += count
            self._report()

    def restored(self) -> None:
        """Count one more restored operator."""
        with self._lock:
            self.operators_restored += 1
            self._report()

    def rebuilt(self, done: int, total: int) -> None:
        """Set how many epochs have been run again, and of how many."""
        with self._lock:
            self._epochs = (done, total)
            self._report()

    def _report(self, *, is_due: bool = False) -> None:
        if self._tell is None:
            return
        now = self._clock.monotonic()
        if not is_due and self._told_at is not None and now - self._told_at < self._interval:
            return
        self._told_at = now
        self._progress = max(self._progress, self._reached())
        self._tell(
            RecoveryProgress(
                phase=self._phase,
                progress=self._progress,
                estimated_remaining=self._remaining(now),
                bytes_downloaded=self.bytes_downloaded,
                total_bytes=self.total_bytes,
                operators_restored=self.operators_restored,
                total_operators=self.total_operators,
            )
        )

    def _reached(self) -> float:
        begin = _BEGINS[self._phase]
        if self._phase is RecoveryPhase.DOWNLOADING_SNAPSHOTS and self.total_bytes:
            end = _BEGINS[RecoveryPhase.RESTORING_STATE]
            return begin + (end - begin) * min(1.0, self.bytes_downloaded / self.total_bytes)
        if self._phase is RecoveryPhase.REBUILDING and self._epochs[1]:
            return begin + (1.0 - begin) * 0.9 * self._epochs[0] / self._epochs[1]
        return begin

    def _remaining(self, now: float) -> float | None:
        """Seconds left, by the rate of reading; None in other phases: reruns take unknown time."""
        if self._phase is RecoveryPhase.COMPLETE:
            return 0.0
        spent = now - self._reading_since if self._reading_since is not None else 0.0
        if self._phase is not RecoveryPhase.DOWNLOADING_SNAPSHOTS or not self.bytes_downloaded:
            return None
        left = max(0, self.total_bytes - self.bytes_downloaded)
        return left * spent / self.bytes_downloaded
