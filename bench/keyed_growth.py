"""Groups by key on top of little and of much state: an epoch costs what it touches.

Every measured epoch touches the same number of keys: all of the smallest state, and 1 % of the
largest. Nothing is put into a sink, whose own table would grow with the keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Final

import numpy as np

from bench.click_jobs import ClickPipeline, Epoch
from bench.clickstream import click_lines
from bench.figures import Benchmark, Figure
from bench.measure import Sample
from bench.spark_watch import processor_time
from bench.surroundings import Surroundings

_NAME: Final = "keyed-growth"
_TOUCHED: Final = 100_000
_TIMES: Final = (1, 10)
_LARGEST: Final = 100
_LIMIT: Final = 1.3
_KEYS_AT_ONCE: Final = 1_000_000
_WARM: Final = 2
_QUERY: Final = """
SELECT page, COUNT(*) AS clicks, SUM(n) AS total, MAX(amount) AS most FROM clicks GROUP BY page
EMIT CHANGES WITH (state.ttl = 'unbounded')
"""


@dataclass
class _World:
    """A pipeline with so many keys."""

    keys: int
    touched: int
    pipeline: ClickPipeline
    turns: int = 0
    epochs: list[Epoch] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def build(self) -> None:
        """Give each key its first row."""
        for first in range(0, self.keys, _KEYS_AT_ONCE):
            last = min(self.keys, first + _KEYS_AT_ONCE)
            self._append(np.arange(first, last))
            self.pipeline.run()

    def run(self) -> None:
        """An epoch that touches as many keys as in any other world, each once."""
        self.turns += 1
        chance = np.random.default_rng((self.turns, self.keys))
        self._append(chance.choice(self.keys, self.touched, replace=False))
        before = processor_time()
        self.epochs.append(self.pipeline.run())
        self.processor.append(processor_time().since(before).both)

    def _append(self, keys: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        millis = np.full(len(keys), self.turns, np.int64)
        with open(self.pipeline.input / "clicks.ndjson", "ab") as file:
            file.write(click_lines(millis, keys, np.random.default_rng(self.turns)))


def keyed_growth(surroundings: Surroundings) -> Iterator[Figure]:
    """On top of ever more keys, taking turns."""
    effort = surroundings.effort
    touched = effort.scaled(_TOUCHED)
    worlds = [
        _World(
            touched * times,
            touched,
            ClickPipeline(surroundings.folder(), surroundings.spark(), query=_QUERY, sink=""),
        )
        for times in (*_TIMES, *([_LARGEST] * effort.largest))
    ]
    for world in worlds:
        world.build()
    for _ in range(_WARM + effort.epochs):
        for world in worlds:
            world.run()
    for world in worlds:
        yield from _figures(world)
    for world in worlds[1:]:
        yield from _growth(world, worlds[0])


BENCHMARK: Final = Benchmark(_NAME, "epochs on top of much state by key", keyed_growth)


def _figures(world: _World) -> Iterator[Figure]:
    measured = world.epochs[_WARM:]
    state = [each for entry in measured[-1].manifest.operators for each in entry.partitions]
    written = median(
        sum(
            each.size_bytes
            for entry in epoch.manifest.operators
            for each in entry.partitions
            if each.origin is None
        )
        for epoch in measured
    )
    share = world.touched / world.keys
    yield Figure(
        f"{_NAME}/{world.keys}",
        f"an epoch that touches {world.touched:,} of {world.keys:,} keys ({share:.0%})",
        Sample(tuple(epoch.seconds for epoch in measured)),
        note=(
            f"{sum(each.size_bytes for each in state) / 1e6:.1f} MB of state in {len(state)} "
            f"files; an epoch writes {written / 1e6:.1f} MB"
        ),
    )


def _growth(world: _World, smallest: _World) -> Iterator[Figure]:
    what = f"to the same on top of {smallest.keys:,}, epoch by epoch"
    pairs = zip(world.epochs[_WARM:], smallest.epochs[_WARM:], strict=True)
    yield Figure(
        f"{_NAME}/{world.keys}/ratio",
        what,
        Sample(tuple(own.seconds / other.seconds for own, other in pairs)),
        unit="times",
        limit=_LIMIT,
    )
    spent = zip(world.processor[_WARM:], smallest.processor[_WARM:], strict=True)
    yield Figure(
        f"{_NAME}/{world.keys}/processor",
        f"{what}, processor time; holds on a busy machine too",
        Sample(tuple(own / other for own, other in spent)),
        unit="times",
    )
