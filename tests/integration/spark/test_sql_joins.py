"""Joins of streams against DuckDB over everything."""

from __future__ import annotations

import pytest

from laminar_dagster.runtime.state_reader import compare_states, read_state
from tests.integration.spark.conftest import Build
from tests.integration.spark.features import FOREVER, Feature, tell
from tests.integration.spark.project import Project
from tests.integration.spark.test_sql_groups import FEATURES as GROUPS

# Many views in every epoch.
pytestmark = pytest.mark.timeout(900)

# How long a row waits for others is in the answer: so long it is not told that it has none.
JOINS = {
    "followed": Feature(
        "SELECT a.page, a.n, b.n AS next, c.n AS last, unix_micros(a.at) AS us FROM clicks a"
        " JOIN clicks b ON a.page = b.page AND a.n < b.n"
        " AND b.at BETWEEN a.at + INTERVAL '1' SECOND AND a.at + INTERVAL '3' SECOND"
        " JOIN clicks c ON c.page = a.page AND c.n = b.n"
        " AND c.at > b.at AND c.at <= b.at + INTERVAL '5' SECOND WHERE a.n + c.n > 2",
        "SELECT a.page, a.n, b.n, c.n, a.us FROM clicks a JOIN clicks b ON a.page = b.page"
        " AND a.n < b.n AND b.us BETWEEN a.us + 1000000 AND a.us + 3000000"
        " JOIN clicks c ON c.page = a.page AND c.n = b.n"
        " AND c.us > b.us AND c.us <= b.us + 5000000 WHERE a.n + c.n > 2",
    ),
    "answered": Feature(
        "SELECT a.page, unix_micros(a.at) AS us, a.n, unix_micros(b.at) AS answered FROM clicks a"
        " LEFT JOIN clicks b ON lower(a.page) = b.page AND b.n = 3 AND a.n <> 3"
        " AND b.at > a.at AND b.at < a.at + INTERVAL '2' SECOND",
        "SELECT a.page, a.us, a.n, b.us FROM clicks a LEFT JOIN clicks b ON lower(a.page) = b.page"
        " AND b.n = 3 AND a.n <> 3 AND b.us > a.us AND b.us < a.us + 2000000"
        " WHERE b.us IS NOT NULL OR a.n = 3 OR a.us + 2000000 <= (SELECT w FROM mark)",
    ),
    "by_window": Feature(
        "SELECT coalesce(a.page, b.page) AS page, unix_micros(a.window_end) AS until, a.n,"
        " unix_micros(b.window_start) AS since, b.n AS other"
        " FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(at), INTERVAL '5' SECOND)) a"
        " FULL JOIN TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(at), INTERVAL '5' SECOND)) b"
        " ON a.page = b.page AND a.n = b.n + 1 AND a.window_start = b.window_start"
        " AND a.window_end = b.window_end",
        "WITH each AS (SELECT *, us // 5000000 * 5000000 AS s FROM clicks"
        " WHERE s + 5000000 <= (SELECT w FROM mark)) SELECT coalesce(a.page, b.page),"
        " a.s + 5000000, a.n, b.s, b.n FROM each a FULL JOIN each b"
        " ON a.page = b.page AND a.n = b.n + 1 AND a.s = b.s",
    ),
    "with_totals": Feature(
        "SELECT b.page, b.place, b.n, t.clicks FROM best b LEFT JOIN totals t"
        f" ON b.page = t.page AND t.clicks > 40 AND b.n <= t.total {FOREVER}",
        "WITH best AS (SELECT page, n,"
        " row_number() OVER (PARTITION BY page ORDER BY n DESC, amount) AS place FROM clicks"
        " QUALIFY place <= 3), totals AS (SELECT page, count(*) AS clicks, sum(n) AS total"
        " FROM clicks GROUP BY page) SELECT b.page, b.place, b.n, t.clicks FROM best b LEFT JOIN"
        " totals t ON b.page = t.page AND t.clicks > 40 AND b.n <= t.total",
        "page, place",
    ),
    "unlike": Feature(
        "SELECT a.page, unix_micros(a.at) AS us, CAST(a.price * 100 AS BIGINT) AS cents"
        " FROM clicks a ANTI JOIN clicks b ON a.page = b.page AND a.n > b.n EMIT CHANGES"
        " WITH (state.ttl = '4s')",
        "SELECT a.page, a.us, a.cents FROM clicks a WHERE NOT EXISTS (SELECT 1 FROM"
        " clicks b WHERE a.page = b.page AND a.n > b.n AND abs(a.us - b.us) < 4000000)",
        "page, us, cents",
    ),
    # By the event time of the first, which nobody selects.
    "chained": Feature(
        "SELECT page, n, CAST(a.price * 100 AS BIGINT) AS cents, unix_micros(b.at) AS second,"
        " unix_micros(c.at) AS third FROM clicks a JOIN clicks b USING (page, n)"
        " JOIN clicks c USING (page, n) EMIT CHANGES WITH (state.ttl = '4s')",
        "SELECT page, n, a.cents, b.us, c.us FROM clicks a JOIN clicks b USING (page, n)"
        " JOIN clicks c USING (page, n)"
        " WHERE abs(a.us - b.us) < 4000000 AND abs(a.us - c.us) < 4000000",
        "page, n, cents, second, third",
    ),
    "noticed": Feature(
        "SELECT page, unix_micros(window_end) AS until, COUNT(*) AS clicks, SUM(n) AS total"
        " FROM clicks a WHERE n <> 4 AND page IN (SELECT of_page FROM tags)"
        " AND EXISTS (SELECT 1 FROM clicks b WHERE b.page = a.page AND n > a.n"
        " AND at BETWEEN a.at AND a.at + INTERVAL '1' SECOND)"
        " AND NOT EXISTS (SELECT * FROM clicks b WHERE page = lower(a.page) AND n = 3"
        " AND at > a.at AND at <= a.at + INTERVAL '3' SECOND)"
        " GROUP BY TUMBLE(at, INTERVAL '5' SECOND), page"
        " EMIT ON WINDOW CLOSE WITH (allowed.lateness = '3s')",
        "SELECT page, (us // 5000000 + 1) * 5000000 AS until, count(*), sum(n)"
        " FROM clicks a WHERE n <> 4 AND page IN (SELECT t.page FROM tags t WHERE t.gen = a.gen)"
        " AND EXISTS (SELECT 1 FROM clicks b WHERE b.page = a.page AND n > a.n"
        " AND us BETWEEN a.us AND a.us + 1000000)"
        " AND NOT EXISTS (SELECT * FROM clicks b WHERE page = lower(a.page) AND n = 3"
        " AND us > a.us AND us <= a.us + 3000000) GROUP BY page, until"
        " HAVING until + 3000000 <= (SELECT w FROM mark)",
    ),
}


def test_every_join_gives_what_duckdb_gives(project: Project, build: Build) -> None:
    below = {name: GROUPS[name] for name in ("totals", "best")}
    pipeline, manifest, _ = tell(project, build, {**below, **JOINS})
    state = read_state(pipeline.checkpoints, manifest, "with_totals")
    assert state.keys[:2] == ("side", "page = page")
    assert compare_states(state, state).num_rows == 0
