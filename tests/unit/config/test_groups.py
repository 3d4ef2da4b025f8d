"""Groups without a window, sessions and growing windows become the engine's model."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from laminar_dagster.config.aggregate import Aggregate, Ordering
from laminar_dagster.config.definition import define
from laminar_dagster.config.lineage import column_lineage
from laminar_dagster.config.operators import stateful_operators
from laminar_dagster.config.relations import (
    KeyedAggregate,
    Projection,
    Ranked,
    Select,
    TableInput,
    Window,
    WindowAggregate,
)
from laminar_dagster.core.deployment import compare_definitions
from tests.unit.config.folders import SOURCES, load, mistakes, read_query

DAY = 86_400_000_000
WEIGHT = Projection("_weight", "_weight")
TTL = "EMIT CHANGES WITH (state.ttl = '1d')"
UNBOUNDED = "EMIT CHANGES WITH (state.ttl = 'unbounded')"


def keyed(folder: Path, sql: str) -> KeyedAggregate:
    query = read_query(folder, sql)
    assert isinstance(query, KeyedAggregate)
    return query


def test_a_group_puts_out_its_changes_and_forgets_by_event_time(tmp_path: Path) -> None:
    sql = f"SELECT page, SUM(amount) AS s FROM clicks WHERE user_id > 0 GROUP BY page {TTL}"
    assert keyed(tmp_path, sql) == KeyedAggregate(
        source=TableInput("clicks"),
        kind="group",
        emits="changes",
        keys=(Projection("_k0", "page"),),
        aggregates=(Aggregate("_a0", "sum", "amount"),),
        columns=(Projection("page", "_k0"), Projection("s", "_a0"), WEIGHT),
        time="ts",
        gap_micros=DAY,
        where="user_id > 0",
    )


def test_a_group_that_is_kept_for_ever_needs_no_event_time(tmp_path: Path) -> None:
    query = keyed(tmp_path, f"SELECT id, COUNT(*) AS n FROM plain GROUP BY id {UNBOUNDED}")
    assert (query.time, query.gap_micros, query.weight) == (None, None, None)


def test_distinct_is_a_group_by_every_column(tmp_path: Path) -> None:
    query = keyed(tmp_path, f"SELECT DISTINCT page, user_id % 10 AS shard FROM clicks {TTL}")
    assert query.keys == (Projection("_k0", "page"), Projection("_k1", "user_id % 10"))
    assert query.columns == (Projection("page", "_k0"), Projection("shard", "_k1"), WEIGHT)
    assert query.aggregates == ()


@pytest.mark.parametrize(
    ("group", "keys"),
    [
        ("(page)", ["page"]),
        ("(page, user_id)", ["page", "user_id"]),
        ("((page), (user_id + 1, (2)))", ["page", "user_id + 1", "amount % 2"]),
        ("()", []),
    ],
)
def test_what_is_grouped_by_may_stand_in_parentheses(
    tmp_path: Path, group: str, keys: list[str]
) -> None:
    listed = "COUNT(*) AS n" + (", amount % 2 AS part" if "2" in group else "")
    query = keyed(tmp_path, f"SELECT {listed} FROM clicks GROUP BY {group} {TTL}")
    assert [each.sql for each in query.keys] == keys


def test_a_window_may_stand_in_parentheses(tmp_path: Path) -> None:
    group = "(page, (TUMBLE(ts, INTERVAL '1' DAY)))"
    query = read_query(tmp_path, f"SELECT page, window_end FROM clicks GROUP BY {group}")
    assert isinstance(query, WindowAggregate)
    assert (query.window, query.keys) == (Window("ts", DAY, DAY), (Projection("_k0", "page"),))


def test_everything_is_one_group_without_a_key(tmp_path: Path) -> None:
    query = keyed(tmp_path, "SELECT COUNT(*) + 1 AS n FROM clicks EMIT CHANGES")
    assert (query.keys, query.columns[0].sql) == ((), "_a0 + 1")


def test_windows_may_put_out_their_changes(tmp_path: Path) -> None:
    sql = "SELECT window_end, COUNT(*) AS n FROM clicks GROUP BY HOP(ts, INTERVAL '1' DAY, "
    query = keyed(tmp_path, f"{sql}INTERVAL '2' DAY) EMIT CHANGES")
    assert (query.kind, query.window) == ("window", Window("ts", 2 * DAY, DAY))


@pytest.mark.parametrize("emit", ["", "EMIT CHANGES"])
def test_sessions_are_kept_by_key(tmp_path: Path, emit: str) -> None:
    group = "GROUP BY SESSION(ts, INTERVAL '1' DAY), page"
    start = "SESSION_START(ts, INTERVAL '1' DAY)"
    query = keyed(tmp_path, f"SELECT {start} AS since FROM clicks {group} {emit}")
    assert (query.kind, query.time, query.gap_micros) == ("session", "ts", DAY)
    assert query.emits == ("changes" if emit else "close")
    assert query.columns[0] == Projection("since", "window_start")


@pytest.mark.parametrize(
    ("call", "window"),
    [
        ("TUMBLE(ts, INTERVAL '1' DAY, INTERVAL '6' HOUR)", Window("ts", DAY, DAY, DAY // 4)),
        ("TUMBLE(ts, INTERVAL '1' DAY, INTERVAL '30' HOUR)", Window("ts", DAY, DAY, DAY // 4)),
        (
            "CUMULATE(ts, INTERVAL '1' HOUR, INTERVAL '1' DAY)",
            Window("ts", DAY, DAY // 24, 0, True),
        ),
    ],
)
def test_windows_have_offsets_and_may_grow(tmp_path: Path, call: str, window: Window) -> None:
    query = read_query(tmp_path, f"SELECT window_end, COUNT(*) AS n FROM clicks GROUP BY {call}")
    assert isinstance(query, WindowAggregate)
    assert query.window == window


def test_a_filter_of_an_aggregate_is_part_of_its_argument(tmp_path: Path) -> None:
    query = read_query(
        tmp_path,
        "SELECT COUNT(*) FILTER (WHERE c.PAGE = 'a') + SUM(amount) FILTER (WHERE user_id > 1) AS n "
        "FROM clicks c GROUP BY TUMBLE(ts, INTERVAL '1' DAY) HAVING COUNT(*) > 1",
    )
    assert isinstance(query, WindowAggregate)
    assert {(each.function, each.argument) for each in query.aggregates} == {
        ("count", "IF(page = 'a', 1, NULL)"),
        ("sum", "IF(user_id > 1, amount, NULL)"),
        ("count", None),
    }
    names = {each.argument: each.name for each in query.aggregates}
    first, second = names["IF(page = 'a', 1, NULL)"], names["IF(user_id > 1, amount, NULL)"]
    assert query.columns == (Projection("n", f"{first} + {second}"),)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("COUNT(DISTINCT page)", Aggregate("_a0", "count_distinct", "page")),
        ("array_agg(distinct page)", Aggregate("_a0", "collect_set", "page")),
        ("collect_list(page)", Aggregate("_a0", "collect_list", "page")),
        (
            "MAX_BY(lower(page), amount + 1)",
            Aggregate("_a0", "max_by", "lower(page)", "amount + 1"),
        ),
        ("FIRST(page)", Aggregate("_a0", "min_by", "page", "ts")),
        (
            "LAST_VALUE(page) FILTER (WHERE amount > 0)",
            Aggregate("_a0", "max_by", "page", "IF(amount > 0, ts, NULL)"),
        ),
        ("COUNT_IF(amount > 0)", Aggregate("_a0", "count", "IF(amount > 0, 1, NULL)")),
        ("count(DISTINCT page, ts)", Aggregate("_a0", "count_distinct", "page", others=("ts",))),
        ("SUM(DISTINCT amount)", Aggregate("_a0", "sum_distinct", "amount")),
        ("any_value(page)", Aggregate("_a0", "min", "page")),
        ("every(amount > 0)", Aggregate("_a0", "bool_and", "amount > 0")),
        ("std(amount)", Aggregate("_a0", "stddev_samp", "amount")),
        ("corr(amount, user_id)", Aggregate("_a0", "corr", "amount", others=("user_id",))),
        ("median(amount)", Aggregate("_a0", "percentile", "amount", shares=(0.5,))),
        (
            "percentile(amount, array(0.1, 0.9D))",
            Aggregate("_a0", "percentile", "amount", shares=(0.1, 0.9), is_list=True),
        ),
        (
            "percentile_disc(0.25) WITHIN GROUP (ORDER BY amount)",
            Aggregate("_a0", "percentile_disc", "amount", shares=(0.25,)),
        ),
        (
            "percentile_approx(amount, 0.5)",
            Aggregate("_a0", "approx_percentile", "amount", shares=(0.5,), precision=6),
        ),
        (
            "approx_percentile(amount, 0.5, 10000)",
            Aggregate("_a0", "approx_percentile", "amount", shares=(0.5,), precision=13),
        ),
        (
            "approx_count_distinct(page)",
            Aggregate(
                "_a0",
                "approx_count_distinct",
                "IF(page IS NULL, NULL, xxhash64(page))",
                precision=9,
            ),
        ),
        (
            "string_agg(DISTINCT page, ', ')",
            Aggregate("_a0", "string_agg", "page", separator=", ", is_distinct=True),
        ),
        (
            "listagg(page, '-') WITHIN GROUP (ORDER BY ts DESC, amount) FILTER (WHERE amount > 0)",
            Aggregate(
                "_a0",
                "string_agg",
                "IF(amount > 0, page, NULL)",
                order=(
                    Ordering("IF(amount > 0, ts, NULL)", True, False),
                    Ordering("IF(amount > 0, amount, NULL)", False, True),
                ),
                separator="-",
            ),
        ),
    ],
)
def test_aggregates_are_what_they_are_kept_as(
    tmp_path: Path, call: str, expected: Aggregate
) -> None:
    query = keyed(tmp_path, f"SELECT user_id, {call} AS x FROM clicks GROUP BY user_id {TTL}")
    assert query.aggregates == (expected,)


def test_a_query_that_is_read_twice_keeps_its_state_once(tmp_path: Path) -> None:
    sql = (
        "WITH pages AS (SELECT page, COUNT(*) AS n FROM clicks GROUP BY page) "
        "SELECT page, n FROM pages UNION ALL SELECT upper(page), n + 1 FROM pages WHERE n > 1 "
        f"UNION ALL SELECT page, COUNT(*) AS n FROM plain_pages GROUP BY page {UNBOUNDED}"
    )
    plain = "SELECT CAST(id AS STRING) AS page FROM plain"
    files = {"sources.sql": SOURCES, "models/m.sql": sql, "models/plain_pages.sql": plain}
    (view,) = [each for each in load(tmp_path, files).views if each.name == "m"]
    assert [str(operator) for operator, _ in stateful_operators(view)] == ["m.0", "m.2"]


NUMBER = "ROW_NUMBER() OVER (PARTITION BY page ORDER BY ts DESC, user_id)"
RANKED = Ranked(
    source=TableInput("clicks"),
    keys=(Projection("_k0", "page"),),
    order=(Ordering("ts", True, False), Ordering("user_id", False, True)),
    limit=2,
    rank="rn",
    columns=(Projection("page", "page"), Projection("x", "user_id + 1")),
    time="ts",
    gap_micros=DAY,
    where="amount > 0",
)
INSIDE = f"SELECT page, user_id + 1 AS x, {NUMBER} AS rn FROM clicks WHERE amount > 0"


@pytest.mark.parametrize(
    ("sql", "limit"),
    [
        (f"SELECT page, x FROM ({INSIDE}) WHERE rn <= 2", 2),
        (f"SELECT page, x FROM ({INSIDE}) WHERE x > 1 AND (rn < 4)", 3),
        (f"WITH r AS ({INSIDE}) SELECT page, x FROM r WHERE rn = 1", 1),
    ],
)
def test_row_numbers_are_limited_by_the_query_around(tmp_path: Path, sql: str, limit: int) -> None:
    query = read_query(tmp_path, f"{sql} {TTL}")
    assert isinstance(query, Select)
    assert query.source == dataclasses.replace(RANKED, limit=limit)
    assert [each.name for each in query.columns] == ["page", "x", "_weight"]


def test_row_numbers_may_stand_in_qualify(tmp_path: Path) -> None:
    sql = f"SELECT page, user_id + 1 AS x FROM clicks WHERE amount > 0 QUALIFY {NUMBER} <= 2 {TTL}"
    assert read_query(tmp_path, sql) == dataclasses.replace(RANKED, rank=None)


CHANGES = {
    "models/pages.sql": f"SELECT page, COUNT(*) AS n FROM clicks GROUP BY page {UNBOUNDED}",
    "models/sizes.sql": f"SELECT n, COUNT(*) AS pages FROM pages GROUP BY n {UNBOUNDED}",
}


def test_what_is_taken_back_below_is_undone_above(tmp_path: Path) -> None:
    model = load(tmp_path, {"sources.sql": SOURCES, **CHANGES})
    above = next(each for each in model.views if each.name == "sizes")
    assert isinstance(above.query, KeyedAggregate)
    assert above.query.weight == "_weight"
    (found,) = [each for each in define(model).operators if each.operator_id == "sizes"]
    assert found.partials == ("count(*) by weight",)
    assert column_lineage(model)["sizes"]["n"] == (("pages", "n"),)
    assert column_lineage(model)["sizes"]["_weight"] == ()


@pytest.mark.parametrize(
    ("options", "wrong"), [("", True), ("mode = 'upsert', key = 'page'", False)]
)
def test_a_sink_that_appends_cannot_take_rows_back(
    tmp_path: Path, options: str, wrong: bool
) -> None:
    more = f", {options}" if options else ""
    sink = f"CREATE SINK s FROM pages WITH (connector = 'sqlite', path = 'x'{more})"
    files = {"sources.sql": SOURCES, "sinks.sql": sink, **CHANGES}
    if not wrong:
        assert load(tmp_path, files).sinks
        return
    assert mistakes(tmp_path, files) == [
        "sinks.sql:1: view `pages` takes rows back, and sink `s` appends: the row of a group goes "
        "when the group changes (set mode = 'upsert' and a key; or keep a log of it: _weight AS "
        "change)"
    ]


@pytest.mark.parametrize(
    ("old", "new", "verdict", "reason"),
    [
        ("COUNT(*) AS n", "COUNT(*) AS m", "keep", ""),
        ("COUNT(*) AS n", "MIN(ts) AS n", "rebuild", "its state holds no `min(ts)`"),
        ("'1d'", "'2d'", "rebuild", "rows were kept for 86400 s after the last event, and are to"),
        ("'1d'", "'unbounded'", "rebuild", "event time was `ts`, and is nothing"),
        (
            "GROUP BY page EMIT CHANGES WITH (state.ttl = '1d')",
            "GROUP BY SESSION(ts, INTERVAL '1' DAY), page",
            "rebuild",
            "its state was kept by key, as a group, and is to be kept by key, as a session",
        ),
    ],
)
def test_a_changed_group_keeps_its_state_or_says_why_not(
    tmp_path: Path, old: str, new: str, verdict: str, reason: str
) -> None:
    sql = f"SELECT page, COUNT(*) AS n FROM clicks GROUP BY page {TTL}"
    assert old in sql
    found = [
        define(load(tmp_path / str(number), {"sources.sql": SOURCES, "models/m.sql": text}))
        for number, text in enumerate((sql, sql.replace(old, new)))
    ]
    (change,) = [each for each in compare_definitions(*found) if each.operator_id == "m"]
    assert change.verdict == verdict
    assert "; ".join(change.reasons).startswith(reason)
