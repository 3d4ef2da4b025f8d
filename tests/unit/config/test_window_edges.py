"""``window_start`` and ``window_end``: of a query's own window, or columns of its input."""

from __future__ import annotations

from pathlib import Path

import pytest

from laminar_dagster.config.relations import KeyedAggregate, Projection
from tests.unit.config.folders import read_query, wrong_query

UNBOUNDED = "EMIT CHANGES WITH (state.ttl = 'unbounded')"
ELSEWHERE = "(it exists in SELECT and HAVING of a query with GROUP BY TUMBLE(…) or the like)"


@pytest.mark.parametrize(
    ("sql", "keys", "columns"),
    [
        (
            "SELECT page, SUM(n) AS n FROM per_minute GROUP BY page, window_start",
            ["page", "window_start"],
            {"page": "_k0", "n": "_a0"},
        ),
        (
            "SELECT window_start, p.Window_End, SUM(n) AS n FROM per_minute p "
            "GROUP BY p.window_start, window_end",
            ["window_start", "window_end"],
            {"window_start": "_k0", "Window_End": "_k1", "n": "_a0"},
        ),
        (
            "SELECT date_trunc('day', window_start) AS day, w FROM "
            "(SELECT page AS w, window_start FROM per_minute) GROUP BY w, window_start",
            ["w", "window_start"],
            {"day": "date_trunc('day', _k1)", "w": "_k0"},
        ),
        (
            "SELECT window_start AS since, COUNT(*) AS n FROM per_minute GROUP BY since",
            ["window_start"],
            {"since": "_k0", "n": "_a0"},
        ),
        ("SELECT DISTINCT window_start FROM per_minute", ["window_start"], {"window_start": "_k0"}),
    ],
)
def test_without_a_window_of_its_own_a_query_groups_by_the_edges_of_its_input(
    tmp_path: Path, sql: str, keys: list[str], columns: dict[str, str]
) -> None:
    query = read_query(tmp_path, f"{sql} {UNBOUNDED}")
    assert isinstance(query, KeyedAggregate)
    assert (query.kind, [each.sql for each in query.keys]) == ("group", keys)
    assert query.columns[:-1] == tuple(Projection(name, text) for name, text in columns.items())


def test_a_condition_on_groups_sees_an_edge_of_the_input(tmp_path: Path) -> None:
    having = "HAVING window_start > TIMESTAMP'2026-01-01' AND w IS NOT NULL"
    sql = f"SELECT window_start AS w FROM per_minute GROUP BY window_start {having} {UNBOUNDED}"
    query = read_query(tmp_path, sql)
    assert isinstance(query, KeyedAggregate)
    assert query.having == "_k0 > TIMESTAMP '2026-01-01' AND (_k0) IS NOT NULL"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            "SELECT window_start AS s, COUNT(*) AS n FROM clicks",
            f"1:8: there is no `window_start` in SELECT here {ELSEWHERE}",
        ),
        (
            "SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE) AS s, COUNT(*) AS n FROM clicks",
            f"1:8: TUMBLE_START cannot be used in SELECT here {ELSEWHERE}",
        ),
        (
            "SELECT page, COUNT(*) AS n FROM clicks GROUP BY page, window_end",
            f"1:55: there is no `window_end` in GROUP BY here {ELSEWHERE}",
        ),
        (
            "SELECT COUNT(*) AS n FROM clicks HAVING TUMBLE_END(ts, INTERVAL '1' DAY) IS NULL",
            f"1:41: TUMBLE_END cannot be used in HAVING here {ELSEWHERE}",
        ),
        (
            "SELECT DISTINCT TUMBLE_END(ts, INTERVAL '1' DAY) AS e FROM clicks",
            f"1:17: TUMBLE_END cannot be used in GROUP BY here {ELSEWHERE}",
        ),
        (
            "SELECT window_start AS s, COUNT(*) AS n FROM per_minute",
            "1:8: `window_start` is neither grouped by nor aggregated "
            "(add it to GROUP BY, or aggregate it)",
        ),
        (
            "SELECT page AS window_start, COUNT(*) AS n FROM per_minute GROUP BY page",
            "1:16: the name `window_start` is reserved (it is for the edges of a window)",
        ),
    ],
)
def test_without_any_window_there_is_no_edge(tmp_path: Path, sql: str, expected: str) -> None:
    assert wrong_query(tmp_path, f"{sql} {UNBOUNDED}") == [f"models/m.sql:{expected}"]


def test_an_edge_of_the_window_and_one_of_the_input_are_told_apart(tmp_path: Path) -> None:
    sql = (
        "SELECT page, SUM(n) AS n FROM per_minute p "
        "GROUP BY TUMBLE(window_end, INTERVAL '1' HOUR), page, {}"
    )
    assert wrong_query(tmp_path / "alone", sql.format("window_start")) == [
        "models/m.sql:1:98: `window_start` is a column of the input, and an edge of the window "
        "(write `p.window_start` for the column; the window is grouped by without its edges)"
    ]
    unnamed = sql.replace("per_minute p", "(SELECT * FROM per_minute)").format("window_start")
    (found,) = wrong_query(tmp_path / "unnamed", unnamed)
    assert "(call the input t, and write `t.window_start` for the column; the window" in found
    query = read_query(tmp_path / "named", sql.format("p.window_start"))
    assert not isinstance(query, KeyedAggregate)
