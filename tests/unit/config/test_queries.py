"""Queries become the engine's model, and expressions stay what their author wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from laminar_dagster.config.aggregate import Aggregate
from laminar_dagster.config.relations import (
    Projection,
    Select,
    TableInput,
    UnionAll,
    Window,
    WindowAggregate,
)
from tests.unit.config.folders import load, read_query

MINUTE = 60_000_000
W = "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)"


def windowed(folder: Path, sql: str) -> WindowAggregate:
    query = read_query(folder, sql)
    assert isinstance(query, WindowAggregate)
    return query


# What is written, and what Spark is given: the same, with columns by their declared names.
TEXTS = [
    ("page", "page"),
    ("PAGE", "page"),
    ("c.`a b` + 1", "`a b` + 1"),
    ("c.device.os", "device.os"),
    ("device.OS", "device.OS"),
    ("Lower ( page )", "lower(page)"),
    ("1.5BD + 2L", "1.5BD + 2L"),
    ("'it''s'", "'it''s'"),
    ("'a' 'b'", "'a' 'b'"),
    ('"text"', '"text"'),
    (r"r'\d+'", r"r'\d+'"),
    ("cast(amount as Decimal(5,1))", "cast(amount AS decimal(5, 1))"),
    ("amount::int", "amount :: INT"),
    ("a - -1".replace("a", "user_id"), "user_id - - 1"),
    ("user_id/*x*/-/*y*/1 -- z\n", "user_id - 1"),
    ("case page when 'a' then 1 else 2 end", "CASE page WHEN 'a' THEN 1 ELSE 2 END"),
    ("transform(tags, x -> concat(x, c.page))", "transform(tags, x -> concat(x, page))"),
    ("filter(tags, date -> date like 'a%')", "filter(tags, date -> date LIKE 'a%')"),
    ("dateadd(MONTH, 1, c.ts)", "dateadd(MONTH, 1, ts)"),
    ("extract(day from ts)", "extract(DAY FROM ts)"),
    ("trim(both 'x' from page)", "trim(BOTH 'x' FROM page)"),
    ("tags[0]", "tags[0]"),
    ("user_id>>1", "user_id >> 1"),
    ("page in('a', 'b') and not(user_id > 1)", "page IN ('a', 'b') AND NOT (user_id > 1)"),
    ("page like any ('a%', 'b%')", "page LIKE ANY ('a%', 'b%')"),
    ("struct(c.PAGE, user_id as date)", "struct(page AS PAGE, user_id AS date)"),
    ("mask(page, lowerChar => 'q')", "mask(page, lowerChar => 'q')"),
    ("epoch_time()", "epoch_time()"),
    ("ts + interval 1 day", "ts + INTERVAL 1 DAY"),
    ("transform(tags, day -> day || 'x')", "transform(tags, day -> day || 'x')"),
    ("if(page <=> null, 1, 2)", "if(page <=> NULL, 1, 2)"),
    ("exists(tags, x -> x = page)", "exists(tags, x -> x = page)"),
    ("user_id % 2 = 0 or page is not null", "user_id % 2 = 0 OR page IS NOT NULL"),
    ("named_struct('a', 1).a", "named_struct('a', 1).a"),
    # A field keeps its name, also one that looks like a keyword or a unit.
    ("cast(device as struct<date: string>)", "cast(device AS STRUCT < date : STRING >)"),
    ("device::struct<Day int>", "device :: STRUCT < Day INT >"),
    (
        "try_cast(tags as array<struct<map: int, rn: map<int, struct<year: int>>>>)",
        "try_cast(tags AS ARRAY < STRUCT < map : INT, rn : MAP < INT, STRUCT < year : INT >>>>)",
    ),
    ("transform(tags, page -> upper(page))", "transform(tags, page -> upper(page))"),
    ("transform(tags, _ -> c.page)", "transform(tags, _ -> page)"),
]


@pytest.mark.parametrize(("written", "expected"), TEXTS)
def test_an_expression_stays_as_it_is_written(tmp_path: Path, written: str, expected: str) -> None:
    query = read_query(tmp_path, f"SELECT {written} AS x FROM clicks AS c WHERE ({written}) = 1")
    assert query == Select(TableInput("clicks"), (Projection("x", expected),), f"({expected}) = 1")


def test_a_star_is_the_columns_of_the_input(tmp_path: Path) -> None:
    query = read_query(tmp_path, "SELECT c.*, page || 'x' AS p FROM clicks c")
    assert isinstance(query, Select)
    assert [each.sql for each in query.columns] == [
        *("user_id", "page", "amount", "device", "tags", "ts", "`a b`", "page || 'x'")
    ]


def test_each_distinct_aggregate_is_computed_once(tmp_path: Path) -> None:
    query = windowed(
        tmp_path,
        "SELECT page, SUM(amount) / COUNT(*) AS m, round(avg(amount), 2) AS a, count( * ) AS n "
        f"FROM clicks WHERE user_id > 0 {W}, page HAVING count(*) > 1 "
        "AND mean(amount) > 2 AND m > 3",
    )
    assert query == WindowAggregate(
        source=TableInput("clicks"),
        window=Window("ts", MINUTE, MINUTE),
        keys=(Projection("_k0", "page"),),
        aggregates=(
            Aggregate("_a0", "count", None),
            Aggregate("_a1", "sum", "amount"),
            Aggregate("_a2", "avg", "amount"),
        ),
        columns=(
            Projection("page", "_k0"),
            Projection("m", "_a1 / _a0"),
            Projection("a", "round(_a2, 2)"),
            Projection("n", "_a0"),
        ),
        where="user_id > 0",
        having="_a0 > 1 AND _a2 > 2 AND (_a1 / _a0) > 3",
    )


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE) AS s, window_end AS e, page "
        f"FROM clicks {W}, page",
        "SELECT window_start AS s, tumble_end(ts, interval 60 seconds) AS e, page "
        f"FROM clicks {W}, 3",
        "SELECT window_start AS s, window_end AS e, page AS page "
        "FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) "
        "GROUP BY window_start, window_end, page",
        "SELECT window_start AS s, window_end AS e, w.page FROM "
        "TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1 minute') w GROUP BY window_start, page",
    ],
)
def test_a_window_may_be_written_in_several_ways(tmp_path: Path, sql: str) -> None:
    assert windowed(tmp_path, sql) == WindowAggregate(
        TableInput("clicks"),
        Window("ts", MINUTE, MINUTE),
        (Projection("_k0", "page"),),
        (),
        (Projection("s", "window_start"), Projection("e", "window_end"), Projection("page", "_k0")),
    )


def test_a_hop_has_a_slide_and_a_size(tmp_path: Path) -> None:
    hop = "HOP(ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)"
    query = windowed(
        tmp_path, f"SELECT HOP_START{hop[3:]} AS s, max(ts) AS m FROM clicks GROUP BY {hop}"
    )
    assert query.window == Window("ts", size_micros=5 * MINUTE, slide_micros=MINUTE)


def test_a_grouped_expression_is_found_again(tmp_path: Path) -> None:
    query = windowed(
        tmp_path,
        "SELECT upper(page) AS p, (user_id + 1) * 2 AS u, device.os, count(*) AS n "
        f"FROM clicks c {W}, p, c.user_id + 1, device",
    )
    assert [each.sql for each in query.keys] == ["upper(page)", "user_id + 1", "device"]
    assert [each.sql for each in query.columns] == ["_k0", "(_k1) * 2", "_k2.os", "_a0"]


def test_fields_of_a_struct_keep_their_names(tmp_path: Path) -> None:
    query = windowed(
        tmp_path,
        f"SELECT to_json(struct(page, count(*), sum(amount) AS t)) AS j FROM clicks {W}, page",
    )
    assert query.columns[0].sql == "to_json(struct(_k0 AS page, _a0 AS col2, _a1 AS t))".replace(
        "_a0 AS col2, _a1", f"{query.aggregates[1].name} AS col2, {query.aggregates[0].name}"
    )


def test_event_time_is_traced_through_views_queries_and_unions(tmp_path: Path) -> None:
    query = windowed(
        tmp_path,
        "SELECT count(*) AS n FROM (SELECT ts AS t FROM clicks UNION ALL "
        "SELECT x FROM (SELECT page, ts AS x FROM clicks WHERE page > 'a')) "
        "GROUP BY TUMBLE(t, INTERVAL '1' MINUTE)",
    )
    assert isinstance(query.source, UnionAll)
    assert [each.columns for each in query.source.parts] == [
        (Projection("t", "ts"),),
        (Projection("t", "x"),),
    ]


@pytest.mark.parametrize("column", ["window_start", "window_end"])
def test_windows_may_be_made_of_windows(tmp_path: Path, column: str) -> None:
    query = windowed(
        tmp_path,
        f"SELECT sum(n) AS n FROM per_minute GROUP BY TUMBLE({column}, INTERVAL '1' HOUR)",
    )
    assert query.window == Window(column, 60 * MINUTE, 60 * MINUTE)


def test_the_first_query_of_a_union_names_the_columns(tmp_path: Path) -> None:
    query = read_query(
        tmp_path,
        "SELECT page, user_id AS u FROM clicks UNION ALL (SELECT 'x', id FROM plain UNION ALL "
        "SELECT page, n FROM per_minute)",
    )
    assert isinstance(query, UnionAll)
    assert [[each.name for each in part.columns] for part in query.parts] == [["page", "u"]] * 3


def test_views_come_after_what_they_read_whatever_their_files(tmp_path: Path) -> None:
    files = {
        "sources.sql": "CREATE SOURCE TABLE s (x INT) WITH (connector = 'file')",
        "models/a.sql": "SELECT x FROM c",
        "models/b.sql": "SELECT x FROM S",
        "models/c.sql": "SELECT x FROM b UNION ALL SELECT x FROM s",
    }
    model = load(tmp_path, files)
    assert [each.name for each in model.views] == ["b", "c", "a"]
    assert model.views[1].reads == ("b", "s")
    assert model.views[0].columns == ("x",)


def test_a_common_table_is_a_query_in_from(tmp_path: Path) -> None:
    named = read_query(
        tmp_path / "named",
        "WITH a AS (SELECT page, ts AS at FROM clicks), b AS (SELECT x.page, at FROM a AS x) "
        "SELECT b.page, count(*) AS n FROM b GROUP BY TUMBLE(b.at, INTERVAL '1' MINUTE), page "
        "UNION ALL SELECT page, 1 FROM (WITH c AS (SELECT page FROM a) SELECT * FROM c)",
    )
    nested = read_query(
        tmp_path / "nested",
        "SELECT page, count(*) AS n FROM (SELECT page, at FROM (SELECT page, ts AS at FROM clicks))"
        " GROUP BY TUMBLE(at, INTERVAL '1' MINUTE), page "
        "UNION ALL SELECT page, 1 FROM "
        "(SELECT page FROM (SELECT page FROM (SELECT page, ts AS at FROM clicks)))",
    )
    assert named == nested
