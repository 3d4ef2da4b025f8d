"""Whether each key has one row at most, told from what is staged: its columns and the weights.

A row comes with a weight of 1, or without any, and is taken back with -1. A sink applies them in
their order, by key. So of one key they have to take turns: two rows that come one after the other
are two rows with one key, and so are two that go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.core.ports import HeldKeys, StagedOutput
from laminar_dagster.sinks.bad_values import show_row, show_values
from laminar_dagster.sinks.changes import WEIGHT, plain
from laminar_dagster.sinks.staged import staged_columns

NONE_HELD: Final = HeldKeys(0, "")
# No column of a view begins so.
_FIRST: Final = "_first_weight"
_LAST: Final = "_last_weight"
_REPEATS: Final = "_repeats"


def changes_by_key(outputs: Iterable[StagedOutput], key: tuple[str, ...]) -> pa.Table | None:
    """The first and the last weight of each key, and whether one came twice in a row.

    Args:
        outputs: What was staged for one sink, in the order in which it applies.
        key: Of the sink.

    Returns:
        A row for each key; None if there are no files.

    Raises:
        ObjectMissing, ChecksumMismatch, MalformedDocument: A file cannot be read.
    """
    wanted = (*key, WEIGHT)
    found: list[pa.Table] = []
    for output in outputs:
        for rows in staged_columns(output, lambda schema: [n for n in wanted if n in schema.names]):
            columns = {name: plain(rows.column(name)) for name in key}
            if WEIGHT in rows.column_names:
                columns[WEIGHT] = rows.column(WEIGHT).cast(pa.int8())
            else:
                columns[WEIGHT] = pa.repeat(pa.scalar(1, pa.int8()), rows.num_rows)
            found.append(pa.table(columns))
    if not found:
        return None
    return _in_turns(pa.concat_tables(found, promote_options="permissive"), key)


def repeated(changes: pa.Table, key: tuple[str, ...]) -> HeldKeys:
    """Keys with more than one row."""
    return shown(changes.filter(changes.column(_REPEATS)), key)


def to_look_up(
    changes: pa.Table, before: pa.Table | None, key: tuple[str, ...]
) -> tuple[pa.Table, HeldKeys]:
    """The keys that no row may have yet, and those of which it is known that one has.

    Args:
        changes: Of the epoch.
        before: Of epochs that are published, and that the sink does not hold yet; None of none.
        key: Of the sink.
    """
    new = changes.filter(pc.equal(changes.column(_FIRST), 1)).select(key)
    if before is None or not new.num_rows:
        return new, NONE_HELD
    both = pa.concat_tables(
        [
            before.select([*key, _LAST]),
            new.append_column(_LAST, pa.repeat(pa.scalar(0, pa.int8()), new.num_rows)),
        ],
        promote_options="permissive",
    )
    summed = both.group_by([*key], use_threads=False).aggregate(
        [(_LAST, "min"), (_LAST, "max"), (_LAST, "count")]
    )
    least, most = summed.column(f"{_LAST}_min"), summed.column(f"{_LAST}_max")
    # A key stands in each of the two once: 0 where it is new now, else what it was before.
    is_alone = pc.equal(summed.column(f"{_LAST}_count"), 1)
    unknown = summed.filter(pc.and_(is_alone, pc.and_(pc.equal(least, 0), pc.equal(most, 0))))
    there = summed.filter(pc.and_(pc.equal(least, 0), pc.equal(most, 1)))
    return unknown.select(key), shown(there, key)


def shown(rows: pa.Table, key: tuple[str, ...]) -> HeldKeys:
    """So many keys, and one of them for people."""
    return HeldKeys(rows.num_rows, show_row(rows, 0, key)) if rows.num_rows else NONE_HELD


def found_by_search(row: Sequence[object] | None, key: tuple[str, ...]) -> HeldKeys:
    """What a database answers: how many keys, and the values of one; no row if none."""
    if row is None:
        return NONE_HELD
    count, *values = row
    assert isinstance(count, int)
    return HeldKeys(count, show_values(key, map(repr, values)))


def _in_turns(rows: pa.Table, key: tuple[str, ...]) -> pa.Table:
    found = rows.group_by([*key], use_threads=False).aggregate([(WEIGHT, "list")])
    weights = found.column(f"{WEIGHT}_list").combine_chunks()
    values = weights.flatten().to_numpy(zero_copy_only=False)
    lengths = pc.list_value_length(weights).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(lengths)
    starts = ends - lengths
    repeats = np.zeros(len(values), np.bool_)
    repeats[1:] = values[1:] == values[:-1]
    # The first of a key comes after another key's last.
    repeats[starts] = False
    which = np.zeros(found.num_rows, np.bool_)
    which[np.searchsorted(ends, np.flatnonzero(repeats), side="right")] = True
    return (
        found.select(key)
        .append_column(_FIRST, pa.array(values[starts], pa.int8()))
        .append_column(_LAST, pa.array(values[ends - 1], pa.int8()))
        .append_column(_REPEATS, pa.array(which))
    )
