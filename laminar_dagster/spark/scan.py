"""Reading a source on the executors: ``mapInArrow`` over the numbers of its splits.

Each split is one Spark partition. Its task decodes chunk by chunk and sets aside records that are
late, have no event time, or one too far ahead of the plan's clock. It writes these, and records
that cannot be decoded, to the attempt's folder, and yields the rest as Arrow. Its last row is a
report in ``_control`` with its record counts: the report travels with the data, so that the records
that arrive can be checked against it.

Operators that need no Spark expression are pre-aggregated here: see ``early_partials``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from laminar_dagster.core import layout
from laminar_dagster.core.errors import DecodeFailed, LaminarError
from laminar_dagster.core.ids import CheckpointId, FileName, SourceId
from laminar_dagster.core.manifest import chunk_time
from laminar_dagster.core.offsets import SourceRange
from laminar_dagster.core.ports import DecodedChunk, ObjectStore, SplitReader
from laminar_dagster.spark.arrow_files import file_bytes, sha256
from laminar_dagster.spark.columns import CONTROL, LATE, PART
from laminar_dagster.spark.early_partials import (
    EarlyAggregator,
    EarlyOperator,
    early_fields,
    early_rows,
)
from laminar_dagster.spark.lateness import AheadBound, LatenessJudge
from laminar_dagster.spark.partial_step import control_rows

_LETTERS_PER_FILE: Final = 100_000


@dataclass(frozen=True)
class Split:
    """One piece of a source, and the watermarks it starts from."""

    part: int
    piece: SourceRange
    watermark: int | None


@dataclass(frozen=True)
class Scan:
    """Everything a task needs to read a split of a source.

    Attributes:
        schema: The schema of the records.
        early: The operators to pre-aggregate.
        hands_on: Whether to yield the records themselves, too, for readers not in ``early``.
        lateness: Records up to this late (microseconds) are yielded with ``_late``: windows allow
            them.
        bound: How far event time may be ahead of the plan's clock.
    """

    source_id: SourceId
    schema: pa.Schema
    reader: SplitReader = field(repr=False)
    splits: tuple[Split, ...]
    time_column: str | None
    delay: int
    floor: int | None
    fail_on_bad: bool
    store: ObjectStore = field(repr=False)
    attempt: CheckpointId
    early: tuple[EarlyOperator, ...] = ()
    hands_on: bool = True
    lateness: int = 0
    bound: AheadBound | None = None

    @property
    def row_schema(self) -> pa.Schema:
        """The schema of a task's rows: records, partials and reports."""
        records = self.schema if self.hands_on else []
        own = [pa.field(PART, pa.int64()), pa.field(CONTROL, pa.string())]
        own += [pa.field(LATE, pa.int64())] if self.lateness and self.hands_on else []
        return pa.schema([*records, *own, *early_fields(self.early)])


def scan_frame(spark: SparkSession, scan: Scan) -> DataFrame:
    """The rows of a scan's tasks, as a frame of ``scan.row_schema``.

    The query carries the scan itself, and with it the attempt. So a Spark Connect session, which
    caches resolved queries, never takes it for the query of another epoch or process.
    """
    # A source without data still has one task, which yields nothing.
    count = len(scan.splits)
    numbers = spark.range(0, count, 1, max(1, count))
    return numbers.mapInArrow(ScanStep(scan), from_arrow_schema(scan.row_schema))


@dataclass(frozen=True)
class ScanStep:
    """Reads the splits whose numbers it gets: for ``mapInArrow``."""

    scan: Scan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the splits that the rows of a task name."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.read(number)

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """Batches of ``Scan.row_schema``, the split's report last."""
        task = _SplitTask(self.scan, self.scan.splits[number])
        try:
            yield from task.run()
        except LaminarError as error:
            # As a row the error keeps its type; raised, the driver would get only a traceback.
            yield task.control_row(error.to_record())


@dataclass
class _SplitTask:
    scan: Scan
    split: Split
    read: int = 0
    size_bytes: int = 0
    passed: int = 0
    late: int = 0
    dead: int = 0
    ahead: int = 0
    added: int = 0
    skipped: int = 0
    chunks: int = 0
    fetch_seconds: float = 0.0
    decode_seconds: float = 0.0
    pauses: int = 0
    errors: int = 0
    chunk_times: Counter[int] = field(default_factory=Counter)
    schema_ids: set[int] = field(default_factory=set)
    files: list[dict[str, Any]] = field(default_factory=list)

    def run(self) -> Iterator[pa.RecordBatch]:
        scan = self.scan
        judge = None
        if scan.time_column:
            judge = LatenessJudge(
                scan.time_column, scan.delay, self.split.watermark, scan.floor, scan.bound
            )
        early = [EarlyAggregator(each, self.split.part) for each in scan.early]
        dead = _Letters(self, layout.bad_records_file)
        late = _Letters(self, layout.late_records_file)
        for chunk in scan.reader.read(self.split.piece):
            self._count(chunk)
            rows, bad = self._without_ahead(chunk, judge)
            if bad.num_rows and scan.fail_on_bad:
                first = bad.slice(0, 1).to_pylist()[0]
                place = f"{first['partition']}:{first['position']}"
                raise DecodeFailed(scan.source_id, place, first["reason"])
            self.dead += bad.num_rows
            dead.add(bad)
            if judge:
                behind = judge.lateness(rows)
                too_late = behind > scan.lateness
                if too_late.any():
                    lost = rows.filter(pa.array(too_late))
                    self.late += lost.num_rows
                    late.add(lost)
                    rows = rows.filter(pa.array(~too_late))
                    behind = behind[~too_late]
                if scan.lateness:
                    rows = rows.append_column(LATE, pa.array(behind))
            self.passed += rows.num_rows
            if rows.num_rows:
                if scan.hands_on:
                    yield self._record_rows(rows)
                for number, aggregator in enumerate(early):
                    for tally, partials in aggregator.add(rows):
                        yield from self._early_rows(number, tally, partials)
        for number, aggregator in enumerate(early):
            for tally, partials in aggregator.finish():
                yield from self._early_rows(number, tally, partials)
        dead.close()
        late.close()
        yield self.control_row(
            {
                "source": self.scan.source_id,
                "part": self.split.part,
                "attempt": self.scan.attempt,
                "read": self.read,
                "bytes": self.size_bytes,
                "passed": self.passed,
                "late": self.late,
                "dead": self.dead,
                "ahead": self.ahead,
                "watermark": judge.watermark if judge else None,
                "files": self.files,
                "added": self.added,
                "skipped": self.skipped,
                "schema_ids": sorted(self.schema_ids),
                "chunks": self.chunks,
                "fetch_micros": round(self.fetch_seconds * 1e6),
                "decode_micros": round(self.decode_seconds * 1e6),
                "pauses": self.pauses,
                "errors": self.errors,
                "chunk_times": [
                    self.chunk_times[place]
                    for place in range(max(self.chunk_times, default=-1) + 1)
                ],
            }
        )

    def _without_ahead(
        self, chunk: DecodedChunk, judge: LatenessJudge | None
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The good and the bad records of a chunk; records too far ahead of the clock are bad.

        If the reader cannot set rows aside they stay good, but they do not move the watermark.
        """
        rows, bad = chunk.rows, chunk.bad
        ahead = judge.times_ahead(rows) if judge else {}
        self.ahead += len(ahead)
        bound = self.scan.bound
        if not ahead or bound is None or chunk.set_aside is None:
            return rows, bad
        letters = chunk.set_aside({row: bound.problem(time) for row, time in ahead.items()})
        keep = np.ones(rows.num_rows, np.bool_)
        keep[list(ahead)] = False
        in_order = pa.concat_batches([bad, letters]).sort_by("position")
        return rows.filter(pa.array(keep)), in_order

    def _count(self, chunk: DecodedChunk) -> None:
        self.read += chunk.records
        self.size_bytes += chunk.size_bytes
        self.added += chunk.added
        self.skipped += chunk.skipped
        self.schema_ids |= chunk.schema_ids
        self.chunks += 1
        self.fetch_seconds += chunk.cost.fetch_seconds
        self.decode_seconds += chunk.cost.decode_seconds
        self.pauses += chunk.cost.pauses
        self.errors += chunk.cost.errors
        self.chunk_times[chunk_time(chunk.cost.fetch_seconds + chunk.cost.decode_seconds)] += 1

    def _record_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        count = rows.num_rows
        found = {name: rows.column(name) for name in rows.schema.names}
        found[PART] = pa.array(np.full(count, self.split.part, np.int64))
        schema = self.scan.row_schema
        columns = [found.get(each.name, pa.nulls(count, each.type)) for each in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _early_rows(self, number: int, tally: str, table: pa.Table) -> Iterator[pa.RecordBatch]:
        schema = self.scan.row_schema
        yield control_rows([tally], self.split.part, schema)
        yield from early_rows(number, table, schema)

    def control_row(self, report: dict[str, Any]) -> pa.RecordBatch:
        return control_rows([json.dumps(report)], self.split.part, self.scan.row_schema)


class _Letters:
    """Dead letters: records that were set aside, written to files of bounded size."""

    def __init__(self, task: _SplitTask, name: Callable[[int, int], FileName]) -> None:
        self._task = task
        self._name = name
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._written = 0

    def add(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._batches.append(batch)
            self._rows += batch.num_rows
        if self._rows >= _LETTERS_PER_FILE:
            self.close()

    def close(self) -> None:
        if not self._rows:
            return
        scan, part = self._task.scan, self._task.split.part
        path = layout.dead_letter_path(scan.source_id, self._name(part, self._written))
        data = file_bytes(pa.Table.from_batches(self._batches))
        scan.store.put(layout.checkpoint_key(scan.attempt, path), data)
        self._task.files.append(
            {"path": path, "size_bytes": len(data), "sha256": sha256(data), "rows": self._rows}
        )
        self._written += 1
        self._batches, self._rows = [], 0
