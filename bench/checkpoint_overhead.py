"""What being able to recover costs: the same job with state and manifest, and without.

Without: the same plan over the same files, computed on a store that forgets the operators' files,
on top of no state, and with none of the protocol's documents. Its output is still staged, because a
job without recovery has to write its output as well. Sinks take no part in either.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bench.click_jobs import ClickPipeline, Epoch
from bench.clickstream import Clicks
from bench.figures import Benchmark, Figure
from bench.measure import Sample
from bench.spark_watch import processor_time
from bench.surroundings import Surroundings
from laminar_dagster.runtime.clock import mint_checkpoint_id
from laminar_dagster.stores.local import LocalStore

_NAME: Final = "checkpoint-overhead"
_RECORDS: Final = 1_000_000
_SECONDS: Final = 60
_KEYS: Final = 50_000
_WARM: Final = 2
# checkpoints/{checkpoint id}/operators/…
_OPERATORS: Final = "operators"
_SINKS: Final = "CommitSinks"


class ForgetfulStore(LocalStore):
    """Takes an operator's files, and keeps nothing of them. Keeps everything else."""

    def put(self, key: str, data: bytes | memoryview) -> None:
        """Write what is no state."""
        _, _, kind, *_ = key.split("/")
        if kind != _OPERATORS:
            super().put(key, data)


@dataclass(frozen=True, slots=True)
class _Round:
    own: float
    without: float
    own_processor: float
    without_processor: float
    epoch: Epoch


def checkpoint_overhead(surroundings: Surroundings) -> Iterator[Figure]:
    """At a million records an epoch."""
    spark = surroundings.spark()
    records = surroundings.effort.scaled(_RECORDS)
    clicks = Clicks(records, _SECONDS, _KEYS)
    pipeline = ClickPipeline(surroundings.folder(), spark)
    forgetful = ForgetfulStore(surroundings.folder())
    folder = surroundings.folder()
    rounds = []
    for number in range(_WARM + 2 * surroundings.effort.jobs):
        pipeline.offer(clicks.write(folder, number))
        found = _round(pipeline, forgetful)
        if number >= _WARM:
            rounds.append(found)
    shares = tuple(1 - each.without / each.own for each in rounds)
    state = rounds[-1].epoch.manifest.operators[0].partitions
    size = sum(entry.size_bytes for entry in state)
    yield Figure(
        f"{_NAME}/epoch",
        f"an epoch of {records:,} records with state and manifest, without its sinks",
        Sample(tuple(each.own for each in rounds)),
        peer="without state and manifest",
        peer_sample=Sample(tuple(each.without for each in rounds)),
        note=f"{_KEYS:,} keys; {size / 1e6:.1f} MB of state in {len(state)} files after it",
    )
    yield Figure(
        f"{_NAME}/processor",
        "processor time of Spark and its workers",
        Sample(tuple(each.own_processor for each in rounds)),
        peer="without state and manifest",
        peer_sample=Sample(tuple(each.without_processor for each in rounds)),
    )
    yield Figure(
        f"{_NAME}/share",
        "share of the epoch that goes into state and manifest",
        Sample(shares),
        unit="share",
    )


BENCHMARK: Final = Benchmark(_NAME, "the price of state and manifest", checkpoint_overhead)


def _round(pipeline: ClickPipeline, forgetful: ForgetfulStore) -> _Round:
    start = processor_time()
    epoch = pipeline.run()
    middle = processor_time()
    without = _without_recovery(pipeline, epoch, forgetful)
    end = processor_time()
    return _Round(
        own=epoch.seconds - epoch.steps[_SINKS],
        without=without,
        own_processor=middle.since(start).both,
        without_processor=end.since(middle).both,
        epoch=epoch,
    )


def _without_recovery(pipeline: ClickPipeline, epoch: Epoch, forgetful: ForgetfulStore) -> float:
    parts = pipeline.pipeline
    plan = parts.checkpoints.plan(epoch.report.epoch)
    if plan is None:
        raise RuntimeError(f"epoch {epoch.report.epoch} left no plan")
    engine = dataclasses.replace(pipeline.engine, store=forgetful)
    (source,) = parts.sources
    (planned,) = plan.sources
    starts = tuple(part.start for part in planned.ranges)
    begun = time.perf_counter()
    source.plan(None, starts, parts.limits, plan.clock)
    output = engine.compute(plan, None, mint_checkpoint_id())
    seconds = time.perf_counter() - begun
    if output.counts.read != epoch.manifest.counts.read:
        raise RuntimeError("the two did not read the same")
    return seconds
