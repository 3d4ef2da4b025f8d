"""Every aggregate over rows that are taken back is what the rows that are left give."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_dagster.config.aggregate import Aggregate, Ordering
from laminar_dagster.config.relations import (
    KeyedAggregate,
    Projection,
    TableInput,
    Window,
    WindowAggregate,
)
from laminar_dagster.core.ids import OperatorId
from laminar_dagster.spark.aggregate_types import finished_sql
from laminar_dagster.spark.aggregation_shapes import keyed_shape_of, shape_of
from laminar_dagster.spark.columns import END
from laminar_dagster.spark.keyed_rows import WEIGHT
from laminar_dagster.spark.partial_step import WindowPartials
from laminar_dagster.spark.state_shape import StateShape
from laminar_dagster.spark.window_assignment import WindowAssignment
from tests.unit.spark.keyed_operator import Operator, Record, shape_of_ranks
from tests.unit.spark.test_keyed_step import HASHES, Row, applied

AGGREGATES = (
    Aggregate("least", "min", "x"),
    Aggregate("most", "max", "x"),
    Aggregate("first", "min_by", "x", by="y"),
    Aggregate("last", "max_by", "x", by="y"),
    Aggregate("all", "collect_list", "x"),
    Aggregate("set", "collect_set", "x"),
    Aggregate("distinct", "count_distinct", "x"),
    Aggregate("pairs", "count_distinct", "x", others=("y",)),
    Aggregate("sum_distinct", "sum_distinct", "x"),
    Aggregate("often", "mode", "x"),
    Aggregate("median", "percentile", "x", shares=(0.5,)),
    Aggregate("thirds", "percentile_disc", "x", shares=(1 / 3, 2 / 3), is_list=True),
    Aggregate("and", "bit_and", "x"),
    Aggregate("or", "bit_or", "x"),
    Aggregate("xor", "bit_xor", "x"),
    Aggregate("spread", "var_pop", "x"),
    Aggregate("tilt", "skewness", "x"),
    Aggregate("together", "corr", "x", others=("y",)),
)
TYPES = {"_k0": pa.string(), "_x0": pa.int64(), "_x1": pa.int64(), "_x2": pa.string()}
# A value and a time of a row that is there.
Pair = tuple[int | None, int]


def shape(weight: str | None = WEIGHT, aggregates: tuple[Aggregate, ...] = AGGREGATES) -> Any:
    keys = (Projection("_k0", "k"),)
    query = KeyedAggregate(TableInput("t"), "group", "changes", keys, aggregates, (), weight=weight)
    return keyed_shape_of(OperatorId("op"), query, TYPES)


def known(rows: list[Pair]) -> list[int]:
    return sorted(value for value, _ in rows if value is not None)


def nearest_rank(values: list[int], share: float) -> float:
    return float(values[max(math.ceil(len(values) * share), 1) - 1])


def bits(values: list[int], function: Callable[[int, int], int]) -> int | None:
    found = values[0] if values else None
    for each in values[1:]:
        assert found is not None
        found = function(found, each)
    return found


def moments(values: list[int]) -> dict[str, float]:
    mean = statistics.fmean(values) if values else 0.0
    powers = {f"m{p}": sum((each - mean) ** p for each in values) for p in (2, 3, 4)}
    return {"n": len(values), "mean": mean, **powers}


def best(rows: list[Pair], *, largest: bool) -> int | None:
    """The value at the extreme time; of several the extreme one, and null is the largest."""
    order = [(time, value is None, value or 0, value) for value, time in rows]
    return (max(order) if largest else min(order))[3]


def expected(rows: list[Pair]) -> dict[str, Any]:
    values = known(rows)
    often = Counter(values)
    return {
        "least": min(values, default=None),
        "most": max(values, default=None),
        "first": best(rows, largest=False),
        "last": best(rows, largest=True),
        "all": values,
        "set": sorted(set(values)),
        "distinct": len(set(values)),
        "pairs": len({row for row in rows if row[0] is not None}),
        "sum_distinct": sum(set(values)) if values else None,
        "often": min(often, key=lambda each: (-often[each], each), default=None),
        "median": statistics.median(values) if values else None,
        "thirds": [nearest_rank(values, each) for each in (1 / 3, 2 / 3)] if values else None,
        "and": bits(values, lambda a, b: a & b),
        "or": bits(values, lambda a, b: a | b),
        "xor": bits(values, lambda a, b: a ^ b),
    }


def same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return all(same(found[name], wanted[name]) for name in wanted if name in found)
    if isinstance(wanted, float):
        return math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-9)
    return bool(found == wanted)


STORIES = st.lists(
    st.lists(
        st.tuples(
            st.booleans(),
            st.sampled_from(["a", "b", None]),
            st.none() | st.integers(-4, 9),
            st.integers(0, 3),
            st.integers(0, 99),
        ),
        max_size=6,
    ),
    max_size=15,
)
Story = list[list[tuple[bool, str | None, int | None, int, int]]]


def retold(story: Story, present: list[tuple[str | None, int | None, int]]) -> Any:
    """The records of each epoch: what comes, and what takes back a row that is there."""
    for epoch in story:
        records: list[Record] = []
        for deletes, key, value, time, pick in epoch:
            if deletes and present:
                key, value, time = present.pop(pick % len(present))
                records.append((time, key, value, -1))
            elif not deletes:
                present.append((key, value, time))
                records.append((time, key, value, 1))
        # What is taken back may arrive before what it takes back.
        yield records[::-1]


@pytest.mark.slow
@given(STORIES, HASHES)
@settings(max_examples=60)
def test_every_aggregate_undoes_what_is_taken_back(story: Story, hashes: int) -> None:
    operator = Operator(shape(), hashes=hashes)
    present: list[tuple[str | None, int | None, int]] = []
    table: dict[str | None, dict[str, Any]] = {}
    for records in retold(story, present):
        for row in operator.run(records, 0):
            if row[WEIGHT] == -1:
                assert table.pop(row["_k0"]) == {**row, WEIGHT: 1}
            else:
                table[row["_k0"]] = row
        assert set(table) == {key for key, _, _ in present}
        for key, row in table.items():
            mine = [(value, time) for each, value, time in present if each == key]
            wanted = expected(mine)
            assert {name: row[name] for name in wanted} == wanted
            assert same(row["spread"], moments(known(mine)))
            assert same(row["tilt"], moments(known(mine)))
            assert row["together"]["n"] == len(known(mine))


def test_an_answer_that_stays_is_not_told_again() -> None:
    operator = Operator(shape(aggregates=AGGREGATES[:2]))
    operator.run([(0, "a", 1, 1), (0, "a", 5, 1), (0, "a", 9, 1)], 0)
    told = operator.run([(0, "a", 5, -1), (0, "a", 7, 1)], 0)
    assert told == [], "neither the least, the largest nor the number of rows is another"
    (before, after) = operator.run([(0, "a", 1, -1), (0, "a", 8, 1)], 0)
    assert (before["least"], after["least"]) == (1, 7)


def test_a_file_says_how_its_multisets_are_merged() -> None:
    mine = shape()
    found = type(mine).of_file(mine.schema)
    assert {c.name: c.merge for c in found.columns} == {c.name: c.merge for c in mine.columns}
    assert "multiset(x) by weight" in mine.schema.names
    assert not any(name.startswith("multiset") for name in mine.output.names)


@pytest.mark.slow
@given(STORIES, st.integers(1, 3), st.booleans(), HASHES)
@settings(max_examples=60)
def test_what_is_taken_back_makes_room_for_the_next_row(
    story: Story, limit: int, descending: bool, hashes: int
) -> None:
    ranks = shape_of_ranks(limit, None, descending=descending, weighed=True)
    operator = Operator(ranks, hashes=hashes)
    present: list[tuple[str | None, int | None, int]] = []
    table: Counter[Row] = Counter()
    for records in retold(story, present):
        applied(table, operator.run(records, 0), ["_k0", "_rank", "_o0", "_p0"])
        wanted = set()
        for key in {key for key, _, _ in present}:
            mine = [(value, time) for each, value, time in present if each == key]
            sign = -1 if descending else 1
            mine.sort(key=lambda row: (row[0] is None, sign * (row[0] or 0), row[1]))
            wanted |= {(key, place, *row) for place, row in enumerate(mine[:limit], 1)}
        assert set(table) == wanted


@given(st.lists(st.tuples(st.integers(0, 29), st.integers(0, 5)), max_size=20), st.data())
def test_a_window_closes_with_what_is_left(
    rows: list[tuple[int, int]], data: st.DataObject
) -> None:
    """What came and went leaves no row, and no trace in the others."""
    gone = (
        data.draw(st.lists(st.sampled_from(rows), max_size=len(rows), unique=True)) if rows else []
    )
    records = [(*each, 1) for each in rows] + [(*each, -1) for each in gone]
    records = data.draw(st.permutations(records))
    left = list(rows)
    for each in gone:
        left.remove(each)
    aggregates = (Aggregate("n", "count", None), Aggregate("least", "min", "x"))
    query = WindowAggregate(
        TableInput("t"), Window("ts", 10, 10), (), aggregates, (), weight=WEIGHT
    )
    found = shape_of(OperatorId("op"), query, TYPES)
    step = WindowPartials(found, WindowAssignment(10, 10))
    cut = data.draw(st.integers(0, len(records)))
    parts = [
        step.aggregate(_table(each), 0, number)
        for number, each in enumerate((records[:cut], records[cut:]))
    ]
    closed = found.shown(found.merge(parts)).to_pylist()
    windows = sorted({time // 10 * 10 + 10 for time, _ in left})
    assert [(row[END], row["count(*) by weight"], row["least"]) for row in closed] == [
        (end, len(mine), min(mine))
        for end in windows
        if (mine := [value for time, value in left if time // 10 * 10 + 10 == end])
    ]
    assert StateShape.of_file(found.schema).weight == found.weight


def _table(rows: list[tuple[int, int, int]]) -> pa.Table:
    columns = [[each[place] for each in rows] for place in range(3)]
    arrays = [pa.array(each, pa.int64()) for each in columns]
    return pa.table({"_time": arrays[0], "_x0": arrays[1], WEIGHT: arrays[2]})


def test_texts_are_joined_in_their_order() -> None:
    descending = (Ordering("x", True, False),)
    aggregates = (
        Aggregate("plain", "string_agg", "page", separator=", "),
        Aggregate("once", "string_agg", "page", separator="+", is_distinct=True),
        Aggregate("by", "string_agg", "page", order=descending, separator="|"),
    )
    query = WindowAggregate(TableInput("t"), Window("ts", 10, 10), (), aggregates, ())
    types = {"_x0": pa.string(), "_x1": pa.int64()}
    found = shape_of(OperatorId("op"), query, types)
    rows = pa.table(
        {
            "_time": [1, 2, 3, 4, 11],
            "_x0": pa.array(["b", "a", "b", None, None], pa.string()),
            "_x1": pa.array([1, 3, None, 9, 1], pa.int64()),
        }
    )
    step = WindowPartials(found, WindowAssignment(10, 10))
    parts = [step.aggregate(each, 0, 0) for each in (rows[3:], rows[:3])]
    first, second = found.shown(found.merge(parts)).to_pylist()
    assert (first["plain"], first["once"], first["by"]) == ("a, b, b", "a+b", "a|b|b")
    assert (second["plain"], second["once"], second["by"]) == (None, None, None)


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_zeros_and_nans_are_one_value(kind: pa.DataType) -> None:
    aggregates = (Aggregate("n", "count_distinct", "x"), Aggregate("most", "max", "x"))
    query = WindowAggregate(
        TableInput("t"), Window("ts", 10, 10), (), aggregates, (), weight=WEIGHT
    )
    found = shape_of(OperatorId("op"), query, {"_x0": kind})
    values = pa.array([0.0, -0.0, math.nan, -math.nan, 1.0], kind)
    rows = pa.table({"_time": [1] * 5, "_x0": values, WEIGHT: [1] * 5})
    step = WindowPartials(found, WindowAssignment(10, 10))
    (row,) = found.shown(step.aggregate(rows, 0, 0).select(found.schema.names)).to_pylist()
    assert row["n"] == 3
    assert math.isnan(row["most"])


def test_answers_have_the_types_of_spark() -> None:
    decimals = pa.decimal128(10, 2)
    percentile = Aggregate("p", "approx_percentile", "x", shares=(0.5,), precision=6)
    assert finished_sql(percentile, decimals) == "CAST(`p` AS DECIMAL(10, 2))"
    assert finished_sql(percentile, pa.int32()) == "CAST(round(`p`) AS INT)"
    assert finished_sql(Aggregate("s", "sum_distinct", "x"), decimals) == (
        "CAST(`s` AS DECIMAL(20, 2))"
    )
    distinct = Aggregate("d", "count_distinct", "x")
    assert finished_sql(distinct, pa.int64()) == "CAST(size(`distinct(x)`) AS BIGINT)"
    assert finished_sql(distinct, pa.int64(), is_weighed=True) == "`d`"
