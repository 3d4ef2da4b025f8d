"""Records per second of a windowed aggregation, beside Structured Streaming on the same files.

The two take turns, each with fresh folders, after turns that do not count. They must give the
same rows; if they do not, there is no figure but an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from bench.click_jobs import ClickPipeline, ClickStream, Epoch
from bench.clickstream import Clicks
from bench.figures import Benchmark, Figure
from bench.measure import Sample, one_by_one_of
from bench.spark_watch import ProcessorTime, Stage, StageWatch, processor_time
from bench.surroundings import Surroundings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RECORDS: Final = 2_000_000
_SECONDS: Final = 1_800
_KEYS: Final = 1_000
_EPOCHS: Final = 8
# The JVM goes on compiling for some seconds more than one turn.
_WARM: Final = 2
_PEER: Final = "Structured Streaming"
_STAGES: Final = ("scan, decode, first partials, shuffle", "buckets, state, staging")


@dataclass(frozen=True, slots=True)
class _Turn:
    """Both, once, over the same files."""

    records: int
    own: float
    peer: float
    own_processor: ProcessorTime
    peer_processor: ProcessorTime
    epochs: Sequence[Epoch]
    stages: Sequence[Stage]
    rows: int


def throughput(surroundings: Surroundings) -> Iterator[Figure]:
    """In one large epoch, and in some smaller ones."""
    warm = min(_WARM, surroundings.effort.jobs)
    yield from _figures(surroundings, "throughput/one-epoch", 1, warm)
    yield from _figures(surroundings, f"throughput/{_EPOCHS}-epochs", _EPOCHS, warm=1)


BENCHMARK: Final = Benchmark("throughput", "records per second, and a peer's", throughput)


def _figures(surroundings: Surroundings, name: str, epochs: int, warm: int) -> Iterator[Figure]:
    records = surroundings.effort.scaled(_RECORDS)
    clicks = Clicks(records // epochs, _SECONDS // epochs, _KEYS)
    folder = surroundings.folder()
    segments = [clicks.write(folder, segment) for segment in range(epochs)]
    spark = surroundings.spark()
    turns = one_by_one_of(
        surroundings.effort.jobs, warm, lambda: _turn(surroundings, spark, segments)
    )
    records = turns[0].records
    size = sum(file.stat().st_size for segment in segments for file in segment)
    yield Figure(
        name,
        f"{records:,} records of {size // records} bytes, {records // epochs:,} an epoch",
        Sample(tuple(turn.records / turn.own for turn in turns)),
        unit="records/s",
        peer=_PEER,
        peer_sample=Sample(tuple(turn.records / turn.peer for turn in turns)),
        note=f"the same {turns[0].rows:,} rows; ratio: more is faster than the peer",
    )
    yield Figure(
        f"{name}/processor",
        "processor time of Spark and its workers for 1,000,000 records",
        _per_million(turns, [turn.own_processor.both for turn in turns]),
        peer=_PEER,
        peer_sample=_per_million(turns, [turn.peer_processor.both for turn in turns]),
        note=f"{_share(turns):.0%} of it in Python workers; holds on a busy machine too",
    )
    yield from _by_step(name, turns)


def _turn(
    surroundings: Surroundings, spark: SparkSession, segments: Sequence[Sequence[Path]]
) -> _Turn:
    pipeline = ClickPipeline(surroundings.folder(), spark)
    stream = ClickStream(surroundings.folder(), spark, len(segments[0]))
    watch = StageWatch(spark)
    before = processor_time()
    epochs = []
    for segment in segments:
        pipeline.offer(segment)
        epochs.append(pipeline.run())
    between = processor_time()
    stages = watch.new()
    for segment in segments:
        stream.offer(segment)
    seconds = stream.run()
    after = processor_time()
    rows = pipeline.rows()
    if rows != stream.rows():
        raise RuntimeError("the pipeline and the stream gave different rows")
    counts = [epoch.manifest.counts for epoch in epochs]
    if [count.read for count in counts] != stream.batch_sizes:
        raise RuntimeError(f"batches of other sizes than epochs: {stream.batch_sizes}")
    if any(count.late or count.dead_lettered for count in counts):
        raise RuntimeError(f"records were set aside, and the peer keeps them: {counts}")
    return _Turn(
        records=sum(count.read for count in counts),
        own=sum(epoch.seconds for epoch in epochs),
        peer=seconds,
        own_processor=between.since(before),
        peer_processor=after.since(between),
        epochs=epochs,
        stages=stages,
        rows=len(rows),
    )


def _per_million(turns: Sequence[_Turn], seconds: Sequence[float]) -> Sample:
    return Sample(
        tuple(each / turn.records * 1e6 for each, turn in zip(seconds, turns, strict=True))
    )


def _share(turns: Sequence[_Turn]) -> float:
    return median(turn.own_processor.python / turn.own_processor.both for turn in turns)


def _by_step(name: str, turns: Sequence[_Turn]) -> Iterator[Figure]:
    whole = Sample(tuple(turn.own for turn in turns))
    steps = [step.name for step in turns[0].epochs[0].report.steps]
    for step in steps:
        yield Figure(
            f"{name}/{step}",
            f"step {step}",
            Sample(tuple(sum(e.steps.get(step, 0) for e in turn.epochs) for turn in turns)),
            peer="all epochs",
            peer_sample=whole,
        )
    per_epoch = len(turns[0].stages) // len(turns[0].epochs)
    for place in range(per_epoch):
        chosen = [turn.stages[place::per_epoch] for turn in turns]
        what = _STAGES[place] if per_epoch == len(_STAGES) else "of the job"
        tasks, shuffled = chosen[0][0].tasks, sum(stage.shuffled_bytes for stage in chosen[0])
        yield Figure(
            f"{name}/stage-{place + 1}",
            f"within Compute, stage {place + 1}: {what}",
            Sample(tuple(sum(stage.seconds for stage in stages) for stages in chosen)),
            peer="all epochs",
            peer_sample=whole,
            note=f"{tasks} tasks; {shuffled / 1e6:.1f} MB shuffled",
        )
