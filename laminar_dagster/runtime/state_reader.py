"""An operator's state at the end of an epoch, as a table of its open windows or keys."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.core import layout
from laminar_dagster.core.errors import RestoreFailed
from laminar_dagster.core.ids import OperatorId, PartitionId
from laminar_dagster.core.manifest import (
    CheckpointManifest,
    OperatorSnapshotEntry,
    PartitionSnapshotEntry,
)
from laminar_dagster.runtime.branches.rows import comparable
from laminar_dagster.runtime.checked_files import read_verified
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.history import unknown_operator
from laminar_dagster.spark.arrow_files import file_table
from laminar_dagster.spark.columns import END, FIRST, LAST, SIDE, TIME
from laminar_dagster.spark.join_shape import LEFT, JoinShape
from laminar_dagster.spark.keyed_rows import WEIGHT
from laminar_dagster.spark.keyed_shape import KeyedShape
from laminar_dagster.spark.operator_shape import OperatorShape
from laminar_dagster.spark.ranked_shape import RANK, RankedShape
from laminar_dagster.spark.state_shape import StateShape
from laminar_dagster.spark.stored_shape import stored_shape

WINDOW_END = "window_end"
CHANGE = "change"
PLACE = "place"
COUNT = "rows"
_TIMES = {END: WINDOW_END, FIRST: "first_event", LAST: "last_event"}


@dataclass(frozen=True, slots=True)
class OperatorState:
    """The open windows of an operator, or what it keeps for each key.

    Attributes:
        keys: The columns that identify a row: the window's end where there are windows, then the
            keys as the query spells them, the first event of a session, and the rank where the
            query numbers rows.
        values: The columns of partial aggregates and other state, such as ``sum(price)``.
        rows: A table of both, sorted by the keys.
    """

    operator_id: OperatorId
    keys: tuple[str, ...]
    values: tuple[str, ...]
    rows: pa.Table


def read_state(
    checkpoints: CheckpointStore, manifest: CheckpointManifest, operator: str
) -> OperatorState:
    """Read and merge every file of an operator's state, without windows that are closed.

    Raises:
        UnknownOperator: The checkpoint has no state of that name; names the nearest.
        ObjectMissing, ChecksumMismatch, RestoreFailed: A file is damaged.
    """
    entry = next((each for each in manifest.operators if each.operator_id == operator), None)
    if entry is None:
        raise unknown_operator(manifest, operator)
    closed = closed_until(checkpoints, manifest, entry.operator_id)
    merged, shape = _merged(checkpoints, manifest, entry)
    if shape is None or merged is None:
        return OperatorState(entry.operator_id, (WINDOW_END,), (), pa.table({WINDOW_END: []}))
    if closed is not None:
        is_open = pc.greater(merged.column(END), closed)
        merged = merged.filter(pc.fill_null(is_open, True))
    if isinstance(shape, JoinShape):
        return _state_of_join(entry.operator_id, merged, shape)
    if isinstance(shape, KeyedShape):
        merged = shape.alive(merged)
    if isinstance(shape, OperatorShape):
        return _state_of_python(entry.operator_id, shape, merged)
    if isinstance(shape, RankedShape):
        merged = shape.listed(merged)
    spelled = {key.name: key.sql for key in shape.keys} | _TIMES
    keys = tuple(spelled[name] for name in shape.group)
    values = {column.name: merged.column(column.name) for column in shape.columns}
    told = {spelled[name]: _told(name, merged.column(name)) for name in shape.group}
    if isinstance(shape, KeyedShape) and shape.gap is not None:
        values = {_TIMES[LAST]: _told(LAST, merged.column(LAST)), **values}
    if isinstance(shape, RankedShape):
        keys, told = (*keys, PLACE), {**told, PLACE: merged.column(RANK)}
    rows = _sorted(pa.table({**told, **values}), keys)
    return OperatorState(entry.operator_id, keys, tuple(values), rows)


def _state_of_join(operator: OperatorId, merged: pa.Table, shape: JoinShape) -> OperatorState:
    """The rows of both sides that may still be joined, and how often each occurs."""
    sides = pc.if_else(pc.equal(merged.column(SIDE), LEFT), "left", "right")
    columns = {
        "side": sides,
        **{key.sql: merged.column(key.name) for key in shape.keys},
        "event_time": merged.column(TIME).cast(pa.timestamp("us", "UTC")),
        "kept_until": merged.column(END).cast(pa.timestamp("us", "UTC")),
        **{each.name: merged.column(each.name) for each in shape.columns},
    }
    keys = tuple(name for name, each in columns.items() if not pa.types.is_nested(each.type))
    values = tuple(name for name in columns if name not in keys)
    rows = pa.table({**columns, COUNT: merged.column(WEIGHT)})
    return OperatorState(operator, keys, (*values, COUNT), _sorted(rows, keys))


def _state_of_python(operator: OperatorId, shape: OperatorShape, merged: pa.Table) -> OperatorState:
    rows = shape.listed(merged)
    keys = tuple(key.sql for key in shape.keys)
    values = tuple(name for name in rows.column_names if name not in keys)
    return OperatorState(operator, keys, values, _sorted(rows, keys))


def compare_states(old: OperatorState, new: OperatorState) -> pa.Table:
    """The windows and keys that were added, are gone or changed, with old and new values.

    The columns are the keys, ``change``, and for each value two such as ``sum(price) before`` and
    ``sum(price) after``.

    Raises:
        RestoreFailed: The two states have different key columns.
    """
    if old.keys != new.keys and old.rows.num_rows and new.rows.num_rows:
        reason = f"its keys were {', '.join(old.keys)} and are {', '.join(new.keys)}"
        raise RestoreFailed(new.operator_id, 0, reason)
    keys = new.keys if new.rows.num_rows else old.keys
    both = pa.concat_tables(
        [_places(old, keys, "before"), _places(new, keys, "after")], promote_options="permissive"
    )
    found = both.group_by(keys, use_threads=False).aggregate([("before", "min"), ("after", "min")])
    was, now = found.column("before_min"), found.column("after_min")
    kinds = pc.if_else(was.is_null(), "added", pc.if_else(now.is_null(), "gone", "changed"))
    out = {**{key: found.column(key) for key in keys}, CHANGE: kinds}
    is_same = pc.and_(was.is_valid(), now.is_valid())
    for value in dict.fromkeys((*old.values, *new.values)):
        one, two = _taken(old, value, was), _taken(new, value, now)
        out |= {f"{value} before": one, f"{value} after": two}
        lists = pa.types.is_nested(one.type) or pa.types.is_nested(two.type)
        sides = (comparable(one), comparable(two)) if lists else (one, two)
        is_equal = pc.fill_null(pc.equal(*sides), False)
        is_same = pc.and_(is_same, pc.or_(is_equal, pc.and_(one.is_null(), two.is_null())))
    changed = pa.table(out).filter(pc.invert(is_same))
    return _sorted(changed, keys)


def _sorted(rows: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """The rows sorted by their keys; a group without keys has one row, and nothing to sort by."""
    return rows.sort_by([(key, "ascending") for key in keys]) if keys else rows


def _told(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.timestamp("us", "UTC")) if name in _TIMES else column


def _places(state: OperatorState, keys: tuple[str, ...], side: str) -> pa.Table:
    """The keys of every row, and the row's index in a column named after the side."""
    if not state.rows.num_rows:
        return pa.table({side: pa.array([], pa.int64())})
    places = pa.array(range(state.rows.num_rows))
    return pa.table({**{key: state.rows.column(key) for key in keys}, side: places})


def _taken(state: OperatorState, value: str, places: pa.ChunkedArray) -> pa.ChunkedArray:
    if value not in state.values:
        return pa.chunked_array([pa.nulls(len(places))])
    return state.rows.column(value).take(places)


def _merged(
    checkpoints: CheckpointStore, manifest: CheckpointManifest, entry: OperatorSnapshotEntry
) -> tuple[pa.Table | None, StateShape | KeyedShape | JoinShape | None]:
    chains: defaultdict[PartitionId, list[PartitionSnapshotEntry]] = defaultdict(list)
    for part in entry.partitions:
        chains[part.partition_id].append(part)
    newest = max(entry.partitions, key=lambda part: manifest.origin_of(part).epoch, default=None)
    if newest is None:
        return None, None
    shape = stored_shape(_read(checkpoints, manifest, newest).schema)
    merged = []
    for partition, parts in sorted(chains.items()):
        tables = [_read(checkpoints, manifest, part) for part in parts]
        try:
            merged.append(shape.merge([shape.read(table) for table in tables]))
        except ValueError as error:
            raise RestoreFailed(entry.operator_id, partition, str(error)) from None
    return pa.concat_tables(merged), shape


def _read(
    checkpoints: CheckpointStore, manifest: CheckpointManifest, part: PartitionSnapshotEntry
) -> pa.Table:
    key = layout.checkpoint_key(manifest.origin_of(part).checkpoint_id, part.path)
    return file_table(read_verified(checkpoints.objects, key, part.size_bytes, part.sha256))


def closed_until(
    checkpoints: CheckpointStore, manifest: CheckpointManifest, operator: OperatorId
) -> int | None:
    """The watermark by which the operator closed windows: the lowest of the sources it reads.

    None if one of them has no watermark yet.
    """
    definition = checkpoints.definition(manifest.fingerprint)
    operators = definition.operators if definition else ()
    known = next((each for each in operators if each.operator_id == operator), None)
    marks = [
        source.watermark
        for source in manifest.sources
        if known is None or source.source_id in known.reads
    ]
    passed = [mark for mark in marks if mark is not None]
    if not passed or len(passed) < len(marks):
        return None
    return min(passed) - (known.lateness_micros if known else 0)
