"""The same input on top of little and of much open state: an epoch must not take longer for it.

One file of the source is far ahead in event time, and holds a window open for each of very many
keys; the other is at the present, and holds the watermark back. Every measured epoch brings the
same records: half of them change keys of the large state, the other half fill and close windows of
the present.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

import numpy as np

from bench.click_jobs import ClickPipeline, Epoch
from bench.clickstream import Numbers, click_lines
from bench.figures import Benchmark, Figure
from bench.measure import Sample
from bench.surroundings import Surroundings
from laminar_dagster.core.manifest import CheckpointManifest, PartitionSnapshotEntry

_NAME: Final = "state-growth"
_SIZES: Final = (10_000, 1_000_000)
_LARGEST: Final = 10_000_000
_LIMIT: Final = 1.3
_RECORDS: Final = 20_000
_PRESENT_KEYS: Final = 1_000
_KEYS_AT_ONCE: Final = 1_000_000
_AHEAD_MILLIS: Final = 12 * 3_600_000
_MINUTE_MILLIS: Final = 60_000
_WARM: Final = 2


@dataclass
class _World:
    """A pipeline with so many open keys."""

    keys: int
    pipeline: ClickPipeline
    turns: int = 0
    previous: CheckpointManifest | None = None
    epochs: list[Epoch] = field(default_factory=list)
    files_read: list[int] = field(default_factory=list)

    def build(self) -> None:
        """Open a window for each key."""
        for first in range(0, self.keys, _KEYS_AT_ONCE):
            keys = np.arange(first, min(self.keys, first + _KEYS_AT_ONCE))
            self._append("ahead", np.full(len(keys), _AHEAD_MILLIS), keys)
            self._append("present", np.zeros(1, np.int64), np.zeros(1, np.int64))
            self.previous = self.pipeline.run().manifest

    def run(self) -> None:
        """An epoch of the usual input; it closes the windows of the epoch before."""
        self.turns += 1
        chance = np.random.default_rng((self.turns, self.keys))
        half = _RECORDS // 2
        keys = chance.integers(0, self.keys, half)
        self._append("ahead", np.full(half, _AHEAD_MILLIS), keys)
        millis = self.turns * _MINUTE_MILLIS + np.arange(half) * _MINUTE_MILLIS // half
        self._append("present", millis, chance.integers(0, _PRESENT_KEYS, half))
        epoch = self.pipeline.run()
        if self.previous is not None:
            self.files_read.append(files_read(self.previous, epoch.manifest))
        self.previous = epoch.manifest
        self.epochs.append(epoch)

    def _append(self, name: str, millis: Numbers, keys: Numbers) -> None:
        with open(self.pipeline.input / f"{name}.ndjson", "ab") as file:
            file.write(click_lines(millis, keys, np.random.default_rng(self.turns)))


def state_growth(surroundings: Surroundings) -> Iterator[Figure]:
    """On top of ever more keys, taking turns."""
    effort = surroundings.effort
    sizes = [effort.scaled(size) for size in _SIZES] + [_LARGEST] * effort.largest
    worlds = [
        _World(
            size,
            ClickPipeline(surroundings.folder(), surroundings.spark(), idle_timeout="never"),
        )
        for size in sizes
    ]
    for world in worlds:
        world.build()
    for _ in range(_WARM + effort.epochs):
        for world in worlds:
            world.run()
    for world in worlds:
        yield _figure(world)
    for world in worlds[1:]:
        yield _growth(world, worlds[0])


BENCHMARK: Final = Benchmark(_NAME, "epochs on top of much open state", state_growth)


def files_read(before: CheckpointManifest, after: CheckpointManifest) -> int:
    """How many state files an epoch had to read: those with windows that closed, or folded ones."""
    now = after.watermark
    kept = {_identity(entry) for entry in _state(after)}
    read = 0
    for entry in _state(before):
        first, last = entry.event_time or (0, 0)
        has_closing = now is not None and first <= now
        is_closed = now is not None and last <= now
        is_folded = not is_closed and _identity(entry) not in kept
        read += has_closing or is_folded
    return read


def _state(manifest: CheckpointManifest) -> Iterator[PartitionSnapshotEntry]:
    for operator in manifest.operators:
        yield from operator.partitions


def _identity(entry: PartitionSnapshotEntry) -> tuple[int, str]:
    return entry.partition_id, entry.sha256


def _figure(world: _World) -> Figure:
    measured = world.epochs[_WARM:]
    state = list(_state(measured[-1].manifest))
    size = sum(entry.size_bytes for entry in state)
    written = median(_written(epoch.manifest) for epoch in measured)
    return Figure(
        f"{_NAME}/{world.keys}",
        f"an epoch of {_RECORDS:,} records on top of {world.keys:,} open keys",
        _seconds(measured),
        note=(
            f"{size / 1e6:.1f} MB of state in {len(state)} files; an epoch reads "
            f"{median(world.files_read[_WARM:]):.0f} of them and writes {written / 1e6:.1f} MB"
        ),
    )


def _growth(world: _World, smallest: _World) -> Figure:
    pairs = zip(world.epochs[_WARM:], smallest.epochs[_WARM:], strict=True)
    return Figure(
        f"{_NAME}/{world.keys}/ratio",
        f"to the same on top of {smallest.keys:,}, epoch by epoch",
        Sample(tuple(own.seconds / other.seconds for own, other in pairs)),
        unit="times",
        limit=_LIMIT,
    )


def _written(manifest: CheckpointManifest) -> int:
    return sum(entry.size_bytes for entry in _state(manifest) if entry.origin is None)


def _seconds(epochs: Sequence[Epoch]) -> Sample:
    return Sample(tuple(epoch.seconds for epoch in epochs))
