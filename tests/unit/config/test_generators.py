"""``explode(…)`` and its like, read into the engine's model."""

from __future__ import annotations

from pathlib import Path

import pytest

from laminar_dagster.config.fingerprint import relations
from laminar_dagster.config.lineage import InputColumn, column_lineage
from laminar_dagster.config.relations import (
    Explode,
    Join,
    KeyedAggregate,
    Projection,
    Query,
    Select,
    UnionAll,
    WindowAggregate,
)
from tests.unit.config.folders import SOURCES, load, read_query

EXPLODED = "FROM clicks LATERAL VIEW explode(tags) t AS tag"


def explode_in(query: Query) -> Explode:
    (found,) = (each for each in relations(query) if isinstance(each, Explode))
    return found


def test_a_lateral_view_keeps_what_is_asked_for(tmp_path: Path) -> None:
    sql = (
        "SELECT c.page, t.x FROM clicks c LATERAL VIEW OUTER posexplode(c.tags) t AS n, x"
        " WHERE n > 0"
    )
    query = read_query(tmp_path, sql)
    assert isinstance(query, Select)
    assert query.where == "`right.n` > 0"
    found = explode_in(query)
    assert (found.items, found.kind, found.names) == ("tags", "posexplode", ("n", "x"))
    assert found.keeps_empty and not found.is_weighed
    assert found.columns == (Projection("left.page", "page"),)
    assert found.found == (Projection("right.n", "n"), Projection("right.x", "x"))


@pytest.mark.parametrize(
    ("sql", "kind", "keeps_empty"),
    [
        (f"SELECT page, tag {EXPLODED}", "explode", False),
        ("SELECT page, tag FROM clicks LATERAL VIEW explode_outer(tags) t AS tag", "explode", True),
        ("SELECT page, col FROM clicks LATERAL VIEW explode(tags) t", "explode", False),
        ("SELECT page, pos, col FROM clicks LATERAL VIEW posexplode(tags) t", "posexplode", False),
        ("SELECT page, tag FROM clicks CROSS JOIN UNNEST(tags) AS t (tag)", "unnest", False),
        ("SELECT page, tag FROM clicks, UNNEST(tags) AS t (tag)", "unnest", False),
        ("SELECT page, tag FROM clicks LEFT JOIN UNNEST(tags) AS t (tag) ON TRUE", "unnest", True),
        ("SELECT page, x FROM clicks LEFT JOIN UNNEST(tags) AS t (x) ON (TRUE)", "unnest", True),
        ("SELECT page, tag FROM clicks, LATERAL explode(tags) AS t (tag)", "explode", False),
        ("SELECT page, tag FROM clicks JOIN LATERAL inline(tags) AS t (tag)", "inline", False),
        ("SELECT page, explode(tags) AS tag FROM clicks", "explode", False),
        ("SELECT posexplode_outer(tags) AS (n, tag), page FROM clicks", "posexplode", True),
    ],
)
def test_every_way_to_write_it(tmp_path: Path, sql: str, kind: str, keeps_empty: bool) -> None:
    found = explode_in(read_query(tmp_path, sql))
    assert (found.kind, found.keeps_empty) == (kind, keeps_empty)


def test_in_select_the_list_is_computed_after_where(tmp_path: Path) -> None:
    sql = "SELECT page, explode(tags) AS (k, v), ts AS at FROM clicks WHERE amount > 1"
    query = read_query(tmp_path, sql)
    assert isinstance(query, Select) and query.where is None
    assert query.columns == (
        Projection("page", "_c0"),
        Projection("k", "_i0"),
        Projection("v", "_i1"),
        Projection("at", "_c2"),
    )
    found = explode_in(query)
    assert isinstance(found.source, Select)
    assert found.source.where == "amount > 1"
    assert [each.sql for each in found.source.columns] == ["page", "tags", "ts"]
    assert (found.items, found.names) == ("_c1", ("_i0", "_i1"))


@pytest.mark.parametrize(
    "source",
    [
        "JOIN plain p ON c.user_id = p.id EMIT CHANGES WITH (state.ttl = 'unbounded')",
        "LATERAL VIEW explode(array(amount)) t AS x",
    ],
)
def test_in_select_over_a_join_it_keeps_what_is_asked_for(tmp_path: Path, source: str) -> None:
    sql = f"SELECT c.page, explode(c.tags) AS tag FROM clicks c {source}"
    query = read_query(tmp_path, sql)
    assert isinstance(query, Select) and isinstance(query.source, Explode)
    inner = query.source.source
    assert isinstance(inner, Select) and isinstance(inner.source, Join | Explode)
    assert [each.sql for each in inner.columns][:2] == ["`left.page`", "`left.tags`"]
    kept = inner.source.left.columns if isinstance(inner.source, Join) else inner.source.columns
    assert kept == (Projection("left.page", "page"), Projection("left.tags", "tags"))


def test_star_before_it_and_a_union_that_names_no_columns(tmp_path: Path) -> None:
    sql = (
        "SELECT page, explode(tags) AS tag FROM clicks"
        " UNION ALL SELECT page, explode(array(page)) FROM clicks"
    )
    query = read_query(tmp_path / "a", sql)
    assert isinstance(query, UnionAll)
    assert [[each.name for each in part.columns] for part in query.parts] == [["page", "tag"]] * 2
    star = read_query(tmp_path / "b", "SELECT *, explode(tags) AS tag, 1 AS one FROM clicks")
    assert isinstance(star, Select)
    names = [each.name for each in star.columns]
    assert names[-2:] == ["tag", "one"] and names[0] == "user_id" and "tags" in names


def test_event_time_passes_and_a_list_has_none(tmp_path: Path) -> None:
    """Else a window over it would be refused."""
    windowed = f"SELECT tag, count(*) AS n {EXPLODED} GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), tag"
    query = read_query(tmp_path / "a", windowed)
    assert isinstance(query, WindowAggregate) and query.window.time == "`left.ts`"
    above = (
        "SELECT tag, count(*) AS n FROM (SELECT ts, explode(tags) AS tag FROM clicks)"
        " GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), tag"
    )
    assert isinstance(read_query(tmp_path / "b", above), WindowAggregate)


def test_a_time_to_live_needs_event_time_although_nobody_selects_it(tmp_path: Path) -> None:
    sql = f"SELECT tag, COUNT(*) AS n {EXPLODED} GROUP BY tag EMIT CHANGES WITH (state.ttl = '1d')"
    query = read_query(tmp_path, sql)
    assert isinstance(query, KeyedAggregate) and query.time == "`left.ts`"
    assert explode_in(query).columns == (Projection("left.ts", "ts"),)


def test_rows_that_are_taken_back_take_their_weight_along(tmp_path: Path) -> None:
    inner = "(SELECT page, count(*) AS n FROM clicks GROUP BY page)"
    emit = "EMIT CHANGES WITH (state.ttl = 'unbounded')"
    sql = f"SELECT x, count(*) AS pages FROM {inner} LATERAL VIEW explode(array(n)) t AS x"
    query = read_query(tmp_path / "a", f"{sql} GROUP BY x {emit}")
    assert isinstance(query, KeyedAggregate) and query.weight == "_weight"
    assert explode_in(query).is_weighed
    plain = read_query(tmp_path / "b", f"SELECT page, explode(array(n)) AS x FROM {inner} {emit}")
    assert isinstance(plain, Select)
    assert plain.columns[-1] == Projection("_weight", "_weight")
    assert explode_in(plain).is_weighed


def test_what_an_item_comes_from(tmp_path: Path) -> None:
    files = {
        "sources.sql": SOURCES,
        "models/m.sql": "SELECT page, tag FROM clicks LATERAL VIEW explode(split(page, '/')) t"
        " AS part LATERAL VIEW explode(array(part, device.os)) u AS tag",
    }
    lineage = column_lineage(load(tmp_path, files))["m"]
    assert lineage["page"] == (InputColumn("clicks", "page"),)
    assert lineage["tag"] == (InputColumn("clicks", "device"), InputColumn("clicks", "page"))


def test_the_fingerprint_knows_what_is_exploded_and_how(tmp_path: Path) -> None:
    texts = [
        f"SELECT page, tag {EXPLODED}",
        f"select page,  tag {EXPLODED}  -- the same",
        f"SELECT page, tag {EXPLODED}".replace("VIEW", "VIEW OUTER"),
        f"SELECT page, tag {EXPLODED}".replace("(tags)", "(array(page))"),
        f"SELECT page, tag {EXPLODED}".replace("explode", "inline"),
    ]
    prints = [
        load(tmp_path / str(place), {"sources.sql": SOURCES, "models/m.sql": text}).fingerprint
        for place, text in enumerate(texts)
    ]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 4
