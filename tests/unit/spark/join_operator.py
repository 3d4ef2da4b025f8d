"""One bucket of a join, taken from epoch to epoch as the engine does it; and what it should say."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

import pyarrow as pa

from laminar_dagster.config.relations import Join, JoinSide, Projection, TableInput, Window
from laminar_dagster.core.document import encode_part
from laminar_dagster.core.ids import CheckpointId, OperatorId
from laminar_dagster.core.manifest import PartitionSnapshotEntry
from laminar_dagster.spark.aggregation_shapes import assignment_of
from laminar_dagster.spark.columns import BUCKET, CONTROL, HASH, KEEP, PART, TIME
from laminar_dagster.spark.join_frames import terms_of_join
from laminar_dagster.spark.join_records import FITS, JoinRecords
from laminar_dagster.spark.join_shape import JoinShape, KeptColumn
from laminar_dagster.spark.join_step import JoinStep
from laminar_dagster.spark.keyed_rows import WEIGHT
from laminar_dagster.spark.partial_step import PartialStep
from laminar_dagster.spark.state_shape import KeyColumn
from laminar_dagster.spark.watermarks import Lane, SourceClock
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.spark.step_reports import state_and_rows

COLUMNS = ("left.v", "left.t", "right.v", "right.t")


@dataclass(frozen=True)
class Record:
    """A record of the left (0) or the right (1)."""

    side: int
    time: int
    key: str | None
    value: int
    weight: int = 1


def join_of(
    kind: Any,
    emits: Any,
    bounds: tuple[int, int] | None,
    lags: tuple[int, int] = (0, 0),
    window: Window | None = None,
    comparisons: tuple[Any, ...] = (),
    *,
    is_picky: bool = False,
) -> Join:
    """A join by one key; with ``is_picky``, rows with an odd value have no partner."""
    sides = [
        JoinSide(
            TableInput(name),
            tuple(Projection(f"{name}.{each}", each) for each in ("v", "t")),
            keys=("k",),
            operands=("v",) * len(comparisons),
            where="v % 2 = 0" if is_picky else None,
            lag_micros=lag,
            window=window,
        )
        for name, lag in zip(("left", "right"), lags, strict=True)
    ]
    return Join(sides[0], sides[1], kind, emits, bounds, comparisons)


@dataclass
class Operator:
    """Keeps what a manifest would."""

    join: Join
    store: MemoryStore = field(default_factory=MemoryStore)
    files: tuple[PartitionSnapshotEntry, ...] = ()
    watermark: int | None = None
    epoch: int = 0
    hashes: int = 2**62

    @property
    def shape(self) -> JoinShape:
        """Of its state."""
        operands = tuple(
            KeptColumn(f"_x{place}", pa.int64()) for place in range(len(self.join.comparisons))
        )
        columns = tuple(KeptColumn(name, pa.int64()) for name in COLUMNS)
        key = KeyColumn("_k0", "k = k", pa.string())
        return JoinShape(OperatorId("pairs"), (key,), operands, columns)

    def step(self) -> JoinStep:
        """What the next epoch does."""
        self.epoch += 1
        return JoinStep(
            shape=self.shape,
            clocks=(SourceClock("s", self.watermark, (Lane(0, self.watermark, False),)),),
            chains={0: tuple(encode_part(each) for each in self.files)} if self.files else {},
            attempt=CheckpointId.from_parts(self.epoch, self.epoch),
            store=self.store,
            terms=terms_of_join(self.join),
        )

    def run(self, records: Iterable[Record], watermark: int) -> list[dict[str, Any]]:
        """An epoch; what comes out of it, in order."""
        step, rows = self.step(), [*records]
        made: list[pa.RecordBatch] = []
        for number, side in enumerate(self.join.sides):
            windows = assignment_of(side.window) if side.window else None
            partials = PartialStep(JoinRecords(self.shape, step.terms, number, windows))
            batch = self._batch([each for each in rows if each.side == number], number, watermark)
            made += partials(iter([batch]))
        found = self._advance(step, pa.Table.from_batches(made))
        self.watermark = watermark
        return found

    def spread(self) -> None:
        """What a rescale does: the open rows are written anew."""
        step = self.step()
        rows = step.chain_of(0).open_rows(step.closed_before)
        count = rows.num_rows
        for name, column in {
            PART: pa.array([0] * count, pa.int64()),
            "_sequence": pa.array([0] * count, pa.int64()),
            CONTROL: pa.nulls(count, pa.string()),
        }.items():
            rows = rows.append_column(name, column)
        if count:
            assert self._advance(step.spreading(), rows.drop_columns([HASH])) == []
        else:
            self.files = ()
        assert sum(each.rows or 0 for each in self.files) == count

    def _advance(self, step: JoinStep, rows: pa.Table) -> list[dict[str, Any]]:
        keys = rows.column("_k0").to_pylist()
        found = [crc32(repr(key).encode()) * 2**30 % self.hashes for key in keys]
        bucket = rows.append_column(HASH, pa.array(found, pa.int64()))
        out = step(bucket.append_column(BUCKET, pa.array([0] * bucket.num_rows, pa.int64())))
        self.files, told = state_and_rows(out, step.attempt, self.epoch)
        return told

    def _batch(self, records: list[Record], number: int, watermark: int) -> pa.RecordBatch:
        control = json.dumps({"source": "s", "part": 0, "watermark": watermark})
        count, name = len(records), ("left", "right")[number]
        values = pa.array([each.value for each in records] + [None], pa.int64())
        times = pa.array([each.time for each in records] + [None], pa.int64())
        columns = {
            PART: pa.array([number] * (count + 1), pa.int64()),
            CONTROL: pa.array([None] * count + [control], pa.string()),
            KEEP: pa.array([True] * count + [False]),
            TIME: times,
            "_k0": pa.array([each.key for each in records] + [None], pa.string()),
            WEIGHT: pa.array([each.weight for each in records] + [None], pa.int8()),
            f"{name}.v": values,
            f"{name}.t": times,
            **{f"_x{place}": values for place in range(len(self.join.comparisons))},
        }
        if self.join.left.where is not None:
            columns[FITS] = pa.array([each.value % 2 == 0 for each in records] + [None])
        return pa.record_batch(columns)


def told(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Rows that came out, by how often; those of windows with their end."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        found[tuple(row[name] for name in COLUMNS)] += row[WEIGHT]
    return Counter({row: count for row, count in found.items() if count})


def expected(join: Join, records: Iterable[Record]) -> Counter[tuple[Any, ...]]:
    """What a join of whole tables gives; rows of a window each for itself."""
    net: Counter[Record] = Counter()
    for each in records:
        net[replace(each, weight=1)] += each.weight
    rows = [(each, count) for each, count in net.items() if count]
    found: Counter[tuple[Any, ...]] = Counter()
    sides = [[each for each in rows if each[0].side == side] for side in (0, 1)]
    for window in _windows(join, records):
        left, right = (
            [each for each in side if window is None or window[0] <= each[0].time < window[1]]
            for side in sides
        )
        for mine, others, number in ((left, right, 0), (right, left, 1)):
            for one, count in mine:
                partners = [(r, n) for r, n in others if _fit(join, one, r)]
                alone = {0: (one.value, one.time, None, None), 1: (None, None, one.value, one.time)}
                is_lonely = sum(n for _, n in partners) <= 0
                lonely = ("left", "full", "anti") if number == 0 else ("right", "full")
                if is_lonely and join.kind in lonely:
                    found[alone[number]] += count
                if not is_lonely and join.kind == "semi" and number == 0:
                    found[alone[0]] += count
                if join.kind not in ("semi", "anti") and number == 0:
                    for other, more in partners:
                        found[one.value, one.time, other.value, other.time] += count * more
    return found


def _windows(join: Join, records: Iterable[Record]) -> list[tuple[int, int] | None]:
    window = join.left.window
    if window is None:
        return [None]
    last = max((each.time for each in records), default=0)
    first = -window.size_micros
    starts = range(first - first % window.slide_micros, last + 1, window.slide_micros)
    return [(start, start + window.size_micros) for start in starts]


def _fit(join: Join, one: Record, other: Record) -> bool:
    left, right = (one, other) if one.side == 0 else (other, one)
    if left.key is None or left.key != right.key:
        return False
    if join.left.where is not None and (left.value % 2 or right.value % 2):
        return False
    if join.bounds and not join.bounds[0] <= right.time - left.time <= join.bounds[1]:
        return False
    compare = {"<": left.value < right.value, ">=": left.value >= right.value}
    return all(compare[each] for each in join.comparisons)
