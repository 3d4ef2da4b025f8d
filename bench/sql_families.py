"""Records per second of each family of SQL, beside Structured Streaming where it has the same.

Each turn runs a query over the same files in a few epochs, or batches, with fresh folders. If both
do not end with as many rows, there is no figure but an error. Of windows only those count that
began a minute before the end: watermarks of several files and of one batch differ by milliseconds.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.click_jobs import ClickPipeline
from bench.click_schema import COLUMNS, DELAY_SECONDS
from bench.clickstream import START, Clicks
from bench.figures import Benchmark, Figure
from bench.measure import Sample, one_by_one_of
from bench.spark_watch import ProcessorTime, processor_time
from bench.sql_queries import FAMILIES, KEYS, Family
from bench.surroundings import Surroundings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RECORDS: Final = 1_000_000
_SECONDS: Final = 1_200
_EPOCHS: Final = 4
_PEER: Final = "Structured Streaming"
_SETTLED: Final = START + timedelta(seconds=_SECONDS - 60)


@dataclass(frozen=True, slots=True)
class _Turn:
    records: int
    own: float
    own_processor: ProcessorTime
    rows: int
    peer: float = 0.0
    peer_processor: ProcessorTime | None = None


def sql_families(surroundings: Surroundings) -> Iterator[Figure]:
    """Each in turn."""
    records = surroundings.effort.scaled(_RECORDS)
    clicks = Clicks(records // _EPOCHS, _SECONDS // _EPOCHS, surroundings.effort.scaled(KEYS))
    folder = surroundings.folder()
    segments = [clicks.write(folder, segment) for segment in range(_EPOCHS)]
    for family in FAMILIES:
        turn = partial(_turn, surroundings, family, segments)
        turns = one_by_one_of(surroundings.effort.jobs, 1, turn)
        yield from _figures(family, turns)


BENCHMARK: Final = Benchmark("sql-families", "records per second by family of SQL", sql_families)


def _figures(family: Family, turns: Sequence[_Turn]) -> Iterator[Figure]:
    name, has_peer = f"sql-families/{family.name}", family.peer is not None
    note = f"{turns[0].rows:,} rows" + ("" if has_peer else f"; {_PEER} has no such thing")
    yield Figure(
        name,
        f"{family.what}, {turns[0].records:,} records in {_EPOCHS} epochs",
        Sample(tuple(turn.records / turn.own for turn in turns)),
        unit="records/s",
        peer=_PEER if has_peer else "",
        peer_sample=Sample(tuple(turn.records / turn.peer for turn in turns)) if has_peer else None,
        note=note,
    )
    yield Figure(
        f"{name}/processor",
        "processor time of Spark and its workers for 1,000,000 records",
        Sample(tuple(turn.own_processor.both / turn.records * 1e6 for turn in turns)),
        peer=_PEER if has_peer else "",
        peer_sample=Sample(
            tuple(t.peer_processor.both / t.records * 1e6 for t in turns if t.peer_processor)
        )
        if has_peer
        else None,
    )


def _turn(surroundings: Surroundings, family: Family, segments: Sequence[Sequence[Path]]) -> _Turn:
    spark = surroundings.spark()
    pipeline = ClickPipeline(
        surroundings.folder(), spark, query=family.sql, sink=family.sink, files=family.files
    )
    before = processor_time()
    epochs = []
    for segment in segments:
        pipeline.offer(segment)
        epochs.append(pipeline.run())
    between = processor_time()
    records = sum(epoch.manifest.counts.read for epoch in epochs)
    rows = _own_rows(pipeline.root, family)
    own = sum(epoch.seconds for epoch in epochs)
    if family.peer is None:
        return _Turn(records, own, between.since(before), rows)
    root = surroundings.folder()
    begun = time.perf_counter()
    _stream(spark, root, family, segments)
    seconds = time.perf_counter() - begun
    after = processor_time()
    found = _peer_rows(root, family)
    if found != rows:
        raise RuntimeError(f"{family.name}: {rows} rows, and {found} of {_PEER}")
    return _Turn(records, own, between.since(before), rows, seconds, after.since(between))


def _stream(
    spark: SparkSession, root: Path, family: Family, segments: Sequence[Sequence[Path]]
) -> None:
    """All segments, a batch each, through the peer's query into files of Parquet."""
    assert family.peer is not None
    folder = root / "input"
    folder.mkdir(parents=True)
    for file in (file for segment in segments for file in segment):
        os.link(file, folder / file.name)
    clicks = (
        spark.readStream.schema(COLUMNS)
        .option("maxFilesPerTrigger", len(segments[0]))
        .json(str(folder))
        .withWatermark("at", f"{DELAY_SECONDS} seconds")
    )
    writer = family.peer(clicks).writeStream.outputMode(family.mode).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(root / "checkpoint"))

    def write(batch: Any, number: int) -> None:
        batch.write.parquet(str(root / "out" / str(number)))

    writer.foreachBatch(write).start().awaitTermination()


def _own_rows(root: Path, family: Family) -> int:
    with closing(sqlite3.connect(root / "out.db")) as database:
        if family.since:
            settled = [_SETTLED.isoformat(" ")]
            found = database.execute("SELECT count(*) FROM pages WHERE since < ?", settled)
        else:
            found = database.execute("SELECT count(*) FROM pages")
        return int(found.fetchone()[0])


def _peer_rows(root: Path, family: Family) -> int:
    table = pa.concat_tables([pq.read_table(each) for each in sorted((root / "out").iterdir())])
    if family.since:
        times = table.column(family.since)
        return int(pc.sum(pc.less(times, pa.scalar(_SETTLED, times.type))).as_py())
    if not family.key:
        return int(table.num_rows)
    names = [name.strip() for name in family.key.split(",")]
    return int(table.select(names).group_by(names).aggregate([]).num_rows)
