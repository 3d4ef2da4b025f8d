"""Rows that become several, or none, against DuckDB over everything; and how they are counted."""

from __future__ import annotations

import random

import pytest

from laminar_dagster.core.errors import InvalidConfig
from tests.integration.spark.conftest import Build
from tests.integration.spark.features import (
    FOREVER,
    PATIENT,
    SESSIONS,
    Feature,
    lay_out,
    tell,
    write_references,
)
from tests.integration.spark.project import Project, random_records, run_until_done

# Many views in every epoch.
pytestmark = pytest.mark.timeout(900)

# Of none to four letters, and of some clicks no list at all.
LETTERS = "IF(n = 3, NULL, slice(array('a', 'b', 'c', 'd'), 1, pmod(n, 5)))"
DUCK = "CASE WHEN n <> 3 THEN list_slice(['a', 'b', 'c', 'd'], 1, (n % 5 + 5) % 5) END"
FEATURES = {
    "exploded": Feature(
        "SELECT c.page, n, t.letter, unix_micros(at) AS us FROM clicks c"
        f" LATERAL VIEW explode({LETTERS}) t AS letter WHERE letter <> 'b' AND n < 9",
        f"SELECT page, n, letter, us FROM (SELECT *, unnest({DUCK}) AS letter FROM clicks)"
        " WHERE letter <> 'b' AND n < 9",
    ),
    # Every item of the one with every item of the other.
    "placed": Feature(
        "SELECT page, n, place, letter, k, v FROM clicks"
        f" LATERAL VIEW OUTER posexplode({LETTERS}) t AS place, letter"
        " LATERAL VIEW explode(map('x', n, 'y', place)) m AS k, v",
        f"SELECT page, n, place, letter, k, if(k = 'x', n, place) FROM clicks LEFT JOIN LATERAL"
        f" (SELECT unnest(range(len({DUCK}))) AS place, unnest({DUCK}) AS letter) ON true,"
        " (VALUES ('x'), ('y')) AS m (k)",
    ),
    "in_select": Feature(
        f"SELECT upper(page) AS page, explode_outer({LETTERS}) AS page_letter, n * 2 AS twice"
        " FROM clicks WHERE n <> 4 UNION ALL"
        " SELECT page, page, explode(array(n, n + 1)) FROM clicks WHERE n > 7",
        "SELECT upper(page), letter, n * 2 FROM clicks"
        f" LEFT JOIN LATERAL (SELECT unnest({DUCK}) AS letter) ON true WHERE n <> 4"
        " UNION ALL SELECT page, page, unnest([n, n + 1]) FROM clicks WHERE n > 7",
    ),
    # With late records, which become several rows as others do.
    "by_letter": Feature(
        "SELECT letter, unix_micros(window_end) AS until, COUNT(*) AS clicks, SUM(n) AS total"
        f" FROM clicks c CROSS JOIN UNNEST({LETTERS}) AS t (letter)"
        " GROUP BY TUMBLE(at, INTERVAL '5' SECOND), letter"
        f" EMIT ON WINDOW CLOSE {PATIENT}",
        "SELECT letter, (us // 5000000 + 1) * 5000000 AS until, count(*), sum(n) FROM"
        f" (SELECT *, unnest({DUCK}) AS letter FROM patient_clicks)"
        " WHERE until <= (SELECT w FROM mark) - 1500000 GROUP BY letter, until",
    ),
    # Over rows that are taken back: what came of them is taken back with them.
    "sizes": Feature(
        "SELECT letter, COUNT(*) AS pages, SUM(clicks) AS clicks, MAX(page) AS page FROM"
        " (SELECT page, COUNT(*) AS clicks FROM clicks GROUP BY page) LATERAL VIEW"
        " explode(slice(array('a', 'b', 'c', 'd'), 1, CAST(clicks % 5 AS INT))) t AS letter"
        f" GROUP BY letter {FOREVER}",
        "SELECT letter, count(*), sum(clicks), max(page) FROM (SELECT *,"
        " unnest(list_slice(['a', 'b', 'c', 'd'], 1, clicks % 5)) AS letter FROM"
        " (SELECT page, count(*) AS clicks FROM clicks GROUP BY page)) GROUP BY letter",
        "letter",
    ),
    "halves": Feature(
        "SELECT page, half, explode(array(clicks, clicks + 1)) AS n FROM"
        " (SELECT page, n % 2 AS half, COUNT(*) AS clicks FROM clicks GROUP BY page, n % 2)"
        f" {FOREVER}",
        "SELECT page, half, unnest([clicks, clicks + 1]) FROM"
        " (SELECT page, n % 2 AS half, count(*) AS clicks FROM clicks GROUP BY page, half)",
        "page, half, n",
    ),
    # Between a reference table and a join of streams, with structs taken apart.
    "titled": Feature(
        "SELECT title, a, b, unix_micros(at) AS us FROM clicks c JOIN titles p ON c.page = p.page"
        " LATERAL VIEW OUTER inline(filter(array(named_struct('a', n, 'b', upper(c.page)), NULL),"
        " x -> n > 4)) t AS a, b",
        "SELECT title, if(k = 0, n, NULL), if(k = 0, upper(c.page), NULL), us FROM clicks c"
        " JOIN titles p ON c.page = p.page AND c.gen = p.gen, (VALUES (0), (1)) AS each (k)"
        " WHERE n > 4 OR k = 1",
    ),
    "titled_in_select": Feature(
        f"SELECT title, c.n, explode({LETTERS}) AS letter FROM clicks c"
        " JOIN titles p ON (c.page = p.page) AND (n > 1)",
        f"SELECT title, n, unnest({DUCK}) FROM clicks c JOIN titles p"
        " ON c.page = p.page AND c.gen = p.gen WHERE n > 1",
    ),
    # By event time, which nobody selects.
    "recent": Feature(
        "SELECT page, letter, COUNT(*) AS clicks, LAST(n) AS last FROM clicks LATERAL VIEW"
        f" explode({LETTERS}) t AS letter GROUP BY page, letter"
        " EMIT CHANGES WITH (state.ttl = '15s')",
        SESSIONS.format(keys="page, letter", gap=15_000_000).replace(
            "FROM clicks", f"FROM (SELECT *, unnest({DUCK}) AS letter FROM clicks)"
        )
        + "SELECT page, letter, count(*), max_by(n, us) FROM numbered"
        " GROUP BY page, letter, session HAVING max(us) + 15000000 > (SELECT w FROM mark)"
        " QUALIFY row_number() OVER (PARTITION BY page, letter ORDER BY session DESC) = 1",
        "page, letter",
    ),
    "followed": Feature(
        "SELECT a.letter, a.n, b.n AS next, x FROM (SELECT page, n, explode("
        f"{LETTERS}) AS letter, at FROM clicks WHERE n > 5) a JOIN clicks b ON a.page = b.page"
        " AND b.n = 2 AND b.at BETWEEN a.at AND a.at + INTERVAL '3' SECOND"
        " LEFT JOIN UNNEST(array(struct(a.n AS m, letter AS l))) AS t (x, y) ON TRUE"
        " WHERE y <> 'c'",
        f"SELECT letter, a.n, b.n, a.n FROM (SELECT *, unnest({DUCK}) AS letter FROM clicks"
        " WHERE n > 5) a JOIN clicks b ON a.page = b.page AND b.n = 2"
        " AND b.us BETWEEN a.us AND a.us + 3000000 WHERE letter <> 'c'",
    ),
}


def test_rows_that_become_several_are_those_that_duckdb_gives(
    project: Project, build: Build
) -> None:
    tell(project, build, FEATURES)


def test_a_record_without_items_is_filtered_and_what_nobody_reads_counts_nothing(
    project: Project, build: Build
) -> None:
    features = {"exploded": FEATURES["exploded"]}
    lay_out(project, features, {}, buckets=2)
    models = project.root / "dbt_like_configs" / "clicks" / "models"
    (models / "unread.sql").write_text(f"SELECT explode({LETTERS}) AS letter FROM clicks")
    (models / "unread_too.sql").write_text("SELECT title FROM clicks JOIN titles USING (page)")
    write_references(project, 1)
    project.append("a.ndjson", random_records(random.Random(5), 80))
    first, *_ = run_until_done(build())
    known = [record for record in project.on_time() if record.n != 3 and record.n % 5]
    assert 0 < first.counts.filtered == len(project.on_time()) - len(known)
    assert first.counts.processed == len(known)


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT explode(page) AS x FROM clicks", "is string, and no list or map"),
        ("SELECT explode(array(n)) AS (x, y) FROM clicks", "gives 1 columns, and 2 are named"),
        (
            "SELECT x FROM clicks LATERAL VIEW explode(map(page, n)) t AS x",
            "explode of map<string,int> gives 2 columns, and 1 are named",
        ),
        (
            "SELECT x FROM clicks LATERAL VIEW inline(array(n)) t AS x",
            "inline takes a list of structs, and this is array<int>",
        ),
    ],
)
def test_what_is_no_list_is_told_where_it_stands(
    project: Project, build: Build, sql: str, problem: str
) -> None:
    lay_out(project, {"wrong": Feature(sql, "")}, {}, buckets=2)
    (mistake,) = build().engine.examine().mistakes
    assert isinstance(mistake, InvalidConfig)
    assert problem in str(mistake)
    assert "models/wrong.sql:1" in str(mistake)
