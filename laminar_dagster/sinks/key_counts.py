"""Check that each key has at most one row, from the keys and weights of staged output.

An insert has a weight of 1, or none; a retraction has -1. A sink applies them in order, by key. So
the weights of a key must alternate: two inserts in a row are two rows with one key, and so are two
retractions in a row.
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
# Names that no column of a view has.
_FIRST: Final = "_first_weight"
_LAST: Final = "_last_weight"
_REPEATS: Final = "_repeats"


def changes_by_key(outputs: Iterable[StagedOutput], key: tuple[str, ...]) -> pa.Table | None:
    """The first and the last weight of each key, and whether a weight came twice in a row.

    Args:
        outputs: The staged outputs for one sink, in the order in which they apply.
        key: The sink's key columns.

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
    """Inserted keys to look up in the sink, which must not have them, and keys known to exist.

    Args:
        changes: The epoch's result of ``changes_by_key``.
        before: That of earlier epochs which the sink has not committed yet; None if there are none.
        key: The sink's key columns.
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
    # Each key occurs at most once per part: 0 if it is inserted now, else its last weight before.
    is_alone = pc.equal(summed.column(f"{_LAST}_count"), 1)
    unknown = summed.filter(pc.and_(is_alone, pc.and_(pc.equal(least, 0), pc.equal(most, 0))))
    there = summed.filter(pc.and_(pc.equal(least, 0), pc.equal(most, 1)))
    return unknown.select(key), shown(there, key)


def shown(rows: pa.Table, key: tuple[str, ...]) -> HeldKeys:
    """The number of keys, and one of them as an example for messages."""
    return HeldKeys(rows.num_rows, show_row(rows, 0, key)) if rows.num_rows else NONE_HELD


def found_by_search(row: Sequence[object] | None, key: tuple[str, ...]) -> HeldKeys:
    """Convert the row of a search: the number of keys, and the values of one; None for no keys."""
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
    # The first weight of a key has another key's last weight before it: no repeat.
    repeats[starts] = False
    which = np.zeros(found.num_rows, np.bool_)
    which[np.searchsorted(ends, np.flatnonzero(repeats), side="right")] = True
    return (
        found.select(key)
        .append_column(_FIRST, pa.array(values[starts], pa.int8()))
        .append_column(_LAST, pa.array(values[ends - 1], pa.int8()))
        .append_column(_REPEATS, pa.array(which))
    )
