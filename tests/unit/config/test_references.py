"""Reference tables as they are declared, and joined with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from laminar_dagster.config.connectors import Connectors
from laminar_dagster.config.definition import define
from laminar_dagster.config.lineage import InputColumn, column_lineage
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.config.relations import (
    KeyedAggregate,
    Projection,
    Ranked,
    ReferenceJoin,
    Select,
)
from laminar_dagster.config.statements import run_statement
from tests.unit.config.folders import CONFIG, SOURCES, load, mistakes

TABLE = """\
CREATE REFERENCE TABLE pages (Page STRING, title STRING, weight INT NOT NULL, PRIMARY KEY (page))
WITH (connector = 'file', path = 'pages.csv', format = 'csv', 'refresh.interval' = '5m');
"""
YAML = (
    CONFIG
    + """\
references:
  - name: pages
    connector: file
    columns: {Page: STRING, title: STRING, weight: INT NOT NULL}
    key: [page]
    options: {path: pages.csv, format: csv, refresh.interval: 5m}
"""
)
JOINED = "SELECT c.user_id, p.title FROM clicks c LEFT JOIN pages p ON lower(c.page) = p.page"


def joined(folder: Path, sql: str, table: str = TABLE) -> tuple[PipelineModel, ReferenceJoin]:
    model = load(folder, {"s.sql": SOURCES, "t.sql": table, "models/m.sql": sql})
    view = next(each for each in model.views if each.name == "m")
    assert isinstance(view.query, Select)
    assert isinstance(view.query.source, ReferenceJoin)
    return model, view.query.source


def test_sql_and_yaml_say_the_same(tmp_path: Path) -> None:
    sql = load(tmp_path / "sql", {"s.sql": SOURCES, "t.sql": TABLE, "models/m.sql": JOINED})
    yaml = load(tmp_path / "yaml", {"pipeline.yml": YAML, "s.sql": SOURCES, "models/m.sql": JOINED})
    (one,), (other,) = sql.references, yaml.references
    assert replace(one, place=other.place) == other
    assert one.key == ("Page",)
    assert [each.nullable for each in one.columns] == [False, True, False]
    assert sql.fingerprint == yaml.fingerprint


def test_a_table_takes_part_in_the_fingerprint_and_how_often_it_is_looked_at_does_not(
    tmp_path: Path,
) -> None:
    def fingerprint(table: str) -> str:
        return joined(tmp_path, JOINED, table)[0].fingerprint

    first = fingerprint(TABLE)
    assert fingerprint(TABLE.replace("5m", "10m")) == first
    assert fingerprint(TABLE.replace("'5m'", "'5m', on_retraction = 'join_current'")) == first
    assert fingerprint(TABLE.replace("pages.csv", "other.csv")) != first
    assert fingerprint(TABLE.replace(", PRIMARY KEY (page)", "")) != first


def test_a_join_keeps_the_columns_that_are_asked_for(tmp_path: Path) -> None:
    _, join = joined(tmp_path, f"{JOINED} AND c.amount > 0")
    assert (join.table, join.kind, join.matches) == ("pages", "left", ("Page",))
    assert [each.name for each in join.columns] == ["left.user_id"]
    assert [each.name for each in join.found] == ["right.title"]
    assert join.where is not None and "amount" in join.where


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        (
            "SELECT title, COUNT(*) AS n FROM clicks JOIN pages USING (page) GROUP BY title",
            ["left.ts"],
        ),
        (
            "SELECT user_id, COUNT(*) AS n FROM clicks WHERE page IN (SELECT page FROM pages)"
            " GROUP BY user_id",
            ["left.ts", "left.user_id"],
        ),
        (
            "SELECT user_id FROM clicks JOIN pages p USING (page)"
            " QUALIFY ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY amount) = 1",
            ["left.amount", "left.ts", "left.user_id"],
        ),
    ],
)
def test_a_time_to_live_needs_event_time_although_nobody_selects_it(
    tmp_path: Path, sql: str, columns: list[str]
) -> None:
    sql = f"{sql} EMIT CHANGES WITH (state.ttl = '1d')"
    model = load(tmp_path, {"s.sql": SOURCES, "t.sql": TABLE, "models/m.sql": sql})
    (query,) = (each.query for each in model.views if each.name == "m")
    assert isinstance(query, KeyedAggregate | Ranked) and query.time == "`left.ts`"
    assert isinstance(query.source, ReferenceJoin)
    assert [each.name for each in query.source.columns] == columns


def test_parentheses_in_on_say_nothing(tmp_path: Path) -> None:
    plain = "ON lower(c.page) = p.page AND c.amount > 0"
    _, expected = joined(tmp_path / "plain", f"{JOINED} AND c.amount > 0")
    for number, on in enumerate(
        (
            "ON (lower(c.page) = p.page) AND (c.amount > 0)",
            "ON ((lower(c.page)) = (p.page) AND ((c.amount > 0)))",
        )
    ):
        sql = f"{JOINED} AND c.amount > 0".replace(plain, on)
        assert on in sql
        assert joined(tmp_path / str(number), sql)[1] == expected


def test_first_and_last_need_event_time(tmp_path: Path) -> None:
    sql = (
        "SELECT p.title, FIRST(c.user_id) AS f FROM clicks c JOIN pages p USING (page)"
        " JOIN pages q ON p.title = q.page GROUP BY p.title"
        " EMIT CHANGES WITH (state.ttl = 'unbounded')"
    )
    model = load(tmp_path, {"s.sql": SOURCES, "t.sql": TABLE, "models/m.sql": sql})
    (query,) = (each.query for each in model.views if each.name == "m")
    assert isinstance(query, KeyedAggregate) and query.time is None
    assert [each.by for each in query.aggregates] == ["`left.left.ts`"]
    assert isinstance(query.source, ReferenceJoin)
    assert Projection("left.left.ts", "`left.ts`") in query.source.columns
    assert isinstance(query.source.source, ReferenceJoin)
    assert Projection("left.ts", "ts") in query.source.source.columns


def test_lineage_leads_from_the_table(tmp_path: Path) -> None:
    model, _ = joined(tmp_path, JOINED)
    assert column_lineage(model)["m"] == {
        "user_id": (InputColumn("clicks", "user_id"),),
        "title": (InputColumn("pages", "title"),),
    }


def test_state_over_a_join_depends_on_what_the_table_is(tmp_path: Path) -> None:
    sql = (
        "SELECT p.title, COUNT(*) AS n FROM clicks c JOIN pages p USING (page)"
        " GROUP BY TUMBLE(c.ts, INTERVAL '1' MINUTE), p.title"
    )
    model = load(tmp_path, {"s.sql": SOURCES, "t.sql": TABLE, "models/m.sql": sql})
    operator = next(each for each in define(model).operators if each.operator_id == "m")
    assert "pages.csv" in operator.reads["pages"]


TOTALS = "SELECT page, COUNT(*) AS n FROM clicks GROUP BY page EMIT CHANGES WITH (state.ttl='1d')"


def weighed(table: str, sql: str) -> dict[str, str]:
    """A view over rows that are taken back, and over a reference table."""
    return {"s.sql": SOURCES, "t.sql": table, "models/totals.sql": TOTALS, "models/m.sql": sql}


@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"])
def test_what_is_taken_back_joins_no_table_that_may_change(tmp_path: Path, kind: str) -> None:
    sql = f"SELECT t.page, n, _weight FROM totals t {kind} pages p ON t.page = p.page"
    (told,) = mistakes(tmp_path, weighed(TABLE, sql))
    assert "models/m.sql:1:" in told
    assert "would take back other rows than were put out" in told
    assert "'refresh.interval' = 'never'" in told and "on_retraction = 'join_current'" in told
    # Where nothing is said, a table is looked at again; and a wrong word is no consent.
    unsaid = TABLE.replace(", 'refresh.interval' = '5m'", "")
    for table in (unsaid, TABLE.replace("'5m'", "'5m', on_retraction = 'refuse'")):
        assert mistakes(tmp_path, weighed(table, sql)) == [told]


@pytest.mark.parametrize("options", ["'never'", "'5m', on_retraction = 'join_current'"])
def test_weights_pass_where_the_table_stays_or_its_author_accepts_it(
    tmp_path: Path, options: str
) -> None:
    sql = "SELECT t.page, n, title, _weight FROM totals t JOIN pages p ON t.page = p.page"
    model = load(tmp_path, weighed(TABLE.replace("'5m'", options), sql))
    (query,) = (each.query for each in model.views if each.name == "m")
    assert isinstance(query, Select) and isinstance(query.source, ReferenceJoin)
    assert query.source.is_weighed
    assert query.columns[-1].name == "_weight"


def test_rows_that_came_alone_join_any_table(tmp_path: Path) -> None:
    came = "SELECT page, n FROM totals WHERE _weight = 1"
    sql = f"SELECT t.page, n, title FROM ({came}) t JOIN pages p ON t.page = p.page"
    model = load(tmp_path, weighed(TABLE, sql))
    (query,) = (each.query for each in model.views if each.name == "m")
    assert isinstance(query, Select) and isinstance(query.source, ReferenceJoin)
    assert not query.source.is_weighed


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("(a INT, PRIMARY KEY (b)) WITH (connector = 'file')", "the key names `b`, which is no"),
        ("(a DOUBLE, PRIMARY KEY (a)) WITH (connector = 'file')", "a double such as `a` is no key"),
        ("(a INT, PRIMARY KEY (a, A)) WITH (connector = 'file')", "the key names `a` twice"),
        ("() WITH (connector = 'file')", "reference table `r` has no columns"),
        ("(a INT) WITH (connector = 'kafka')", "asks for a connector `kafka` that does not exist"),
        ("(_a INT) WITH (connector = 'file')", "has a reserved name"),
        ("(a INT, WATERMARK FOR a) WITH (connector = 'file')", "table has no WATERMARK"),
    ],
)
def test_a_wrong_declaration_is_told(tmp_path: Path, table: str, told: str) -> None:
    connectors = Connectors(sources={"file": ("*",)}, sinks={}, references={"file": ("*",)})
    files = {"s.sql": SOURCES, "t.sql": f"CREATE REFERENCE TABLE r {table};"}
    found = mistakes(tmp_path, files, connectors=connectors)
    assert any(told in each for each in found), found


def test_tables_are_shown_and_described(tmp_path: Path) -> None:
    model, _ = joined(tmp_path, JOINED)
    assert run_statement("SHOW REFERENCE TABLES", model).rows[0][:3] == ("pages", "file", "Page")
    answer = run_statement("DESCRIBE REFERENCE TABLE pages", model)
    assert answer.rows[0] == ("Page", "STRING", "NO", "YES")
