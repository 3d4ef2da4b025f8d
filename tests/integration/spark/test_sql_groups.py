"""Groups without a window, and the first rows of each key, against DuckDB over everything."""

from __future__ import annotations

import pytest

from laminar_dagster.runtime.state_reader import compare_states, read_state
from tests.integration.spark.conftest import Build
from tests.integration.spark.features import FOREVER, SESSIONS, Feature, tell
from tests.integration.spark.project import Project

# Many views in every epoch.
pytestmark = pytest.mark.timeout(900)

FEATURES = {
    "totals": Feature(
        "SELECT page, COUNT(*) AS clicks, SUM(n) AS total,"
        " CAST(SUM(price) * 100 AS BIGINT) AS cents, MIN(amount) AS least,"
        " unix_micros(MAX(at)) AS newest, ROUND(AVG(n), 6) AS mean,"
        f" COUNT(*) FILTER (WHERE n > 5) AS large FROM clicks GROUP BY page {FOREVER}",
        "SELECT page, count(*), sum(n), sum(cents), min(amount), max(us), round(avg(n), 6),"
        " count(*) FILTER (WHERE n > 5) FROM clicks GROUP BY page",
        "page",
    ),
    "by_size": Feature(
        "SELECT large % 3 AS part, COUNT(*) AS pages, SUM(total) AS total, AVG(clicks) AS mean"
        f" FROM totals GROUP BY large % 3 {FOREVER}",
        "SELECT large % 3, count(*), sum(total), avg(clicks) FROM (SELECT page, count(*) AS clicks,"
        " sum(n) AS total, count(*) FILTER (WHERE n > 5) AS large FROM clicks GROUP BY page)"
        " GROUP BY 1",
        "part",
    ),
    "recent": Feature(
        "SELECT page, n, COUNT(*) AS clicks, SUM(n) AS total FROM clicks GROUP BY page, n"
        " EMIT CHANGES WITH (state.ttl = '15s')",
        SESSIONS.format(keys="page, n", gap=15_000_000)
        + "SELECT page, n, count(*), sum(n) FROM numbered GROUP BY page, n, session"
        " HAVING max(us) + 15000000 > (SELECT w FROM mark) QUALIFY"
        " row_number() OVER (PARTITION BY page, n ORDER BY session DESC) = 1",
        "page, n",
    ),
    "overall": Feature(
        "SELECT 1 AS one, COUNT(*) AS clicks, COUNT(n) AS known FROM clicks EMIT CHANGES",
        "SELECT 1, count(*), count(n) FROM clicks",
        "one",
    ),
    "pairs": Feature(
        f"SELECT DISTINCT upper(page) AS page, n % 3 AS part FROM clicks {FOREVER}",
        "SELECT DISTINCT upper(page), n % 3 FROM clicks",
        "page, part",
    ),
    "best": Feature(
        "SELECT page, place, n, round(amount, 6) AS amount FROM (SELECT *, ROW_NUMBER() OVER"
        " (PARTITION BY page ORDER BY n DESC, amount) AS place FROM clicks) WHERE place <= 3"
        f" {FOREVER}",
        "SELECT page, row_number() OVER (PARTITION BY page ORDER BY n DESC, amount) AS place, n,"
        " round(amount, 6) FROM clicks QUALIFY place <= 3",
        "page, place",
    ),
    "newest": Feature(
        "SELECT page, n, unix_micros(at) AS us FROM clicks QUALIFY ROW_NUMBER() OVER"
        " (PARTITION BY page, n ORDER BY at DESC) = 1 EMIT CHANGES WITH (state.ttl = '40s')",
        SESSIONS.format(keys="page, n", gap=40_000_000)
        + "SELECT page, n, max(us) FROM numbered GROUP BY page, n"
        " HAVING max(us) + 40000000 > (SELECT w FROM mark)",
        "page, n",
    ),
    "twice": Feature(
        "WITH pages AS (SELECT page, COUNT(*) AS clicks FROM clicks WHERE n > 2 GROUP BY page)"
        " SELECT 'all' AS side, page, clicks FROM pages"
        f" UNION ALL SELECT 'some', page, clicks FROM pages WHERE page > 'p1' {FOREVER}",
        "WITH pages AS (SELECT page, count(*) AS clicks FROM clicks WHERE n > 2 GROUP BY page)"
        " SELECT 'all', * FROM pages UNION ALL SELECT 'some', * FROM pages WHERE page > 'p1'",
        "side, page",
    ),
    "pieces": Feature(
        "SELECT window_start, page, SUM(n) AS total FROM clicks"
        " GROUP BY TUMBLE(at, INTERVAL '20' SECOND), page",
        "SELECT strftime(make_timestamp(since), '%Y-%m-%d %H:%M:%S.%fZ'), page, sum(n)"
        " FROM (SELECT *, us // 20000000 * 20000000 AS since FROM clicks)"
        " GROUP BY since, page HAVING since + 20000000 <= (SELECT w FROM mark)",
    ),
    # By an edge of the windows below, without a window of its own.
    "by_start": Feature(
        "SELECT unix_micros(window_start) AS since, COUNT(*) AS pages, SUM(total) AS total"
        f" FROM pieces GROUP BY window_start {FOREVER}",
        "SELECT us // 20000000 * 20000000 AS since, count(DISTINCT page), sum(n) FROM clicks"
        " GROUP BY since HAVING since + 20000000 <= (SELECT w FROM mark)",
        "since",
    ),
    # Over rows that are taken back.
    "by_part": Feature(
        "SELECT clicks % 3 AS part, MIN(total) AS least, MAX(total) AS most,"
        " MAX_BY(page, total) AS best, COUNT(DISTINCT large) AS sizes,"
        " array_join(COLLECT_SET(page), '+') AS pages, MEDIAN(total) AS middle,"
        " ROUND(VAR_POP(total), 6) AS spread, APPROX_PERCENTILE(clicks, 1, 10000) AS high"
        f" FROM totals GROUP BY clicks % 3 {FOREVER}",
        "SELECT clicks % 3, min(total), max(total),"
        " arg_max(page, total * 10 + page[2:2]::INT), count(DISTINCT large),"
        " string_agg(page, '+' ORDER BY page), median(total), round(var_pop(total), 6), max(clicks)"
        " FROM (SELECT page, count(*) AS clicks, sum(n) AS total,"
        " count(*) FILTER (WHERE n > 5) AS large FROM clicks GROUP BY page) GROUP BY 1",
        "part",
    ),
    "leaders": Feature(
        "SELECT place, page, clicks FROM (SELECT page, clicks, ROW_NUMBER() OVER"
        f" (ORDER BY clicks DESC, page) AS place FROM totals) WHERE place <= 3 {FOREVER}",
        "SELECT row_number() OVER (ORDER BY clicks DESC, page) AS place, page, clicks FROM"
        " (SELECT page, count(*) AS clicks FROM clicks GROUP BY page) QUALIFY place <= 3",
        "place",
    ),
}


def test_every_group_gives_what_duckdb_gives(project: Project, build: Build) -> None:
    pipeline, manifest, found = tell(project, build, FEATURES)
    for name, keys in (("totals", ("page",)), ("best", ("page", "place")), ("overall", ())):
        state = read_state(pipeline.checkpoints, manifest, name)
        assert (state.keys, state.rows.num_rows) == (keys, len(found[name]))
        assert compare_states(state, state).num_rows == 0
