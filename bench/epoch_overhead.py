"""What an epoch costs that has next to nothing to do, step by step, and within Compute."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

from bench.click_jobs import ClickPipeline, Epoch
from bench.clickstream import Clicks
from bench.figures import Benchmark, Figure
from bench.measure import Sample
from bench.spark_watch import ProcessorTime, Stage, StageWatch, processor_time
from bench.surroundings import Surroundings

_NAME: Final = "epoch-overhead"
_RECORDS: Final = 1_000
_KEYS: Final = 100
_SECONDS: Final = 60
_LIMIT: Final = 1.5
_WARM: Final = 6
_COLLECT: Final = "Collect"
_COLLECT_EVERY: Final = 10
_BETWEEN: Final = "looking"


@dataclass(frozen=True, slots=True)
class Within:
    """Compute, cut where Spark says that something began or ended."""

    building: float
    planning: float
    stages: tuple[float, ...]
    rest: float


@dataclass(frozen=True, slots=True)
class _Measured:
    epoch: Epoch
    within: Within
    processor: ProcessorTime

    @property
    def is_ordinary(self) -> bool:
        return _COLLECT not in self.epoch.steps


def epoch_overhead(surroundings: Surroundings) -> Iterator[Figure]:
    """An epoch of a thousand records on a warm session."""
    spark = surroundings.spark()
    pipeline = ClickPipeline(surroundings.folder(), spark)
    pipeline.replace(collect_every=_COLLECT_EVERY)
    clicks = Clicks(_RECORDS, _SECONDS, _KEYS)
    folder = surroundings.folder()
    watch = StageWatch(spark)
    found: list[_Measured] = []
    for number in range(_WARM + 2 * surroundings.effort.epochs):
        pipeline.offer(clicks.write(folder, number))
        before = processor_time()
        with _marked() as marks:
            epoch = pipeline.run()
        used = processor_time().since(before)
        within = cut(epoch.steps["Compute"], marks, watch.new())
        if number >= _WARM:
            found.append(_Measured(epoch, within, used))
    yield from _figures(found)


BENCHMARK: Final = Benchmark(_NAME, "an epoch of 1,000 records on Spark, by step", epoch_overhead)


def cut(seconds: float, marks: Marks, stages: Sequence[Stage]) -> Within:
    """Cut the step Compute: before, between and after what was marked.

    Args:
        seconds: Of the whole step.
        marks: Of the driver.
        stages: Of the epoch's job, in order.
    """
    building = marks.built - marks.begun
    if not stages:
        return Within(building, 0.0, (), seconds - building)
    # Spark's times are whole milliseconds, and may lie a little before the driver's.
    planning = max(0.0, stages[0].begun - marks.built)
    lengths = tuple(stage.seconds for stage in stages)
    return Within(building, planning, lengths, seconds - building - planning - sum(lengths))


@dataclass(slots=True)
class Marks:
    """When the driver began to build the job, and when it had built it."""

    begun: float = 0.0
    built: float = 0.0


@contextmanager
def _marked() -> Iterator[Marks]:
    # Imported here: it imports Spark.
    from laminar_dagster.spark.compiler import Compiler

    marks = Marks()
    compile_job = Compiler.compile

    def compile_marked(compiler: Compiler) -> Any:
        marks.begun = time.time()
        job = compile_job(compiler)
        marks.built = time.time()
        return job

    with mock.patch.object(Compiler, "compile", compile_marked):
        yield marks


def _figures(found: Sequence[_Measured]) -> Iterator[Figure]:
    ordinary = [each for each in found if each.is_ordinary]
    whole = Sample(tuple(each.epoch.seconds for each in ordinary))
    processor = Sample(tuple(each.processor.both for each in ordinary))
    yield Figure(
        _NAME,
        f"a warm epoch of {_RECORDS:,} records, from plan to acknowledgement",
        whole,
        limit=_LIMIT,
        note=f"{_KEYS} keys; {processor.median:.2f} s of processor time in Spark and its workers",
    )
    for step in ordinary[0].epoch.steps:
        yield _part(step, f"step {step}", [each.epoch.steps[step] for each in ordinary], whole)
    between = [each.epoch.seconds - sum(each.epoch.steps.values()) for each in ordinary]
    yield _part(_BETWEEN, "between the steps", between, whole)
    collected = [each.epoch for each in found if not each.is_ordinary]
    if collected:
        yield Figure(
            f"{_NAME}/{_COLLECT}",
            f"step {_COLLECT}",
            Sample(tuple(epoch.steps[_COLLECT] for epoch in collected)),
            note=f"here in every {_COLLECT_EVERY}th epoch",
        )
    insides = [each.within for each in ordinary]
    name = "Compute/building"
    yield _part(name, "the frames are put together", [i.building for i in insides], whole)
    name = "Compute/planning"
    yield _part(name, "Spark plans, until a stage begins", [i.planning for i in insides], whole)
    for place in range(min(len(inside.stages) for inside in insides)):
        name = f"Compute/stage-{place + 1}"
        taken = [inside.stages[place] for inside in insides]
        yield _part(name, f"stage {place + 1} of the job", taken, whole)
    rest = [inside.rest for inside in insides]
    yield _part("Compute/rest", "attempt, gaps between stages, reports, offsets", rest, whole)


def _part(name: str, what: str, seconds: Sequence[float], whole: Sample) -> Figure:
    return Figure(
        f"{_NAME}/{name}", what, Sample(tuple(seconds)), peer="the whole epoch", peer_sample=whole
    )
