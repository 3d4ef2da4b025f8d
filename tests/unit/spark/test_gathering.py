"""Lists and chosen values, made in any number of steps, are those that one step makes."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_dagster.config.aggregate import Aggregate
from laminar_dagster.config.relations import Projection, TableInput, Window, WindowAggregate
from laminar_dagster.core.ids import OperatorId
from laminar_dagster.spark.aggregate_types import WrongType
from laminar_dagster.spark.aggregates import first_partials, merge_partials
from laminar_dagster.spark.aggregation_shapes import shape_of
from laminar_dagster.spark.columns import END
from laminar_dagster.spark.state_shape import StateShape

QUERY = WindowAggregate(
    TableInput("s"),
    Window("ts", 10, 10),
    (Projection("_k0", "k"),),
    (
        Aggregate("_a0", "count_distinct", "x"),
        Aggregate("_a1", "collect_list", "x"),
        Aggregate("_a2", "min_by", "x", "y"),
        Aggregate("_a3", "max_by", "x", "y"),
        Aggregate("_a4", "count", None),
    ),
    (),
)
Row = tuple[str | None, int | None, float | None]
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),
        st.none() | st.integers(0, 4),
        st.none() | st.sampled_from([-1.0, 0.0, 0.5, 2.0]),
    ),
    max_size=12,
)


def shape(kind: Any = None) -> StateShape:
    types = {"_k0": pa.string(), "_x0": kind or pa.int64(), "_x1": pa.float64()}
    return shape_of(OperatorId("o"), QUERY, types)


def records(rows: list[Row]) -> pa.Table:
    return pa.table(
        {
            END: pa.array([10] * len(rows), pa.int64()),
            "_k0": pa.array([key for key, _, _ in rows], pa.string()),
            "_x0": pa.array([value for _, value, _ in rows], pa.int64()),
            "_x1": pa.array([by for _, _, by in rows], pa.float64()),
        }
    )


def expected(rows: list[Row]) -> dict[str | None, tuple[object, ...]]:
    groups: dict[str | None, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row[0]].append(row)
    found: dict[str | None, tuple[object, ...]] = {}
    for key, mine in groups.items():
        known = sorted(value for _, value, _ in mine if value is not None)
        # A null sorts last.
        placed = sorted((by, value is None, value or 0) for _, value, by in mine if by is not None)
        ends = (placed[0], placed[-1]) if placed else ((None, True, 0),) * 2
        least, most = (None if missing else value for _, missing, value in ends)
        found[key] = (sorted(set(known)), known, least, most, len(mine))
    return found


@given(st.lists(ROWS, min_size=1, max_size=5))
@settings(max_examples=150)
def test_any_number_of_steps_gives_the_same(parts: list[list[Row]]) -> None:
    kept = shape()
    made = [first_partials(records(rows), kept.group, kept.columns, "o") for rows in parts]
    merged = merge_partials(pa.concat_tables(made), kept.group, kept.columns, "o")
    names = ["distinct(x)", "values(x)", "min_by(x, y)", "max_by(x, y)", "count(*)"]
    found = {row["_k0"]: tuple(row[name] for name in names) for row in merged.to_pylist()}
    assert found == expected([row for rows in parts for row in rows])


def test_a_stored_shape_knows_by_what_values_are_chosen() -> None:
    kept = shape()
    again = StateShape.of_file(kept.schema)
    assert [column.by and column.by[1] for column in again.columns] == [
        column.by and column.by[1] for column in kept.columns
    ]
    rows = first_partials(records([("a", 1, 0.5)]), kept.group, kept.columns, "o")
    more = first_partials(records([("a", 2, -1.0)]), kept.group, kept.columns, "o")
    (row,) = again.merge([again.read(rows), again.read(more)]).to_pylist()
    assert (row["min_by(x, y)"], row["max_by(x, y)"], row["values(x)"]) == (2, 1, [1, 2])


def test_values_without_an_order_are_refused() -> None:
    with pytest.raises(WrongType, match="needs values with an order"):
        shape(pa.list_(pa.int64()))
