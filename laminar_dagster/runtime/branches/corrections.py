"""Computes corrections: the upserts and deletes that turn a pipeline's output into its branch's.

Pure: tables in, tables out. A correction that might be wrong is not made; its ``problem`` says why.

A sink that appends can get more rows, but no retraction. A sink that upserts gets the last row of
every key that differs. A key that only the pipeline has written has to be deleted; but it may have
had an older value before the branch began, which is not known any more. So it is deleted only
where there was nothing before: the branch starts from nothing, or the key holds a window that was
still open then, together with all that the window is grouped by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.core.branch import BranchSink, BranchWindow
from laminar_dagster.runtime.branches.rows import as_type_of, comparable, compare_rows, is_same
from laminar_dagster.sinks.changes import WEIGHT, last_of_each_key

_OLD: Final = "old"
_NEW: Final = "new"


@dataclass(frozen=True, slots=True)
class Correction:
    """The correction of one sink.

    Attributes:
        rows: Rows to stage for it; None when the sink is right as it is.
        problem: Why it cannot be corrected; there are no rows then.
    """

    rows: pa.Table | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a sink held before the epochs that are corrected.

    Attributes:
        is_empty: Whether it was empty: the branch starts from the beginning, or the sink is new.
        closed_until: The watermark by which windows were closed then; None when none was.
    """

    is_empty: bool
    closed_until: int | None = None


def correct_append(old: pa.Table | None, new: pa.Table | None) -> Correction:
    """A correction of a sink that only takes rows.

    Args:
        old: The pipeline's output.
        new: The branch's output.
    """
    if old is not None and new is not None:
        found = compare_rows(old, new)
        old, new = found.only_old, found.only_new
    if old is not None and old.num_rows:
        return Correction(problem=f"it appends, and holds {_rows(old.num_rows)} to take back")
    if new is None or not new.num_rows:
        return Correction()
    return Correction(new)


def correct_upsert(
    old: pa.Table | None, new: pa.Table | None, sink: BranchSink, before: Beginning
) -> Correction:
    """A correction of a sink that keeps one row for each key.

    Args:
        old: The pipeline's output, in order.
        new: The branch's output, in order.
        sink: The sink, with its key and whether that holds a window.
        before: What the sink held before either.
    """
    shape = new if new is not None else old
    if shape is None:
        return Correction()
    for table in (old, new):
        missing = [
            name for name in sink.key if table is not None and name not in table.column_names
        ]
        if missing:
            return Correction(problem=f"there is output without its key column `{missing[0]}`")
        # As a sink would refuse: a row with a null key can be neither upserted nor deleted.
        for name in sink.key:
            nulls = table.column(name).null_count if table is not None else 0
            if nulls:
                return Correction(problem=f"its key column `{name}` is null in {_rows(nulls)}")
    was = _last(old if old is not None else shape.schema.empty_table(), sink.key)
    now = _last(new if new is not None else shape.schema.empty_table(), sink.key)
    keys = as_type_of(was.select(sink.key), now.select(sink.key).schema)
    if keys is None:
        return Correction(problem="the types of its key have changed")
    found = _matched(keys, now.select(sink.key))
    in_old, in_new = pc.is_valid(found.column(_OLD)), pc.is_valid(found.column(_NEW))
    puts_old = _puts(was, found.column(_OLD))
    puts_new = _puts(now, found.column(_NEW))
    same = pc.and_(pc.and_(in_old, in_new), _same(was, now, found))
    put = pc.and_(pc.and_(in_new, puts_new), pc.invert(same))
    # Keys that the branch has deleted; if the sink was empty, only those the pipeline has written.
    gone = pc.and_(pc.and_(in_new, pc.invert(puts_new)), pc.invert(same))
    if before.is_empty:
        gone = pc.and_(gone, in_old)
    lone = pc.and_(in_old, pc.invert(in_new))
    orphans = keys.take(found.column(_OLD).filter(lone))
    if orphans.num_rows and not before.is_empty:
        unsure = _unsure(orphans, old, pc.filter(puts_old, lone), sink, before)
        if unsure:
            reason = f"{_rows(unsure)} by key, only in the pipeline's output, may have had "
            return Correction(problem=reason + "an older value")
    deleted = pa.concat_tables(
        [
            now.select(sink.key).take(found.column(_NEW).filter(gone)),
            keys.take(found.column(_OLD).filter(pc.and_(lone, puts_old))),
        ]
    )
    rows = now.take(found.column(_NEW).filter(put))
    return _staged(rows, deleted, sink.key, has_weight=WEIGHT in shape.column_names)


def _last(table: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """The last row of each key, with its weight."""
    if WEIGHT not in table.column_names:
        table = table.append_column(WEIGHT, pa.array(np.ones(table.num_rows, np.int8)))
    # Output of an epoch without a weight column holds insertions only.
    weights = pc.fill_null(table.column(WEIGHT), 1)
    table = table.set_column(table.column_names.index(WEIGHT), WEIGHT, weights)
    return last_of_each_key(table, key)


def _matched(old: pa.Table, new: pa.Table) -> pa.Table:
    """For each key, the number of its row in either table; null where it has none."""
    sides = []
    for table, side in ((old, _OLD), (new, _NEW)):
        columns = {f"k{place}": comparable(each) for place, each in enumerate(table.columns)}
        numbers = pa.array(np.arange(table.num_rows, dtype=np.int64))
        sides.append(pa.table({**columns, side: numbers}))
    both = pa.concat_tables(sides, promote_options="default")
    names = [name for name in both.column_names if name not in (_OLD, _NEW)]
    found = both.group_by(names, use_threads=False).aggregate([(_OLD, "min"), (_NEW, "min")])
    return pa.table({_OLD: found.column("old_min"), _NEW: found.column("new_min")})


def _puts(table: pa.Table, places: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whether the row of each key is an upsert, not a delete; false where there is no row."""
    return pc.fill_null(pc.greater(table.column(WEIGHT).take(places), 0), False)


def _same(old: pa.Table, new: pa.Table, found: pa.Table) -> pa.ChunkedArray:
    """Whether the two rows of each key are the same; two deletions are, whatever else they hold."""
    was, now = old.take(found.column(_OLD)), new.take(found.column(_NEW))
    both_delete = pc.and_(
        pc.less(pc.fill_null(was.column(WEIGHT), 1), 0),
        pc.less(pc.fill_null(now.column(WEIGHT), 1), 0),
    )
    # A different type of the weight column alone is no difference.
    was = was.set_column(
        was.column_names.index(WEIGHT),
        WEIGHT,
        was.column(WEIGHT).cast(now.schema.field(WEIGHT).type),
    )
    alike = as_type_of(was, now.schema)
    if alike is None:
        return both_delete
    same = pa.chunked_array([pa.array(np.ones(now.num_rows, np.bool_))])
    for name in now.column_names:
        same = pc.and_(same, is_same(alike.column(name), now.column(name)))
    return pc.or_(same, both_delete)


def _unsure(
    orphans: pa.Table,
    old: pa.Table | None,
    puts: pa.ChunkedArray,
    sink: BranchSink,
    before: Beginning,
) -> int:
    """How many keys that only the pipeline has may have had a value before."""
    if sink.window is None or old is None:
        return int(orphans.num_rows)
    was_open = _was_open(orphans.column(sink.window.column), sink.window, before.closed_until)
    # A key that the pipeline wrote more than once may have been written before the branch, too.
    counted = _matched_counts(old.select(sink.key))
    once = pc.equal(counted.take(_places(orphans, old.select(sink.key))), 1)
    sure = pc.and_(pc.and_(was_open, once), puts)
    # Nulls, which ``sum`` skips, count as unsure.
    return int(orphans.num_rows - (pc.sum(sure.cast(pa.int64())).as_py() or 0))


def _was_open(
    bounds: pa.ChunkedArray, window: BranchWindow, closed_until: int | None
) -> pa.ChunkedArray:
    if not pa.types.is_timestamp(bounds.type):
        return pa.chunked_array([pa.array(np.zeros(len(bounds), np.bool_))])
    if closed_until is None:
        return pa.chunked_array([pa.array(np.ones(len(bounds), np.bool_))])
    micros = bounds.cast(pa.timestamp("us", bounds.type.tz)).cast(pa.int64())
    ends = micros if window.is_end else pc.add(micros, window.size_micros)
    return pc.fill_null(pc.greater(ends, closed_until), False)


def _numbered_keys(table: pa.Table) -> tuple[pa.Table, list[str]]:
    columns = {f"k{place}": comparable(each) for place, each in enumerate(table.columns)}
    numbers = pa.array(np.arange(table.num_rows, dtype=np.int64))
    return pa.table({**columns, "row": numbers}), list(columns)


def _matched_counts(keys: pa.Table) -> pa.ChunkedArray:
    """How often the key of each row occurs."""
    rows, names = _numbered_keys(keys)
    counts = rows.group_by(names, use_threads=False).aggregate([("row", "count")])
    joined = rows.join(counts, names, use_threads=False).sort_by("row")
    return joined.column("row_count")


def _places(wanted: pa.Table, keys: pa.Table) -> pa.ChunkedArray:
    """The index of a row in ``keys`` for each wanted key, all of which occur there."""
    found = _matched(wanted, as_type_of(keys, wanted.schema))
    return found.filter(pc.is_valid(found.column(_OLD))).sort_by(_OLD).column(_NEW)


def _staged(
    rows: pa.Table, deleted: pa.Table, key: tuple[str, ...], *, has_weight: bool
) -> Correction:
    """Rows to put and keys to delete as one table, in the order of the keys."""
    if not rows.num_rows and not deleted.num_rows:
        return Correction()
    gone = deleted.num_rows
    if gone:
        nothing = {each.name: pa.nulls(gone, each.type) for each in rows.schema}
        weights = pa.array(np.full(gone, -1), rows.schema.field(WEIGHT).type)
        held = {name: deleted.column(name) for name in key}
        marked = pa.table({**nothing, **held, WEIGHT: weights}).select(rows.column_names)
        rows = pa.concat_tables([rows, marked.cast(rows.schema)])
    rows = rows.sort_by([(name, "ascending") for name in key])
    if not gone and not has_weight:
        rows = rows.drop_columns([WEIGHT])
    return Correction(rows)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
