"""What is made of records where they are read: when, and that it is what Spark's way gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_dagster.config.operators import stateful_operators
from laminar_dagster.config.relations import Stateful
from laminar_dagster.spark import early_partials, partial_step
from laminar_dagster.spark.columns import CONTROL, KEEP, LATE, PART, TIME
from laminar_dagster.spark.early_operators import early_operator
from laminar_dagster.spark.early_partials import EarlyAggregator, EarlyOperator
from laminar_dagster.spark.keyed_partials import KeyedPartials
from laminar_dagster.spark.keyed_rows import WEIGHT
from laminar_dagster.spark.partial_step import PartialStep
from laminar_dagster.spark.window_assignment import WindowAssignment
from tests.unit.config.folders import load
from tests.unit.spark.keyed_operator import shape_of_ranks, shape_of_sums

SOURCE = """CREATE SOURCE TABLE clicks (
  page STRING, n INT, amount DOUBLE, at TIMESTAMP, WATERMARK FOR at AS at
) WITH (connector = 'file', path = 'clicks');
"""
SCHEMA = pa.schema(
    [
        ("page", pa.string()),
        ("n", pa.int32()),
        ("amount", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
TTL = "EMIT CHANGES WITH (state.ttl = '1d')"
EARLY = {
    "a group": f"SELECT page, n, sum(amount) AS s FROM clicks WHERE n > 1 GROUP BY page, n {TTL}",
    "a group without a key": "SELECT count(*) AS c FROM clicks EMIT CHANGES",
    "DISTINCT": f"SELECT DISTINCT page, n FROM clicks {TTL}",
    "a window that changes": "SELECT page, count(*) AS c FROM clicks"
    " GROUP BY TUMBLE(at, INTERVAL '1' MINUTE), page EMIT CHANGES",
    "a window that closes": "SELECT page, count(*) AS c FROM clicks"
    " GROUP BY TUMBLE(at, INTERVAL '1' MINUTE), page",
    "a session": "SELECT page, max(n) AS m FROM clicks"
    " GROUP BY SESSION(at, INTERVAL '1' MINUTE), page",
    "the first row": "SELECT page, amount FROM clicks"
    f" QUALIFY ROW_NUMBER() OVER (PARTITION BY page ORDER BY at DESC) = 1 {TTL}",
}
BY_SPARK = {
    "an expression as a key": f"SELECT upper(page) AS p FROM clicks GROUP BY upper(page) {TTL}",
    "a key that is a float": f"SELECT DISTINCT amount FROM clicks {TTL}",
    "an expression to add up": f"SELECT page, sum(n + 1) AS s FROM clicks GROUP BY page {TTL}",
    "a filter of floats": f"SELECT DISTINCT page FROM clicks WHERE amount > 1 {TTL}",
    "an expression in the order": "SELECT page, n FROM clicks"
    f" QUALIFY ROW_NUMBER() OVER (PARTITION BY page ORDER BY abs(n)) = 1 {TTL}",
    "an expression beside a rank": "SELECT page, n + 1 AS n FROM clicks"
    f" QUALIFY ROW_NUMBER() OVER (PARTITION BY page ORDER BY n) = 1 {TTL}",
}


def early(folder: Path, sql: str) -> EarlyOperator | None:
    model = load(folder, {"s.sql": SOURCE, "models/v.sql": sql})
    (operator, query), *_ = stateful_operators(model.views[0])
    assert isinstance(query, Stateful)
    return early_operator(operator, query, SCHEMA)


@pytest.mark.parametrize("name", EARLY)
def test_plain_columns_are_aggregated_where_they_are_read(tmp_path: Path, name: str) -> None:
    assert early(tmp_path, EARLY[name])


@pytest.mark.parametrize("name", BY_SPARK)
def test_what_needs_spark_is_left_to_it(tmp_path: Path, name: str) -> None:
    assert early(tmp_path, BY_SPARK[name]) is None


# --- both ways, without Spark -------------------------------------------------------------------

MADE = {
    "groups": KeyedPartials(shape_of_sums(weighed=False)),
    "groups with a time to live": KeyedPartials(shape_of_sums("group", 10, weighed=False)),
    "groups by weight": KeyedPartials(shape_of_sums(weighed=True)),
    "sessions": KeyedPartials(shape_of_sums("session", 4, weighed=False)),
    "windows": KeyedPartials(shape_of_sums("window", weighed=False), WindowAssignment(10, 5)),
    "windows by weight": KeyedPartials(
        shape_of_sums("window", weighed=True), WindowAssignment(10, 10)
    ),
    "first rows": KeyedPartials(shape_of_ranks(1, None, descending=False)),
    "first rows of a time to live": KeyedPartials(shape_of_ranks(2, 10, descending=True)),
    "first rows by weight": KeyedPartials(shape_of_ranks(2, None, descending=True, weighed=True)),
}
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.sampled_from(["a", "b", "c", None]),
        st.none() | st.integers(-9, 9),
        st.sampled_from([1, 1, -1]),
        st.integers(0, 4),
    ),
    max_size=30,
)
COLUMNS = {TIME: "at", "_k0": "k", "_x0": "x", "_o0": "x", "_p0": "us", WEIGHT: "w"}
AT_ONCE = 7
LATENESS = 2


def source_rows(records: list[tuple[Any, ...]]) -> pa.RecordBatch:
    """Records as a reader decodes them, and how late each is."""
    times, keys, values, weights, late = zip(*records, strict=True) if records else ((),) * 5
    return pa.record_batch(
        {
            "at": pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC")),
            "us": pa.array(times, pa.int64()),
            "k": pa.array(keys, pa.string()),
            "x": pa.array(values, pa.int64()),
            "w": pa.array(weights, pa.int8()),
            LATE: pa.array(late, pa.int64()),
        }
    )


def is_kept(rows: Any) -> Any:
    return pc.not_equal(rows.column("x"), 3)


def through_spark(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Records as Spark projects and filters them, one by one."""
    found = {name: rows.column(of) for name, of in COLUMNS.items()}
    found[TIME] = found[TIME].cast(pa.int64())
    found[PART] = pa.array([3] * rows.num_rows, pa.int64())
    found[CONTROL] = pa.nulls(rows.num_rows, pa.string())
    on_time = pc.less_equal(rows.column(LATE), LATENESS)
    found[KEEP] = pc.and_(pc.fill_null(is_kept(rows), False), on_time)
    yield from pa.table(found).to_batches(max_chunksize=1)


def told(partials: pa.Table, reports: list[str]) -> tuple[list[dict[str, Any]], int, int]:
    counts = [json.loads(each) for each in reports]
    kept, dropped = (sum(each[name] for each in counts) for name in ("processed", "filtered"))
    return partials.to_pylist(), kept, dropped


@pytest.mark.parametrize("name", MADE)
@given(RECORDS, st.integers(1, 30))
@settings(max_examples=25)
def test_both_ways_give_the_same_partials_and_counts(
    name: str, records: list[tuple[Any, ...]], chunk: int
) -> None:
    """However the reader cuts its chunks, and however many rows are aggregated at once."""
    made = MADE[name]
    rows = source_rows(records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(early_partials, "ROWS_AT_ONCE", AT_ONCE)
        patch.setattr(partial_step, "ROWS_AT_ONCE", AT_ONCE)
        by_spark = pa.Table.from_batches(PartialStep(made)(through_spark(rows)), made.schema)
        aggregator = EarlyAggregator(EarlyOperator(made, COLUMNS, is_kept, LATENESS), 3)
        reports, partials = [], [made.schema.empty_table()]
        chunks = [rows.slice(start, chunk) for start in range(0, rows.num_rows, chunk)]
        for each in chunks:
            for report, found in aggregator.add(each):
                reports.append(report)
                partials.append(found)
        for report, found in aggregator.finish():
            reports.append(report)
            partials.append(found)
    is_report = pc.is_valid(by_spark.column(CONTROL))
    expected = told(
        by_spark.filter(pc.invert(is_report)), by_spark.column(CONTROL).drop_null().to_pylist()
    )
    assert told(pa.concat_tables(partials), reports) == expected


def test_rows_without_a_column_are_counted() -> None:
    """COUNT(*) over everything takes none of a record's columns."""
    shape = shape_of_sums(weighed=False)
    made = KeyedPartials(type(shape)(shape.operator, (), shape.columns[:1]))
    aggregator = EarlyAggregator(EarlyOperator(made, {}, None), 0)
    assert not [*aggregator.add(source_rows([(1, "a", 1, 1, 0)] * 5).drop_columns([LATE]))]
    ((_, partials),) = aggregator.finish()
    assert partials.column("count(*)").to_pylist() == [5]
