"""A parameter of a lambda, and a column of the same name, stay what their author meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from laminar_dagster.config.relations import Join, Select, WindowAggregate
from tests.unit.config.folders import read_query, wrong_query

MINUTE = "TUMBLE(ts, INTERVAL '1' MINUTE)"
HIDDEN = (
    "a column within a lambda whose parameter has its name would be taken for the parameter "
    "(give the parameter another name)"
)
GROUPED = (
    "a parameter of a lambda with the name of a column, beside groups would be taken for the "
    "column (give the parameter another name)"
)


@pytest.mark.parametrize(
    ("expression", "column"),
    [
        ("exists(tags, page -> page = clicks.page)", 36),
        ("transform(array(1), user_id -> user_id + clicks.user_id)", 56),
        ("exists(tags, x -> exists(tags, page -> x = clicks.page))", 51),
        ("exists(tags, (x, page) -> x = clicks.page)", 38),
        ("exists(tags, `page` -> `page` = clicks.`page`)", 40),
        # To Spark names that differ in case are the same; to sqlglot they are not.
        ("exists(tags, PAGE -> page = 'a')", 29),
    ],
)
def test_a_column_that_a_parameter_hides_is_refused(
    tmp_path: Path, expression: str, column: int
) -> None:
    found = wrong_query(tmp_path, f"SELECT {expression} AS e FROM clicks")
    assert found == [f"models/m.sql:1:{column}: {HIDDEN}"]


def test_a_field_of_a_parameter_is_none_of_an_input_of_its_name(tmp_path: Path) -> None:
    sql = "SELECT transform(list, S -> s.id) AS ids FROM (SELECT tags AS list, user_id AS id"
    found = wrong_query(tmp_path, f"{sql} FROM clicks) s")
    assert found == [f"models/m.sql:1:29: {HIDDEN}"]


def test_over_a_join_columns_have_names_that_no_parameter_has(tmp_path: Path) -> None:
    query = read_query(
        tmp_path,
        "SELECT exists(a.tags, page -> page = a.page) AS e FROM clicks a JOIN clicks b "
        "ON a.user_id = b.user_id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' HOUR",
    )
    assert isinstance(query, Select) and isinstance(query.source, Join)
    assert query.columns[0].sql == "exists(`left.tags`, page -> page = `left.page`)"


def test_what_is_grouped_by_is_not_looked_for_among_parameters(tmp_path: Path) -> None:
    sql = "SELECT transform(array('a'), {0} -> upper({0})) AS l FROM clicks GROUP BY upper(page), "
    found = wrong_query(tmp_path, sql.format("page") + MINUTE)
    assert found == [f"models/m.sql:1:30: {GROUPED}"]
    query = read_query(tmp_path, sql.format("p") + MINUTE)
    assert isinstance(query, WindowAggregate)
    assert query.columns[0].sql == "transform(array('a'), p -> upper(p))"


def test_inside_an_aggregate_a_parameter_may_have_the_name_of_a_column(tmp_path: Path) -> None:
    sql = "SELECT collect_list(transform(tags, page -> upper(page))) AS l FROM clicks GROUP BY page"
    query = read_query(tmp_path, f"{sql}, {MINUTE}")
    assert isinstance(query, WindowAggregate)
    assert query.aggregates[0].argument == "transform(tags, page -> upper(page))"


@pytest.mark.parametrize(
    ("parameter", "problem"),
    [
        ("_k0", "called like `_k0`, `_a0` or `_v0` would be taken for a column that is made"),
        ("window_start", "with the name of a column, beside groups would be taken for the column"),
    ],
)
def test_a_name_that_is_made_for_the_query_is_no_parameter(
    tmp_path: Path, parameter: str, problem: str
) -> None:
    list_of = f"transform(array('a'), {parameter} -> {parameter})"
    sql = f"SELECT {list_of} AS l FROM clicks GROUP BY page, {MINUTE}"
    (found,) = wrong_query(tmp_path, sql)
    assert found.startswith("models/m.sql:1:30: ") and problem in found
