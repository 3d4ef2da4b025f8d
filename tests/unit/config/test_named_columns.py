"""Every relation of a query names only columns that the relation below it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from laminar_dagster.config.relations import KeyedAggregate, ReferenceJoin
from laminar_dagster.config.sql.support import SUPPORTED, TABLES
from laminar_dagster.config.sql.supported import Supported
from tests.unit.config.folders import load
from tests.unit.config.named_columns import lost_columns

TTL = "EMIT CHANGES WITH (state.ttl = '7d')"
FOREVER = "EMIT CHANGES WITH (state.ttl = 'unbounded')"
LATER = "c.user_id = d.user_id AND d.ts BETWEEN c.ts AND c.ts + INTERVAL '1' HOUR"
VIEWS = f"""
CREATE VIEW changing AS SELECT page, COUNT(*) AS user_id, MAX(amount) AS amount, MAX(tags) AS tags
FROM clicks GROUP BY page {FOREVER};
"""

# What a query reads, by the name `c`, and what its WHERE says. Event time passes through these.
TIMELY = {
    "table": "FROM clicks c",
    "query": "FROM (SELECT * FROM clicks UNION ALL SELECT * FROM clicks) c",
    "reference": "FROM clicks c JOIN pages p ON c.page = p.page",
    "outer_reference": "FROM clicks c LEFT JOIN pages p USING (page)",
    "references": "FROM clicks c JOIN pages p USING (page) ANTI JOIN pages q ON p.title = q.page",
    "member": "FROM clicks c WHERE c.page IN (SELECT page FROM pages)",
    "absent": "FROM clicks c WHERE NOT EXISTS (SELECT 1 FROM pages p WHERE p.page = c.page)",
    "value": "FROM clicks c JOIN pages p USING (page)"
    " WHERE amount > (SELECT MAX(weight) FROM pages)",
    "exploded": "FROM clicks c LATERAL VIEW explode(tags) t AS tag",
    "exploded_twice": "FROM clicks c LATERAL VIEW explode(tags) t AS tag"
    " LATERAL VIEW OUTER posexplode(array(tag)) u AS place, again WHERE place < 1",
    "exploded_join": "FROM clicks c JOIN pages p ON c.page = p.page"
    " CROSS JOIN UNNEST(array(p.title)) AS t (tag)",
    "exploded_below": "FROM (SELECT *, explode(tags) AS tag FROM clicks) c",
    "joined_items": "FROM clicks c CROSS JOIN UNNEST(c.tags) AS t (tag) JOIN pages p"
    " ON tag = p.page",
    "member_items": "FROM clicks c LATERAL VIEW explode(tags) t AS tag"
    " WHERE tag IN (SELECT page FROM pages)",
}
# In these it has waited for a partner.
WAITING = {
    "interval": f"FROM clicks c JOIN clicks d ON {LATER}",
    "intervals": f"FROM clicks c JOIN clicks d ON {LATER} LEFT JOIN clicks e"
    " ON e.user_id = d.user_id AND e.ts BETWEEN c.ts AND c.ts + INTERVAL '1' HOUR",
    "exists": f"FROM clicks c WHERE EXISTS (SELECT 1 FROM clicks d WHERE {LATER})",
    "then_reference": f"FROM clicks c JOIN clicks d ON {LATER} JOIN pages p ON p.page = d.page",
    "then_exploded": f"FROM clicks c JOIN clicks d ON {LATER} LATERAL VIEW explode(d.tags) t AS x",
    "after_reference": f"FROM clicks c JOIN pages p ON p.page = c.page JOIN clicks d ON {LATER}",
}
# These take rows back. A time to live is by the event time of both sides.
JOINED = {
    "pair": "FROM clicks c JOIN clicks d USING (user_id)",
    "chain": "FROM clicks c JOIN clicks d USING (user_id) JOIN clicks e USING (user_id)",
    "long_chain": "FROM clicks c JOIN clicks d USING (user_id) JOIN clicks e USING (user_id)"
    " SEMI JOIN clicks f ON f.page = e.page",
    "chain_of_tables": "FROM clicks c JOIN pages p USING (page) JOIN clicks d USING (user_id)",
    "chain_of_items": "FROM clicks c CROSS JOIN UNNEST(c.tags) AS t (tag)"
    " JOIN clicks d ON d.page = tag",
    "pair_of_query": "FROM clicks c JOIN (SELECT x.user_id, y.ts FROM clicks x JOIN pages p"
    " USING (page) JOIN clicks y USING (user_id)) d USING (user_id)",
    "pair_with_member": "FROM clicks c JOIN clicks d USING (user_id)"
    " WHERE c.page IN (SELECT page FROM clicks e)",
}
CHANGING = {
    "changes": "FROM changing c",
    "exploded_changes": "FROM changing c LATERAL VIEW explode(tags) t AS tag",
    "joined_changes": "FROM changing c JOIN plain d ON c.user_id = d.id",
}

ROWS = {
    "columns": "SELECT upper(c.page) AS page, c.amount {}",
    "star": "SELECT c.* {}",
    "items": "SELECT c.page, explode(c.tags) AS item {}",
    "star and items": "SELECT c.*, posexplode_outer(c.tags) AS (place_of, item) {}",
}
GROUPS = {
    "group": "SELECT c.page, COUNT(*) AS n {} GROUP BY c.page",
    "aggregates": "SELECT c.page, MAX_BY(c.amount, c.user_id) AS m, COUNT(DISTINCT c.user_id) AS d,"
    " STRING_AGG(c.page, ',') FILTER (WHERE c.amount > 1) AS s {} GROUP BY c.page",
    "one row": "SELECT COUNT(*) AS n {}",
    "distinct": "SELECT DISTINCT c.page {}",
    "qualify": "SELECT c.page {} QUALIFY ROW_NUMBER() OVER (PARTITION BY c.user_id"
    " ORDER BY c.amount) <= 3",
    "numbered": "SELECT page, rn FROM (SELECT c.page, ROW_NUMBER() OVER (PARTITION BY c.user_id"
    " ORDER BY c.amount) AS rn {}) WHERE rn <= 3",
}
FIRSTS = {
    "first": "SELECT c.user_id, FIRST(c.page) AS f, LAST(c.page) AS l {} GROUP BY c.user_id",
    "first of all": "SELECT FIRST(c.page) AS f {}",
}
WINDOWS = {
    "windows": "SELECT window_end, c.page, FIRST(c.amount) AS f {}"
    " GROUP BY TUMBLE(c.ts, INTERVAL '1' MINUTE), c.page",
    "sessions": "SELECT c.user_id, window_start, LAST(c.page) AS l {}"
    " GROUP BY SESSION(c.ts, INTERVAL '1' MINUTE), c.user_id",
}
FAMILIES: list[tuple[dict[str, str], dict[str, str], str]] = [
    (ROWS | WINDOWS, TIMELY, ""),
    (WINDOWS, TIMELY, "EMIT CHANGES"),
    (GROUPS | FIRSTS, TIMELY, TTL),
    (ROWS, WAITING, ""),
    (GROUPS | FIRSTS, WAITING, FOREVER),
    (ROWS, JOINED, TTL),
    (ROWS | GROUPS, JOINED, FOREVER),
    (GROUPS, CHANGING, FOREVER),
]


@pytest.mark.parametrize(
    ("query", "sources", "emit"),
    [
        pytest.param(query, sources, emit, id=f"{name} of {next(iter(sources))} {emit[-11:-2]}")
        for queries, sources, emit in FAMILIES
        for name, query in queries.items()
    ],
)
def test_whatever_a_query_reads_gives_what_it_names(
    tmp_path: Path, query: str, sources: Mapping[str, str], emit: str
) -> None:
    texts = {name: f"{query.format(source)} {emit}" for name, source in sources.items()}
    models = {f"models/{name}.sql": text for name, text in texts.items()}
    model = load(tmp_path, {"tables.sql": TABLES, "views.sql": VIEWS, **models})
    lost = {text: lost_columns(model, name) for name, text in texts.items()}
    assert not any(lost.values()), {text: found for text, found in lost.items() if found}


@pytest.mark.parametrize(
    "row", [each for rows in SUPPORTED.values() for each in rows], ids=lambda row: row.name
)
def test_an_example_of_what_is_supported_names_what_there_is(
    tmp_path: Path, row: Supported
) -> None:
    model = load(tmp_path, {"tables.sql": TABLES, "models/example.sql": row.example})
    assert lost_columns(model, "example") == []


def test_a_column_that_was_dropped_is_told(tmp_path: Path) -> None:
    """Else the tests above would pass whatever the loader does."""
    sql = (
        f"SELECT c.page, COUNT(*) AS n FROM clicks c JOIN pages USING (page) GROUP BY c.page {TTL}"
    )
    model = load(tmp_path, {"tables.sql": TABLES, "models/m.sql": sql})
    (view,) = model.views
    assert isinstance(view.query, KeyedAggregate)
    assert isinstance(view.query.source, ReferenceJoin)
    bare = replace(view.query, source=replace(view.query.source, columns=()))
    found = lost_columns(replace(model, views=(replace(view, query=bare),)), "m")
    assert [each.partition(":")[0] for each in found] == ["`left.page`", "`left.ts`"]
    assert all("what is below KeyedAggregate has no column" in each for each in found)
