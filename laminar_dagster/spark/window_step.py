"""The two steps of a window aggregate that run in Python on the executors.

``PartialStep`` turns the records of a split into partials, one for each window and key.
``BucketStep`` takes all partials of one bucket: it adds them to the bucket's state, and hands out
the windows that close.

Both pass control rows on untouched, and count what they keep and what they drop.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.core.document import decode_part, encode_part
from laminar_dagster.core.errors import LaminarError
from laminar_dagster.core.ids import CheckpointId, PartitionId
from laminar_dagster.core.manifest import PartitionSnapshotEntry
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.spark.aggregates import first_partials
from laminar_dagster.spark.scan import CONTROL, PART
from laminar_dagster.spark.state_chain import END, Closing, StateChain, StateShape
from laminar_dagster.spark.watermarks import SourceClock, earliest

BUCKET: Final = "_bucket"
KEEP: Final = "_keep"
TIME: Final = "_time"
SEQUENCE: Final = "_sequence"
CONTROL_BUCKET: Final = -1

_ROWS_AT_ONCE: Final = 500_000


@dataclass(frozen=True)
class PartialStep:
    """Records to partials: for ``DataFrame.mapInArrow``.

    Input: ``_part``, ``_control``, ``_keep``, ``_time`` (microseconds), ``_bucket``, keys and
    arguments. Output: ``_bucket``, ``_part``, ``_sequence``, ``_control``, ``_end``, keys and
    partials. Control rows go to every bucket, because each has to know how far event time has come,
    and to one of their own, from which they find their way to the driver.
    """

    shape: StateShape
    size: int
    slide: int
    buckets: int
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Aggregate as many rows at once as memory allows."""
        waiting: list[pa.RecordBatch] = []
        rows = sequence = 0
        for batch in batches:
            waiting.append(batch)
            rows += batch.num_rows
            if rows >= _ROWS_AT_ONCE:
                yield from self._aggregate(waiting, sequence)
                waiting, rows = [], 0
                sequence += 1
        if waiting:
            yield from self._aggregate(waiting, sequence)

    def _aggregate(self, batches: list[pa.RecordBatch], sequence: int) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(batches)
        controls = table.filter(pc.is_valid(table.column(CONTROL)))
        records = table.filter(pc.is_null(table.column(CONTROL)))
        keep = pc.fill_null(records.column(KEEP), False)
        kept = records.filter(keep)
        part = table.column(PART)[0].as_py()
        tally = count_records(self.shape.operator, part, sequence, keep)
        reports = controls.column(CONTROL).to_pylist()
        yield self._controls([*reports, tally], [CONTROL_BUCKET])
        if reports:
            yield self._controls(reports, range(self.buckets))
        if not kept.num_rows:
            return
        windowed = _assign_windows(kept, self.size, self.slide)
        groups = [BUCKET, *self.shape.group]
        found = first_partials(windowed, groups, self.shape.columns, self.shape.operator)
        out = {
            **{name: found.column(name) for name in found.column_names},
            PART: pa.array(np.full(found.num_rows, part, np.int64)),
            SEQUENCE: pa.array(np.full(found.num_rows, sequence, np.int64)),
            CONTROL: pa.nulls(found.num_rows, pa.string()),
        }
        yield from pa.table(out).select(self.schema.names).cast(self.schema).to_batches()

    def _controls(self, texts: list[str], buckets: Iterable[int]) -> pa.RecordBatch:
        pairs = [(text, bucket) for text in texts for bucket in buckets]
        columns = {
            CONTROL: pa.array([text for text, _ in pairs], pa.string()),
            BUCKET: pa.array([bucket for _, bucket in pairs], pa.int64()),
        }
        return pa.RecordBatch.from_arrays(
            [columns.get(each.name, pa.nulls(len(pairs), each.type)) for each in self.schema],
            schema=self.schema,
        )


def count_records(operator: str, part: int, sequence: int, keep: pa.ChunkedArray) -> str:
    """What arrived and what the filter dropped, counted apart from what the reader counted."""
    processed = pc.sum(keep).as_py() or 0
    return json.dumps(
        {
            "operator": operator,
            "part": part,
            "sequence": sequence,
            "processed": processed,
            "filtered": len(keep) - processed,
        }
    )


def _assign_windows(rows: pa.Table, size: int, slide: int) -> pa.Table:
    """Each row once for every window it is in, in the order of the rows, with the window's end."""
    times = rows.column(TIME).to_numpy()
    last = np.floor_divide(times, slide) * slide
    copies = size // slide
    if copies == 1:
        return rows.append_column(END, pa.array(last + size))
    ends = (last[:, None] - np.arange(copies) * slide + size).ravel()
    return rows.take(pa.array(np.repeat(np.arange(len(times)), copies))).append_column(
        END, pa.array(ends)
    )


@dataclass(frozen=True)
class BucketStep:
    """Partials to state and closed windows: for ``GroupedData.applyInArrow`` by ``_bucket``.

    Output: ``_part`` (the bucket), ``_control``, ``_end``, keys, partials, sorted.
    """

    shape: StateShape
    clocks: tuple[SourceClock, ...]
    chains: Mapping[int, tuple[bytes, ...]]
    schema: pa.Schema
    attempt: CheckpointId
    store: ObjectStore = field(repr=False)

    def __call__(self, table: pa.Table) -> pa.Table:
        """Take a bucket through the epoch."""
        bucket = table.column(BUCKET)[0].as_py()
        if bucket == CONTROL_BUCKET:
            return self._controls(table.column(CONTROL).drop_null().to_pylist())
        try:
            return self._advance(bucket, table)
        except LaminarError as error:
            return self._controls([json.dumps(error.to_record())])

    def _advance(self, bucket: int, table: pa.Table) -> pa.Table:
        chain = StateChain(
            self.store,
            self.attempt,
            self.shape,
            PartitionId(bucket),
            tuple(_entry(data) for data in self.chains.get(bucket, ())),
        )
        closing = self._closing(table.column(CONTROL).drop_null().to_pylist())
        # A marker makes sure that every bucket is looked at; it has no window.
        new = table.filter(pc.is_valid(table.column(END)))
        new = new.sort_by([(PART, "ascending"), (SEQUENCE, "ascending")])
        merged = self.shape.merge([new])
        closes = _closes(merged, closing)
        files = chain.advance(merged.filter(pc.invert(closes)), closing)
        closed = self.shape.merge([*chain.closing_rows(closing), merged.filter(closes)])
        states = [
            json.dumps({"operator": self.shape.operator, "state": json.loads(encode_part(entry))})
            for entry in files
        ]
        out = {
            **{name: closed.column(name) for name in closed.column_names},
            PART: pa.array(np.full(closed.num_rows, bucket, np.int64)),
            CONTROL: pa.nulls(closed.num_rows, pa.string()),
        }
        rows = pa.table(out).select(self.schema.names).cast(self.schema)
        return pa.concat_tables([self._controls(states, bucket), rows])

    def _closing(self, controls: list[str]) -> Closing:
        seen: dict[str, dict[int, int | None]] = defaultdict(dict)
        for report in map(json.loads, controls):
            if "source" in report:
                seen[report["source"]][report["part"]] = report["watermark"]
        return Closing(
            earliest(clock.watermark for clock in self.clocks),
            earliest(clock.advance(seen[clock.source_id]) for clock in self.clocks),
        )

    def _controls(self, texts: list[str], bucket: int = CONTROL_BUCKET) -> pa.Table:
        columns = {
            CONTROL: pa.array(texts, pa.string()),
            PART: pa.array(np.full(len(texts), bucket, np.int64)),
        }
        return pa.table(
            [columns.get(each.name, pa.nulls(len(texts), each.type)) for each in self.schema],
            schema=self.schema,
        )


def _closes(rows: pa.Table, closing: Closing) -> Any:
    if closing.now is None:
        return pa.array(np.zeros(rows.num_rows, np.bool_))
    return pc.less_equal(rows.column(END), closing.now)


def _entry(data: bytes) -> PartitionSnapshotEntry:
    return decode_part(data, PartitionSnapshotEntry, "state entry")
