"""``epoch_time()`` stands where a row is computed once, and nowhere where it is taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from laminar_dagster.config.connectors import Connectors
from laminar_dagster.config.relations import (
    KeyedAggregate,
    Projection,
    Ranked,
    Select,
    WindowAggregate,
)
from laminar_dagster.config.sql.logical_clock import CLOCKS, reads_clock, with_clock
from laminar_dagster.sources.kafka.traits import kafka_traits
from tests.unit.config.folders import SOURCES, load, mistakes, read_query

FOREVER = "EMIT CHANGES WITH (state.ttl = 'unbounded')"
CHANGES = f"""\
CREATE VIEW chg AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page {FOREVER};
CREATE REFERENCE TABLE pages (page STRING, title STRING, weight INT, PRIMARY KEY (page))
WITH (connector = 'file', path = 'pages.csv', format = 'csv', refresh.interval = 'never');
"""
PAIRS = "SELECT a.page FROM clicks a JOIN clicks b ON a.user_id = b.user_id"


def wrong(folder: Path, sql: str) -> list[str]:
    return mistakes(folder, {"a.sql": SOURCES, "b.sql": CHANGES, "models/m.sql": sql})


@pytest.mark.parametrize(
    ("sql", "kind", "column"),
    [
        ("SELECT page, n, epoch_time() AS seen, _weight FROM chg", "weighed", 17),
        ("SELECT page, n, _weight FROM chg WHERE n > minute(epoch_time())", "weighed", 51),
        (
            "SELECT date_trunc('hour', epoch_time()) AS h, SUM(n) AS s FROM chg "
            f"GROUP BY 1 {FOREVER}",
            "weighed",
            27,
        ),
        (
            f"SELECT page, SUM(n * minute(epoch_time())) AS s FROM chg GROUP BY page {FOREVER}",
            "weighed",
            29,
        ),
        (f"SELECT DISTINCT page, epoch_time() AS t FROM chg {FOREVER}", "weighed", 23),
        (
            "SELECT page FROM chg QUALIFY ROW_NUMBER() OVER "
            f"(PARTITION BY page ORDER BY epoch_time()) = 1 {FOREVER}",
            "weighed",
            76,
        ),
        (
            "SELECT page, x, _weight FROM chg "
            "LATERAL VIEW explode(sequence(n, minute(epoch_time()))) t AS x",
            "weighed",
            74,
        ),
        (f"SELECT page, explode(array(epoch_time())) AS t FROM chg {FOREVER}", "weighed", 28),
        (
            "SELECT a.page, a._weight FROM chg a JOIN pages p "
            "ON a.page = p.page AND a.n > minute(epoch_time())",
            "weighed",
            86,
        ),
        (
            "SELECT page, n, _weight FROM chg "
            "WHERE n > (SELECT max(weight) FROM pages WHERE weight > minute(epoch_time()))",
            "weighed",
            97,
        ),
        (
            "SELECT page, n + (SELECT max(weight * minute(epoch_time())) FROM pages) AS x, "
            "_weight FROM chg",
            "weighed",
            46,
        ),
        (
            "SELECT a.page FROM chg a JOIN clicks b "
            f"ON a.page = b.page AND a.n > minute(epoch_time()) {FOREVER}",
            "weighed",
            76,
        ),
        (
            "SELECT page FROM chg a WHERE EXISTS (SELECT 1 FROM clicks b "
            f"WHERE b.page = a.page AND a.n > minute(epoch_time())) {FOREVER}",
            "weighed",
            100,
        ),
        # The rows of a query that changes them, whatever it reads.
        (
            "SELECT page, COUNT(*) AS n FROM clicks GROUP BY page "
            f"HAVING MAX(ts) > epoch_time() - INTERVAL '1' DAY {FOREVER}",
            "changing",
            71,
        ),
        (f"SELECT page, epoch_time() AS t FROM clicks GROUP BY page {FOREVER}", "changing", 14),
        (f"SELECT COUNT(*) AS n, epoch_time() AS t FROM clicks {FOREVER}", "changing", 23),
        (
            "SELECT window_end, epoch_time() AS t, COUNT(*) AS n FROM clicks "
            "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE) EMIT CHANGES",
            "changing",
            20,
        ),
        (
            f"SELECT x.page, epoch_time() AS t FROM ({PAIRS}) x {FOREVER}",
            "weighed",
            16,
        ),
        (
            f"{PAIRS} AND a.amount + b.amount > minute(epoch_time()) {FOREVER}",
            "pairs",
            72,
        ),
    ],
)
def test_over_rows_that_are_taken_back_it_is_refused(
    tmp_path: Path, sql: str, kind: str, column: int
) -> None:
    refused = CLOCKS[kind]
    assert wrong(tmp_path, sql) == [
        f"models/m.sql:1:{column}: {refused.problem} ({refused.instead})"
    ]


@pytest.mark.parametrize(
    "sql",
    [
        # Rows that only come.
        "SELECT page, epoch_time() AS seen FROM clicks WHERE ts < epoch_time()",
        "SELECT page, n, epoch_time() AS seen FROM (SELECT page, n FROM chg WHERE _weight = 1)",
        f"{PAIRS} AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' HOUR "
        "AND a.amount + b.amount > minute(epoch_time())",
        "SELECT page, way, epoch_time() AS seen FROM (SELECT page, _weight AS way FROM chg)",
        # A window is put out once.
        "SELECT window_end, epoch_time() AS t, COUNT(*) AS n FROM clicks "
        "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE) HAVING MAX(ts) < epoch_time()",
        # What is computed where records come in, and kept.
        f"{PAIRS} AND a.ts > epoch_time() - INTERVAL '1' DAY {FOREVER}",
        "SELECT page FROM clicks QUALIFY ROW_NUMBER() OVER "
        f"(PARTITION BY page ORDER BY epoch_time()) = 1 {FOREVER}",
    ],
)
def test_over_rows_that_come_alone_it_is_taken(tmp_path: Path, sql: str) -> None:
    model = load(tmp_path, {"a.sql": SOURCES, "b.sql": CHANGES, "models/m.sql": sql})
    assert "epoch_time()" in str(next(each.query for each in model.views if each.name == "m"))


def test_what_is_kept_of_records_may_be_computed_by_it(tmp_path: Path) -> None:
    """A key and the argument of an aggregate are taken back as they were put out."""
    query = read_query(
        tmp_path,
        "SELECT date_trunc('hour', epoch_time()) AS h, MAX(epoch_time()) AS last FROM clicks "
        f"WHERE ts < epoch_time() GROUP BY 1 HAVING h IS NOT NULL {FOREVER}",
    )
    assert isinstance(query, KeyedAggregate)
    assert query.keys == (Projection("_k0", "date_trunc('hour', epoch_time())"),)
    assert [each.sql for each in query.columns] == ["_k0", "_a0", "_weight"]
    assert query.having == "(_k0) IS NOT NULL"


def test_windows_that_close_over_changes_may_say_when(tmp_path: Path) -> None:
    """Each is put out once, whatever was taken back before."""
    source = (
        "CREATE SOURCE TABLE orders (total INT, ts TIMESTAMP, WATERMARK FOR ts) WITH (connector = "
        "'kafka', format = 'debezium-json', 'debezium.before' = 'required');"
    )
    known = Connectors(sources={"kafka": ("*",)}, sinks={}, traits={"kafka": kafka_traits})
    minute = "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)"
    sql = f"SELECT window_end, SUM(total) AS s, epoch_time() AS told FROM orders {minute}"
    query = load(tmp_path, {"a.sql": source, "models/m.sql": sql}, connectors=known).views[0].query
    assert isinstance(query, WindowAggregate)
    assert query.weight == "_weight"
    assert query.columns[2] == Projection("told", "epoch_time()")
    files = {"a.sql": source, "models/m.sql": sql.replace("total", "total * hour(epoch_time())")}
    (found,) = mistakes(tmp_path, files, connectors=known)
    assert found.startswith(f"models/m.sql:1:37: {CLOCKS['weighed'].problem}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("epoch_time()", "T"),
        ("lower(page)", "lower(page)"),
        ("Epoch_Time ( ) - x", "T - x"),
        ("`epoch_time`()", "T"),
        ("ts<epoch_time() AND epoch_time()>1", "ts<T AND T>1"),
        ("'call epoch_time()'", "'call epoch_time()'"),
        ('concat("epoch_time()", epoch_time())', 'concat("epoch_time()", T)'),
        (r"concat('it\'s epoch_time()', epoch_time())", r"concat('it\'s epoch_time()', T)"),
        (r"concat(r'\', epoch_time(), '')", r"concat(r'\', T, '')"),
        ("epoch_time", "epoch_time"),
        ("`a epoch_time()`", "`a epoch_time()`"),
        ("my_epoch_time()", "my_epoch_time()"),
    ],
)
def test_the_clock_is_put_into_calls_and_into_no_text(text: str, expected: str) -> None:
    assert with_clock(text, "T") == expected
    assert reads_clock(text) == (expected != text)


def test_a_text_that_speaks_of_it_is_no_call(tmp_path: Path) -> None:
    model = load(
        tmp_path,
        {
            "a.sql": SOURCES,
            "b.sql": CHANGES,
            "models/m.sql": "SELECT page, 'call epoch_time()' AS hint, _weight FROM chg",
        },
    )
    query = next(each.query for each in model.views if each.name == "m")
    assert isinstance(query, Select)
    assert query.columns[1].sql == "'call epoch_time()'"


def test_a_ranking_keeps_what_it_computed(tmp_path: Path) -> None:
    query = read_query(
        tmp_path,
        "SELECT page, epoch_time() AS seen FROM clicks QUALIFY ROW_NUMBER() OVER "
        f"(PARTITION BY page ORDER BY ts) = 1 {FOREVER}",
    )
    assert isinstance(query, Ranked)
    assert query.columns[1] == Projection("seen", "epoch_time()")
