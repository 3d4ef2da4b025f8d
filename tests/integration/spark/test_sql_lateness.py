"""Windows that wait for late records beside such that do not; and views that are alike."""

from __future__ import annotations

import pytest

from tests.integration.spark.conftest import Build
from tests.integration.spark.features import PATIENT, SESSIONS, Feature, tell
from tests.integration.spark.project import Project
from tests.integration.spark.test_sql_groups import FEATURES as GROUPS

# Many views in every epoch.
pytestmark = pytest.mark.timeout(900)

PATIENCE = {
    "recent": GROUPS["recent"],
    "plain_clicks": Feature(
        "SELECT upper(page) AS page, n, at FROM clicks WHERE n > 1",
        "SELECT upper(page), n, strftime(make_timestamp(us), '%Y-%m-%d %H:%M:%S.%fZ')"
        " FROM clicks WHERE n > 1",
    ),
    "patient": Feature(
        "SELECT page, window_end AS until, COUNT(*) AS clicks, SUM(n) AS total FROM clicks"
        f" GROUP BY TUMBLE(at, INTERVAL '5' SECOND), page EMIT ON WINDOW CLOSE {PATIENT}",
        "SELECT page, strftime(make_timestamp((us // 5000000 + 1) * 5000000),"
        " '%Y-%m-%d %H:%M:%S.%fZ') AS until, count(*), sum(n) FROM patient_clicks"
        " WHERE (us // 5000000 + 1) * 5000000 <= (SELECT w FROM mark) - 1500000 GROUP BY ALL",
    ),
    "patient_again": Feature(
        "SELECT upper(page) AS page, COUNT(*) + 1 AS clicks, SUM(n) AS total, unix_micros("
        "window_end) AS until FROM clicks GROUP BY TUMBLE(at, INTERVAL '5' SECOND), page"
        f" HAVING COUNT(*) > 1 EMIT ON WINDOW CLOSE {PATIENT}",
        "SELECT upper(page), count(*) + 1, sum(n), (us // 5000000 + 1) * 5000000 AS until"
        " FROM patient_clicks WHERE until <= (SELECT w FROM mark) - 1500000"
        " GROUP BY page, until HAVING count(*) > 1",
    ),
    "recent_again": Feature(
        "SELECT n, page, IF(COUNT(*) > 1, 1, 0) AS often, SUM(n) AS total FROM clicks"
        " GROUP BY page, n HAVING page < 'p3' EMIT CHANGES WITH (state.ttl = '15s')",
        SESSIONS.format(keys="page, n", gap=15_000_000)
        + "SELECT n, page, if(count(*) > 1, 1, 0), sum(n) FROM numbered GROUP BY page, n, session"
        " HAVING max(us) + 15000000 > (SELECT w FROM mark) AND page < 'p3' QUALIFY"
        " row_number() OVER (PARTITION BY page, n ORDER BY session DESC) = 1",
        "page, n",
    ),
    "patient_above": Feature(
        "SELECT page, unix_micros(window_start) AS since, SUM(clicks) AS clicks FROM patient"
        f" GROUP BY TUMBLE(until, INTERVAL '20' SECOND), page EMIT ON WINDOW CLOSE {PATIENT}",
        "SELECT page, until // 20000000 * 20000000 AS since, count(*) FROM"
        " (SELECT page, (us // 5000000 + 1) * 5000000 AS until FROM patient_clicks)"
        " WHERE since + 20000000 <= (SELECT w FROM mark) - 1500000 GROUP BY ALL",
    ),
    "patient_visits": Feature(
        "SELECT page, unix_micros(window_start) AS since, SUM(n) AS total FROM plain_clicks"
        f" GROUP BY SESSION(at, INTERVAL '3' SECOND), page EMIT CHANGES {PATIENT}",
        SESSIONS.replace("FROM clicks", "FROM patient_clicks WHERE n > 1").format(
            keys="page", gap=3_000_001
        )
        + "SELECT upper(page), min(us), sum(n) FROM numbered GROUP BY page, session",
        "page, since",
    ),
}


def test_windows_that_wait_and_views_that_are_alike(project: Project, build: Build) -> None:
    tell(project, build, PATIENCE)
