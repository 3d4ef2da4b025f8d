"""Scalar subqueries over reference tables, read into the engine's model."""

from __future__ import annotations

from pathlib import Path

import pytest

from laminar_dagster.config.definition import define
from laminar_dagster.config.lineage import InputColumn, column_lineage
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.config.relations import (
    KeyedAggregate,
    ReferenceJoin,
    ReferenceValue,
    Select,
    TableInput,
    WindowAggregate,
)
from laminar_dagster.config.sql.support import TABLES
from tests.unit.config.folders import load, mistakes

GROUPS = "(SELECT page, count(*) AS n FROM clicks GROUP BY page)"
FOREVER = "EMIT CHANGES WITH (state.ttl = 'unbounded')"


def read(folder: Path, sql: str, tables: str = TABLES) -> PipelineModel:
    return load(folder, {"tables.sql": tables, "models/m.sql": sql})


def test_a_value_is_a_column_beside_those_of_the_row(tmp_path: Path) -> None:
    sql = (
        "SELECT page, (SELECT max(p.weight) FROM pages p) * 2 AS twice FROM clicks"
        " WHERE amount > (select MAX(weight) from pages) OR"
        " user_id < (SELECT count(*) FROM pages WHERE title > 'a')"
    )
    (view,) = read(tmp_path, sql).views
    query = view.query
    assert isinstance(query, Select)
    assert query.where == "amount > _v0 OR user_id < _v1"
    assert query.columns[1].sql == "_v0 * 2"
    outer = query.source
    assert isinstance(outer, ReferenceValue)
    assert (outer.table, outer.value, outer.where) == ("pages", "count(*)", "title > 'a'")
    assert outer.source == ReferenceValue(TableInput("clicks"), "pages", "max(weight)", None, "_v0")
    lineage = column_lineage(read(tmp_path / "again", sql))["m"]
    assert lineage["twice"] == (InputColumn("pages", "weight"),)


def test_it_stands_in_where_of_groups_windows_and_joins(tmp_path: Path) -> None:
    value = "WHERE amount > (SELECT avg(weight) FROM pages)"
    window = "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)"
    model = read(tmp_path / "a", f"SELECT count(*) AS n FROM clicks {value} {window}")
    query = model.views[0].query
    assert isinstance(query, WindowAggregate) and query.where == "amount > _v0"
    # What the state depends on is known where a changed pipeline is judged.
    (operator,) = define(model).operators
    assert "pages" in operator.reads
    sql = f"SELECT a.page, p.title FROM clicks a JOIN pages p ON a.page = p.page {value}"
    joined = read(tmp_path / "b", sql).views[0].query
    assert isinstance(joined, Select) and joined.where == "`left.amount` > _v0"
    assert isinstance(joined.source, ReferenceValue)
    assert isinstance(joined.source.source, ReferenceJoin)
    assert [each.name for each in joined.source.source.columns] == ["left.amount", "left.page"]


def test_rows_that_are_taken_back_need_a_table_that_never_changes(tmp_path: Path) -> None:
    sql = f"SELECT n, count(*) AS m FROM {GROUPS} WHERE n > (SELECT max(weight) FROM pages)"
    sql += f" GROUP BY n {FOREVER}"
    (found,) = mistakes(tmp_path / "a", {"tables.sql": TABLES, "models/m.sql": sql})
    assert "would take back other rows than were put out" in found
    never = TABLES.replace("'csv');", "'csv', 'refresh.interval' = 'never');")
    query = read(tmp_path / "b", sql, never).views[0].query
    assert isinstance(query, KeyedAggregate) and query.weight == "_weight"


def test_the_fingerprint_knows_the_value(tmp_path: Path) -> None:
    texts = [
        "SELECT page FROM clicks WHERE amount > (SELECT max(weight) FROM pages)",
        "SELECT page FROM clicks WHERE amount > ( SELECT max(weight) AS m FROM pages p )",
        "SELECT page FROM clicks WHERE amount > (SELECT min(weight) FROM pages)",
        "SELECT page FROM clicks WHERE amount > (SELECT max(weight) FROM pages WHERE weight < 9)",
    ]
    prints = [read(tmp_path / str(number), text).fingerprint for number, text in enumerate(texts)]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT (SELECT max(x) FROM pags) AS x FROM clicks", "1:8: `pags` is no reference table"),
        ("SELECT (SELECT max(wait) FROM pages) AS x FROM clicks", "1:20: `pages` has no column"),
        ("SELECT (SELECT weight + max(weight) FROM pages) AS x FROM clicks", "1:8: a scalar subq"),
        ("SELECT (SELECT max(weight), 1 FROM pages) AS x FROM clicks", "1:8: a scalar subquery is"),
        (
            "WITH pages2 AS (SELECT page FROM clicks) SELECT (SELECT max(page) FROM pages2) AS x"
            " FROM clicks",
            "1:49: a scalar subquery over a source or view has no value",
        ),
        (
            "SELECT page FROM clicks c WHERE 1 < (SELECT max(weight) FROM pages p"
            " WHERE p.page = c.page)",
            "1:37: a scalar subquery that looks at the row around it",
        ),
        (
            "SELECT page, max((SELECT max(weight) FROM pages)) AS x FROM clicks"
            " GROUP BY page, TUMBLE(ts, INTERVAL '1' MINUTE)",
            "1:18: a scalar subquery outside WHERE, and SELECT of rows",
        ),
        (
            "SELECT a.page FROM clicks a JOIN pages p ON a.page = p.page"
            " AND a.amount > (SELECT max(weight) FROM pages)",
            "1:76: a scalar subquery outside WHERE",
        ),
        (
            "SELECT page FROM clicks WHERE amount > (SELECT max(weight) FROM pages"
            " WHERE weight < (SELECT 1))",
            "1:86: a scalar subquery outside WHERE",
        ),
    ],
)
def test_what_has_no_one_value_is_refused(tmp_path: Path, sql: str, problem: str) -> None:
    found = mistakes(tmp_path, {"tables.sql": TABLES, "models/m.sql": sql})
    assert len(found) == 1, found
    assert found[0].startswith(f"models/m.sql:{problem}")
