"""Whole epochs with an engine in memory: what the protocol and its store cost, step by step.

The engine only adds up numbers, so an epoch here is nearly all protocol. With a real engine the
same milliseconds are a smaller part of a longer epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median_low
from types import FunctionType
from typing import Any, Final

from bench.figures import Benchmark, Figure, in_words
from bench.measure import Sample
from bench.meter import Cost, Meter
from bench.surroundings import Surroundings
from laminar_dagster.core import document, layout
from laminar_dagster.core.ids import PipelineName
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.ports import Admission, ObjectStore
from laminar_dagster.runtime import clock
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.clock import SystemClock
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.testing.memory_pipeline import (
    MemoryEngine,
    MemoryLog,
    MemorySink,
    MemorySource,
    MemoryTable,
)
from laminar_dagster.testing.memory_store import MemoryStore

_RECORDS: Final = 500
_PARTITIONS: Final = 2
_COLLECT_EVERY: Final = 5
_COLLECT: Final = "Collect"
_BETWEEN: Final = "looking"
_STEPS: Final = (
    "Plan",
    "Compute",
    "Gate",
    "Prepare",
    "WriteManifest",
    "CommitSinks",
    "MoveLatest",
    "Acknowledge",
    _COLLECT,
)
_NOTES: Final = {
    _COLLECT: "in every 20th epoch by default",
    _BETWEEN: "finds out before each step how far the epoch is",
}
_KINDS: Final[dict[str, tuple[Callable[..., Any], ...]]] = {
    "ids": (clock.mint_checkpoint_id,),
    "paths": tuple(
        value
        for name, value in vars(layout).items()
        if isinstance(value, FunctionType)
        and value.__module__ == layout.__name__
        and not name.startswith("_")
    ),
    "documents": (
        document.encode,
        document.decode,
        document.checksum,
        CheckpointManifest.validate,
    ),
}


@dataclass(frozen=True, slots=True)
class _Epoch:
    """What an epoch took, by step: seconds, and requests where they are counted."""

    seconds: float
    steps: dict[str, float]
    requests: int
    requests_by_step: dict[str, int]

    @property
    def is_ordinary(self) -> bool:
        """Whether no garbage was collected, which takes one more look at the store as well."""
        return _COLLECT not in self.steps


class _CountingClock(SystemClock):
    """The clock is read around each step; that is when requests are counted too."""

    def __init__(self, requests: Callable[[], int]) -> None:
        self._requests = requests
        self.marks: list[int] = []

    def monotonic(self) -> float:
        """Seconds that never run backwards."""
        self.marks.append(self._requests())
        return super().monotonic()


class _World:
    """A pipeline on a store, with records enough for some epochs."""

    def __init__(self, store: ObjectStore, epochs: int, requests: Callable[[], int]) -> None:
        self._requests = requests
        self._clock = _CountingClock(requests)
        log = MemoryLog([list(range(_RECORDS * epochs)) for _ in range(_PARTITIONS)])
        self._runner = EpochRunner(
            Pipeline(
                name=PipelineName("bench"),
                fingerprint="bench",
                checkpoints=CheckpointStore(store),
                engine=MemoryEngine(store, log),
                sources=(MemorySource(log),),
                sinks=(MemorySink(MemoryTable()),),
                limits=Admission(max_records=_RECORDS),
                collect_every=_COLLECT_EVERY,
                clock=self._clock,
                # Looked up with each call, so that a meter can take its place.
                mint=lambda: clock.mint_checkpoint_id(),
            )
        )

    def run(self) -> _Epoch:
        """The next epoch."""
        self._clock.marks.clear()
        sent = self._requests()
        begun = time.perf_counter()
        report = self._runner.run()
        whole = time.perf_counter() - begun
        sent = self._requests() - sent
        names = [step.name for step in report.steps]
        steps = {step.name: step.seconds for step in report.steps}
        steps[_BETWEEN] = whole - sum(steps.values())
        before, after = self._clock.marks[::2], self._clock.marks[1::2]
        by_step = {name: end - start for name, start, end in zip(names, before, after, strict=True)}
        by_step[_BETWEEN] = sent - sum(by_step.values())
        return _Epoch(whole, steps, sent, by_step)


def epoch_local(surroundings: Surroundings) -> Iterator[Figure]:
    """On disk."""
    yield from _figures(surroundings, "epoch-local", surroundings.local_store(), lambda: 0)


def epoch_s3(surroundings: Surroundings) -> Iterator[Figure]:
    """On S3."""
    store = surroundings.bucket().store
    yield from _figures(surroundings, "epoch-s3", store, lambda: store.requests)


BENCHMARKS: Final = (
    Benchmark("epoch-local", "a whole epoch on disk, by step", epoch_local),
    Benchmark("epoch-s3", "a whole epoch on S3, by step", epoch_s3),
)


def _figures(
    surroundings: Surroundings,
    name: str,
    store: ObjectStore,
    requests: Callable[[], int],
) -> Iterator[Figure]:
    number = max(surroundings.effort.epochs, _COLLECT_EVERY)
    # One more of each, because the first epoch has no parent; as many again under the meter.
    world = _World(store, 2 * number + 1, requests)
    in_memory = _World(MemoryStore(), number + 1, lambda: 0)
    world.run(), in_memory.run()
    pairs = [(world.run(), in_memory.run()) for _ in range(number)]
    ordinary = [pair for pair in pairs if pair[0].is_ordinary]
    sent = median_low(epoch.requests for epoch, _ in ordinary)
    note = f"{_RECORDS * _PARTITIONS:,} records; without Collect"
    yield Figure(
        name,
        "an epoch that adds up numbers, from plan to acknowledgement",
        Sample(tuple(epoch.seconds for epoch, _ in ordinary)),
        peer="the same in memory",
        peer_sample=Sample(tuple(peer.seconds for _, peer in ordinary)),
        note=f"{note}; {in_words(sent)}" if sent else note,
    )
    yield from _by_step(name, [epoch for epoch, _ in pairs])
    yield from _shares(name, world, number)


def _by_step(name: str, epochs: Sequence[_Epoch]) -> Iterator[Figure]:
    for step in (*_STEPS, _BETWEEN):
        taken = [epoch for epoch in epochs if epoch.is_ordinary != (step == _COLLECT)]
        notes = [_NOTES[step]] if step in _NOTES else []
        if sent := median_low(epoch.requests_by_step[step] for epoch in taken):
            notes.append(in_words(sent))
        yield Figure(
            f"{name}/{step}",
            "between the steps" if step == _BETWEEN else f"step {step}",
            Sample(tuple(epoch.steps[step] for epoch in taken)),
            peer="the whole epoch",
            peer_sample=Sample(tuple(epoch.seconds for epoch in taken)),
            note="; ".join(notes),
        )


def _shares(name: str, world: _World, number: int) -> Iterator[Figure]:
    meter = Meter()
    measured: list[tuple[_Epoch, dict[str, Cost]]] = []
    with meter.on(_KINDS):
        for _ in range(number):
            epoch = world.run()
            costs = meter.take()
            if epoch.is_ordinary:
                measured.append((epoch, costs))
    for kind in _KINDS:
        spent = [costs.get(kind, Cost()) for _, costs in measured]
        shares = tuple(
            cost.seconds / epoch.seconds for cost, (epoch, _) in zip(spent, measured, strict=True)
        )
        calls = max(cost.calls for cost in spent)
        yield Figure(
            f"{name}/{kind}",
            f"share of the epoch that goes into {kind}",
            Sample(shares),
            unit="share",
            note=f"{calls} calls",
        )
