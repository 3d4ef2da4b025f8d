"""The run itself: workers one after the other, some of them killed at a moment that is chosen."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from examples.clickstream.watch import PIPELINE, Look, Watch, write_lock
from examples.clickstream.worker import Worker
from laminar_dagster.core.ids import CheckpointId

_PAUSE: Final = 0.1
# An attempt that is so old has reached Spark.
_INTO_THE_JOB: Final = 0.4
_LOG_LINES: Final = 15

Moment = Literal["computing", "committing"]


class DemoFailed(Exception):
    """The demo could not show what it is there to show."""


@dataclass(frozen=True, slots=True)
class Kill:
    """A worker that was killed.

    Attributes:
        look: What the store and the sinks held, seen while the worker stood still.
        processes: How many were killed at once.
    """

    moment: Moment
    worker: int
    look: Look
    processes: int


@dataclass(slots=True)
class Story:
    """What happened.

    Attributes:
        finished_by: Which worker confirmed each epoch.
        cold: Epochs that were the first a worker computed: Spark was started for them.
        recovery_seconds: From the start of a worker to the end of the epoch that it found cut in
            its commit.
    """

    kills: list[Kill] = field(default_factory=list)
    workers: int = 0
    finished_by: dict[int, int] = field(default_factory=dict)
    cold: set[int] = field(default_factory=set)
    recovery_seconds: float | None = None
    seconds: float = 0.0

    def kill_in(self, moment: Moment) -> Kill | None:
        """The kill at that moment, once it has happened."""
        return next((each for each in self.kills if each.moment == moment), None)


class Director:
    """Runs workers until all input is read, and kills one at each of some moments."""

    def __init__(
        self,
        project: Path,
        logs: Path,
        database: Path,
        epochs: int,
        moments: Collection[Moment],
        tell: Callable[[str], None],
        show: Callable[[str], None],
    ) -> None:
        """Prepare.

        Args:
            project: Where the pipeline is.
            logs: Where the workers' output goes.
            database: SQLite's, whose lock makes one sink wait while the other commits.
            epochs: How many there will be.
            moments: When to kill a worker.
            tell: Says a line that stays.
            show: Says what goes on now.
        """
        self._project, self._logs, self._database = project, logs, database
        self._epochs, self._tell, self._show = epochs, tell, show
        self._moments = moments
        self._watch = Watch(project)
        self._compute_from = 2
        self._commit_in = max(3, epochs // 2 + 1)
        self._first_seen: dict[CheckpointId, float] = {}
        self._story = Story()

    def run(self) -> Story:
        """All of it.

        Raises:
            DemoFailed: A worker failed, or the moment for a kill did not come.
        """
        begun = time.monotonic()
        while True:
            self._story.workers += 1
            number = self._story.workers
            log = self._logs / f"worker-{number}.log"
            with Worker(self._project, PIPELINE, log) as worker, ExitStack() as locks:
                self._tell(f"worker {number} starts: laminar run {PIPELINE} (pid {worker.pid})")
                is_done = self._follow(worker, number, locks)
            if is_done:
                break
        self._story.seconds = time.monotonic() - begun
        if len(self._story.kills) < len(self._moments):
            raise DemoFailed("all events were read before a worker could be killed")
        return self._story

    def _follow(self, worker: Worker, number: int, locks: ExitStack) -> bool:
        """Watch a worker until it ends, or is killed. Whether it was the last one."""
        told, computed = self._watch.look().confirmed, False
        is_locked = False
        while True:
            # In this order: what a worker did before it ended is seen.
            code = worker.ended()
            look = self._watch.look()
            for epoch in range(told + 1, look.confirmed + 1):
                self._finished(epoch, number, worker)
            told = look.confirmed
            if code is not None:
                if code:
                    raise DemoFailed(f"worker {number} ended with {code}:\n{_tail(worker.log)}")
                return True
            if look.attempt and not computed:
                computed = True
                self._story.cold.add(look.epoch)
            self._show(_doing(look, self._story.cold))
            if self._is_to_die_computing(look) and self._kill(worker, number, "computing"):
                return False
            if self._is_to_be_locked(look) and not is_locked:
                locks.enter_context(write_lock(self._database))
                is_locked = True
                self._tell(
                    f"epoch {look.epoch}: clicks.db is locked from outside, so SQLite will wait"
                )
            if self._is_to_die_committing(look) and self._kill(worker, number, "committing"):
                return False
            time.sleep(_PAUSE)

    def _is_to_die_computing(self, look: Look) -> bool:
        return (
            self._is_left("computing")
            and look.epoch >= self._compute_from
            and look.attempt is not None
            and self._age(look.attempt[0]) > _INTO_THE_JOB
        )

    def _is_to_die_committing(self, look: Look) -> bool:
        return (
            self._is_left("committing") and look.epoch >= self._commit_in and look.is_half_committed
        )

    def _is_left(self, moment: Moment) -> bool:
        return moment in self._moments and self._story.kill_in(moment) is None

    def _age(self, attempt: CheckpointId) -> float:
        """Seconds since an attempt was first seen."""
        return time.monotonic() - self._first_seen.setdefault(attempt, time.monotonic())

    def _is_to_be_locked(self, look: Look) -> bool:
        """From when the epoch is planned on: then nothing else wants to write."""
        return (
            self._is_left("committing")
            and look.epoch >= self._commit_in
            and look.planned
            and look.winner is None
        )

    def _kill(self, worker: Worker, number: int, moment: Moment) -> bool:
        """Let it stand still, look again, and kill it if it is the moment."""
        worker.pause()
        look = self._watch.look()
        is_now = look.is_computing if moment == "computing" else look.is_half_committed
        if not is_now:
            worker.resume()
            return False
        kill = Kill(moment, number, look, worker.kill())
        self._story.kills.append(kill)
        self._tell(f"[bold red]kill -9[/] in epoch {look.epoch}, {moment}")
        for line in found(kill):
            self._tell(f"  found: {line}")
        return True

    def _finished(self, epoch: int, number: int, worker: Worker) -> None:
        self._story.finished_by[epoch] = number
        cut = self._story.kill_in("committing")
        if cut and cut.look.epoch == epoch:
            self._story.recovery_seconds = time.monotonic() - worker.began
            self._tell(
                f"epoch {epoch} of {self._epochs} finished from what worker {cut.worker} left"
            )
        else:
            self._tell(f"epoch {epoch} of {self._epochs} done")


def found(kill: Kill) -> list[str]:
    """What a kill left behind, in words."""
    look = kill.look
    if kill.moment == "computing":
        assert look.attempt
        files = look.attempt[1]
        written = f"{files} {'file' if files == 1 else 'files'}" if files else "no file yet"
        return [f"plan written, an attempt begun ({written}), no manifest"]
    have = look.having(look.epoch)
    lack = [name for name, _ in look.ledgers if name not in have]
    return [
        f"manifest written, {_listed(have)} committed, {_listed(lack)} not committed",
        f"_latest still at epoch {look.confirmed}",
    ]


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names)


def _doing(look: Look, cold: Collection[int]) -> str:
    if not look.planned:
        return "planning"
    if look.winner:
        return f"epoch {look.epoch}: committing"
    is_starting = look.epoch in cold and not (look.attempt and look.attempt[1])
    return f"epoch {look.epoch}: " + ("starting Spark" if is_starting else "computing")


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join(f"  {line}" for line in lines[-_LOG_LINES:])
