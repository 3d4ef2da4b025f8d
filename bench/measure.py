"""How things are timed: in rounds, beside what they are compared with, on monotonic clocks.

Other work on the machine slows everything down at once. So a thing and its peer take turns within
one round, and their ratio is the median of the rounds' ratios: it holds where the times do not.

What only computes is timed by the processor time of its thread, which does not run while another
process has the core. What waits for a disk or a server is timed by the clock on the wall.
"""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Final, TypeVar

# Given a number, does a thing so often, and returns the seconds that took.
Run = Callable[[int], float]

_ResultT = TypeVar("_ResultT")

_LARGEST_BATCH: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class Effort:
    """How much time to spend.

    Attributes:
        rounds: How often each thing is measured.
        batch_seconds: How long a round lasts at least, for things shorter than the clock can see.
        epochs: How many epochs are run on each store.
        jobs: How often a whole job of Spark is run, beside its peer.
        scale: Of the inputs of such jobs, to the whole.
        largest: Whether to measure also what takes many minutes.
    """

    rounds: int
    batch_seconds: float
    epochs: int
    jobs: int = 3
    scale: float = 1.0
    largest: bool = False

    def scaled(self, records: int) -> int:
        """A number of records, of which a hurried run takes a part."""
        return max(1, round(records * self.scale))


FULL: Final = Effort(rounds=21, batch_seconds=0.01, epochs=10)
QUICK: Final = Effort(rounds=5, batch_seconds=0.002, epochs=3, jobs=1, scale=0.04)


@dataclass(frozen=True, slots=True)
class Sample:
    """One value from each round."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle value, which outliers do not move."""
        return median(self.values)

    @property
    def spread(self) -> float:
        """The median absolute deviation from the median."""
        middle = self.median
        return median(abs(value - middle) for value in self.values)

    @property
    def best(self) -> float:
        """The smallest value: the one that other work disturbed least."""
        return min(self.values)

    def over(self, peer: Sample) -> float:
        """How many times the peer, round by round."""
        if len(self.values) != len(peer.values):
            return self.median / peer.median
        return median(own / other for own, other in zip(self.values, peer.values, strict=True))


def code(statement: str, **names: object) -> Run:
    """The processor time of a statement, compiled into the loop so that no call is added to it."""
    return timeit.Timer(statement, timer=time.thread_time, globals=names).timeit


def call(act: Callable[[], object]) -> Run:
    """The time on the wall of a call, for things that dwarf the cost of calling."""
    return timeit.Timer(act, timer=time.perf_counter).timeit


def in_batches(effort: Effort, *runs: Run) -> tuple[Sample, ...]:
    """Time short things, each often enough in a round to be seen; one sample each."""
    batches = [_batch(run, effort.batch_seconds) for run in runs]
    return _in_turn(
        effort.rounds, *((run, batch) for run, batch in zip(runs, batches, strict=True))
    )


def one_by_one(effort: Effort, *runs: Run) -> tuple[Sample, ...]:
    """Time long things, once in a round, after one round that does not count."""
    for run in runs:
        run(1)
    return _in_turn(effort.rounds, *((run, 1) for run in runs))


def one_by_one_of(rounds: int, warm: int, act: Callable[[], _ResultT]) -> list[_ResultT]:
    """What a long thing tells of itself, once in a round, after rounds that do not count."""
    for _ in range(warm):
        act()
    return [act() for _ in range(rounds)]


def timed(act: Callable[[], object]) -> float:
    """The time on the wall of one call."""
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def timed_and_undone(act: Callable[[], object], undo: Callable[[], object]) -> float:
    """The time on the wall of a call that has to be undone before the next one."""
    taken = timed(act)
    undo()
    return taken


def times_run(effort: Effort) -> int:
    """How often `one_by_one` runs each thing, for things that use up what they work on."""
    return effort.rounds + 1


def _batch(run: Run, seconds: float) -> int:
    """How often to run for at least so many seconds; finding out warms up."""
    number = 1
    while run(number) < seconds and number < _LARGEST_BATCH:
        number *= 2
    return number


def _in_turn(rounds: int, *runs: tuple[Run, int]) -> tuple[Sample, ...]:
    taken: list[list[float]] = [[] for _ in runs]
    order = list(enumerate(runs))
    for _ in range(rounds):
        for index, (run, number) in order:
            taken[index].append(run(number) / number)
        # Whoever goes second finds caches warm and files open.
        order.reverse()
    return tuple(Sample(tuple(values)) for values in taken)
