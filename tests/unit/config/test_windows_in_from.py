"""A window as a table function in FROM: its edges, and the keys of its sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from laminar_dagster.config.relations import (
    KeyedAggregate,
    Projection,
    Select,
    Window,
    WindowAggregate,
)
from tests.unit.config.folders import read_query, wrong_query

DAY = 86_400_000_000
TUMBLE = "TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' DAY))"
CUMULATE = "TABLE(CUMULATE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' DAY))"
EDGES = "window_start, window_end"


def session(partition: str = "") -> str:
    by = f" PARTITION BY {partition}" if partition else ""
    return f"TABLE(SESSION(TABLE clicks{by}, DESCRIPTOR(ts), INTERVAL '1' DAY))"


@pytest.mark.parametrize("listed", ["window_end", "TUMBLE_START(ts, INTERVAL '1' DAY) AS since"])
def test_distinct_rows_of_a_window_name_it(tmp_path: Path, listed: str) -> None:
    query = read_query(tmp_path, f"SELECT DISTINCT {listed}, page FROM {TUMBLE}")
    assert isinstance(query, WindowAggregate)
    assert (query.window, query.keys) == (Window("ts", DAY, DAY), (Projection("_k0", "page"),))


def test_the_end_of_a_window_that_grows_tells_its_beginning(tmp_path: Path) -> None:
    query = read_query(tmp_path, f"SELECT DISTINCT window_end FROM {CUMULATE}")
    assert isinstance(query, WindowAggregate)


def test_an_edge_may_be_grouped_by_under_another_name(tmp_path: Path) -> None:
    queries = [
        read_query(tmp_path / str(number), f"SELECT window_end AS e FROM {TUMBLE} GROUP BY {by}")
        for number, by in enumerate(["window_end", "e", "1", "TUMBLE_END(ts, INTERVAL '1' DAY)"])
    ]
    assert all(isinstance(each, WindowAggregate) and each == queries[0] for each in queries)


@pytest.mark.parametrize("emit", ["", "EMIT CHANGES"])
@pytest.mark.parametrize(
    ("partition", "keys"),
    [
        ("", []),
        ("user_id", ["user_id"]),
        ("(user_id)", ["user_id"]),
        ("(page, clicks.user_id)", ["user_id", "page"]),
    ],
)
def test_sessions_are_of_the_keys_that_partition_them(
    tmp_path: Path, partition: str, keys: list[str], emit: str
) -> None:
    listed = "".join(f", {each}" for each in keys)
    columns = f"SELECT window_start AS since, COUNT(*) AS n{listed}"
    in_from = f"{columns} FROM {session(partition)} GROUP BY {EDGES}{listed} {emit}"
    in_group = f"{columns} FROM clicks GROUP BY SESSION(ts, INTERVAL '1' DAY){listed} {emit}"
    found = read_query(tmp_path / "from", in_from)
    assert found == read_query(tmp_path / "group", in_group)
    assert isinstance(found, KeyedAggregate)
    assert [each.sql for each in found.keys] == keys


def test_rows_are_chosen_before_they_make_sessions(tmp_path: Path) -> None:
    chosen = session("page").replace("clicks", "chosen")
    query = read_query(
        tmp_path,
        "WITH chosen AS (SELECT page, ts FROM clicks WHERE amount > 0) "
        f"SELECT page, window_end FROM {chosen} GROUP BY page, {EDGES}",
    )
    assert isinstance(query, KeyedAggregate)
    assert isinstance(query.source, Select)
    assert (query.where, query.source.where) == (None, "amount > 0")


def test_distinct_sessions_are_of_the_keys_that_partition_them(tmp_path: Path) -> None:
    sql = f"SELECT DISTINCT page, window_start AS since FROM {session('page')}"
    query = read_query(tmp_path, sql)
    assert isinstance(query, KeyedAggregate)
    assert (query.kind, query.keys) == ("session", (Projection("_k0", "page"),))


KEYS = (
    "SESSION in FROM whose PARTITION BY is not what GROUP BY lists is not supported yet (write the "
    "keys in both: SESSION(TABLE t PARTITION BY (a, b), DESCRIPTOR(ts), gap) … GROUP BY a, b, "
    "window_start, window_end; without PARTITION BY, sessions are of the whole table)"
)
GROUP_BY = (
    "GROUP BY without the edges of a window in FROM is not supported yet "
    "(add window_start, window_end to GROUP BY)"
)
DISTINCT = (
    "SELECT DISTINCT without the edges of a window in FROM is not supported yet "
    "(add window_start, window_end to SELECT)"
)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (f"SELECT DISTINCT page FROM {TUMBLE}", f"1:8: {DISTINCT}"),
        (f"SELECT DISTINCT window_start FROM {CUMULATE}", f"1:8: {DISTINCT}"),
        (f"SELECT page, COUNT(*) AS n FROM {TUMBLE} GROUP BY page", f"1:95: {GROUP_BY}"),
        (f"SELECT 1 AS n FROM {CUMULATE} GROUP BY window_start", f"1:103: {GROUP_BY}"),
        (
            f"SELECT user_id, COUNT(*) AS n FROM {session()} GROUP BY {EDGES}, user_id",
            f"1:36: {KEYS}",
        ),
        (
            f"SELECT COUNT(*) AS n FROM {session('user_id')} GROUP BY {EDGES}",
            f"1:27: {KEYS}",
        ),
        (
            f"SELECT page, 1 AS n FROM {session('user_id')} GROUP BY {EDGES}, page, user_id",
            f"1:26: {KEYS}",
        ),
        (f"SELECT DISTINCT page, window_end FROM {session()}", f"1:39: {KEYS}"),
        (
            f"SELECT COUNT(*) AS n FROM {session()} WHERE amount > 0 GROUP BY {EDGES}",
            "1:90: WHERE over a SESSION in FROM is not supported yet (choose the rows before: "
            "WITH chosen AS (SELECT … WHERE …) … SESSION(TABLE chosen …))",
        ),
        (
            f"SELECT COUNT(*) AS n FROM {session('usr_id')} GROUP BY {EDGES}, user_id",
            "1:67: `clicks` has no column `usr_id` (did you mean `user_id`?)",
        ),
        (
            f"SELECT 1 AS n FROM {session('user_id, page')} GROUP BY {EDGES}",
            "1:69: `page` cannot stand here",
        ),
        (
            "SELECT 1 AS n FROM TABLE(TUMBLE(TABLE clicks PARTITION BY page, DESCRIPTOR(ts), "
            "INTERVAL '1' DAY)) GROUP BY window_end",
            "1:46: `PARTITION BY` cannot stand here",
        ),
    ],
)
def test_a_window_in_from_means_what_it_says_or_is_refused(
    tmp_path: Path, sql: str, expected: str
) -> None:
    assert wrong_query(tmp_path, sql) == [f"models/m.sql:{expected}"]
