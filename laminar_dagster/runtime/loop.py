"""Epochs one after the other: a number of them, until nothing waits, or for ever.

A loop may be ended at any point: the next one continues the unfinished epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from laminar_dagster.core.errors import FencedError, RetryError, UnknownOutcome
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.runtime.backlog import Backlog, backlog_of
from laminar_dagster.runtime.epoch import EpochReport
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.survey import survey

POLL_SECONDS: Final = 1.0
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0

# The longest delay before a request to stop is noticed.
_NAP: Final = 0.5


@dataclass(frozen=True, slots=True)
class EpochDone:
    """An epoch is finished, perhaps partly by other processes."""

    report: EpochReport
    manifest: CheckpointManifest


@dataclass(frozen=True, slots=True)
class Waiting:
    """There is nothing to read, or not enough yet. Sent once, when this begins."""

    backlog: Backlog


@dataclass(frozen=True, slots=True)
class Retrying:
    """A service is unavailable, or another process has the epoch. Retried after a pause."""

    error: RetryError | UnknownOutcome | FencedError
    seconds: float


Event = EpochDone | Waiting | Retrying


class Runner(Protocol):
    """Takes epochs to their end, as ``EpochRunner`` does."""

    def run(self, epoch: EpochNumber | None = None) -> EpochReport:
        """Run an epoch; by default the oldest unfinished one, or else a new one."""


def _never() -> bool:
    return False


def _ignore(_told: object) -> None:
    pass


@dataclass(slots=True)
class EpochLoop:
    """Runs the epochs of a pipeline.

    Attributes:
        on_event: Called with every event.
        should_stop: Asked between epochs and while waiting.
        on_look: Called with the backlog, whenever the loop has measured it.
    """

    pipeline: Pipeline
    runner: Runner
    on_event: Callable[[Event], None] = _ignore
    should_stop: Callable[[], bool] = _never
    on_look: Callable[[Backlog], None] = _ignore

    def run_epochs(self, count: int) -> None:
        """Run a number of epochs, with data or without; an unfinished one counts.

        Raises:
            LaminarError: As ``EpochRunner.run``.
        """
        for _ in range(count):
            if self.should_stop():
                return
            self._run_one()

    def run_until_caught_up(self, most: int | None = None) -> None:
        """Finish begun epochs, then run epochs while data waits; none of these is empty.

        Args:
            most: At most so many epochs.

        Raises:
            LaminarError: As ``EpochRunner.run``, or of a source that cannot be asked.
        """
        done = 0
        while (most is None or done < most) and not self.should_stop():
            epoch = self._epoch_with_work()
            if epoch is None:
                return
            self._run_one(epoch)
            done += 1

    def run_forever(self, longest_wait: timedelta) -> None:
        """Wait for data and run epochs until ``should_stop``.

        An epoch is run when the backlog exceeds one epoch, or data waits for ``longest_wait``.
        Errors of unavailable services, and epochs that another process has, are retried.

        Raises:
            LaminarError: Going on would be wrong.
        """
        pause = FIRST_PAUSE
        waiting = _Patience(longest_wait.total_seconds())
        while not self.should_stop():
            try:
                self._take_turn(waiting)
                pause = FIRST_PAUSE
            except FencedError as error:
                # Another process may have done the epoch: look again.
                self._pause(error, FIRST_PAUSE)
            except (RetryError, UnknownOutcome) as error:
                self._pause(error, pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _take_turn(self, waiting: _Patience) -> None:
        """Measure the backlog once, and run an epoch if one is due."""
        standing = survey(self.pipeline.checkpoints)
        if standing.unfinished:
            self._run_one(standing.unfinished[0])
            return
        backlog = self._look()
        now = self.pipeline.clock.monotonic()
        if waiting.is_over(backlog, now):
            done = self._run_one(standing.newest_epoch.next())
            if backlog.is_taken_by(done.manifest):
                waiting.begin_anew()
            return
        if waiting.is_news(backlog):
            self.on_event(Waiting(backlog))
        self._sleep(min(POLL_SECONDS, waiting.left(now)))

    def _epoch_with_work(self) -> EpochNumber | None:
        """The epoch to run next; None when there is nothing to do.

        It is chosen before the backlog is measured: if another process has read that data by then,
        the epoch is found finished, and no empty epoch is run after it.
        """
        standing = survey(self.pipeline.checkpoints)
        if standing.unfinished:
            return standing.unfinished[0]
        backlog = self._look()
        return None if backlog.is_empty else standing.newest_epoch.next()

    def _look(self) -> Backlog:
        backlog = backlog_of(self.pipeline)
        self.on_look(backlog)
        backlog.require_complete()
        return backlog

    def _run_one(self, epoch: EpochNumber | None = None) -> EpochDone:
        report = self.runner.run(epoch)
        # The checkpoint itself may be collected by now; the record of its winner stays.
        done = EpochDone(report, self.pipeline.checkpoints.winner(report.epoch).manifest)
        self.on_event(done)
        return done

    def _pause(self, error: RetryError | UnknownOutcome | FencedError, seconds: float) -> None:
        self.on_event(Retrying(error, seconds))
        self._sleep(seconds)

    def _sleep(self, seconds: float) -> None:
        """Sleep in short pieces: a signal that asks to stop does not interrupt a sleep."""
        clock = self.pipeline.clock
        end = clock.monotonic() + seconds
        while not self.should_stop() and (left := end - clock.monotonic()) > 0:
            clock.sleep(min(left, _NAP))


@dataclass(slots=True)
class _Patience:
    """How long data has been waiting, and whether an epoch is due."""

    longest: float
    since: float | None = None
    told: bool | None = None

    def is_over(self, backlog: Backlog, now: float) -> bool:
        """Whether an epoch is due."""
        if backlog.is_empty:
            self.since = None
            return False
        if self.since is None:
            self.since = now
        return backlog.exceeds_epoch or now - self.since >= self.longest

    def left(self, now: float) -> float:
        """Seconds until an epoch is due, whatever more arrives."""
        return POLL_SECONDS if self.since is None else max(0.0, self.since + self.longest - now)

    def is_news(self, backlog: Backlog) -> bool:
        """Whether waiting for data has become waiting for more of it, or the other way round."""
        before, self.told = self.told, backlog.is_empty
        return before is not self.told

    def begin_anew(self) -> None:
        """All that was waiting has been read."""
        self.since = self.told = None
