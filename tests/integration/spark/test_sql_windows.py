"""Windows, sessions and their aggregates against DuckDB over everything."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from tests.integration.spark.conftest import Build
from tests.integration.spark.features import (
    SESSIONS,
    Feature,
    lay_out,
    micros,
    published,
    tell,
    write_references,
)
from tests.integration.spark.project import START, Project, Record, run_until_done

# Many views in every epoch.
pytestmark = pytest.mark.timeout(900)

FEATURES = {
    "visits": Feature(
        "SELECT page, unix_micros(window_start) AS since, unix_micros(window_end) AS until,"
        " COUNT(*) AS clicks, FIRST(n) AS entry, LAST(amount) AS leaving FROM clicks WHERE n > 0"
        " GROUP BY SESSION(at, INTERVAL '4' SECOND), page",
        SESSIONS.replace("FROM clicks", "FROM clicks WHERE n > 0").format(
            keys="page", gap=4_000_001
        )
        + "SELECT page, min(us), max(us) + 4000000, count(*), arg_min(n, us), arg_max(amount, us)"
        " FROM numbered GROUP BY page, session"
        " HAVING max(us) + 4000000 < (SELECT w FROM mark)",
    ),
    "open_visits": Feature(
        "SELECT page, unix_micros(window_start) AS since, SUM(n) AS total FROM clicks"
        " GROUP BY SESSION(at, INTERVAL '2' SECOND), page HAVING COUNT(*) > 1 EMIT CHANGES",
        SESSIONS.format(keys="page", gap=2_000_001)
        + "SELECT page, min(us), sum(n) FROM numbered GROUP BY page, session HAVING count(*) > 1",
        "page, since",
    ),
    # As table functions: of each page, and of the whole table.
    "page_visits": Feature(
        "SELECT page, unix_micros(window_start) AS since, COUNT(*) AS clicks FROM TABLE(SESSION("
        "TABLE clicks PARTITION BY page, DESCRIPTOR(at), INTERVAL '3' SECOND))"
        " GROUP BY page, window_start, window_end",
        SESSIONS.format(keys="page", gap=3_000_001)
        + "SELECT page, min(us), count(*) FROM numbered GROUP BY page, session"
        " HAVING max(us) + 3000000 < (SELECT w FROM mark)",
    ),
    "site_visits": Feature(
        "SELECT unix_micros(window_start) AS since, unix_micros(window_end) AS until,"
        " COUNT(*) AS clicks FROM TABLE(SESSION(TABLE clicks, DESCRIPTOR(at),"
        " INTERVAL '900' MILLISECOND)) GROUP BY window_start, window_end",
        SESSIONS.format(keys="1", gap=900_001)
        + "SELECT min(us), max(us) + 900000, count(*) FROM numbered GROUP BY session"
        " HAVING max(us) + 900000 < (SELECT w FROM mark)",
    ),
    "open_minutes": Feature(
        "SELECT page, unix_micros(window_end) AS until, COUNT(*) AS clicks FROM clicks"
        " GROUP BY HOP(at, INTERVAL '30' SECOND, INTERVAL '1' MINUTE), page EMIT CHANGES",
        "SELECT page, (us // 30000000 + k) * 30000000 AS until, count(*)"
        " FROM clicks, (VALUES (1), (2)) AS each (k) GROUP BY ALL",
        "page, until",
    ),
    "gathered": Feature(
        "WITH known AS (SELECT page, n, amount, at FROM clicks WHERE n <> 3)"
        " SELECT unix_micros(window_end) AS until, COUNT(DISTINCT n) AS numbers,"
        " array_join(ARRAY_AGG(DISTINCT page), '+') AS pages,"
        " array_join(COLLECT_LIST(n) FILTER (WHERE n > 6), ',') AS large,"
        " MAX_BY(page, amount) AS best, COUNT_IF(n < 0) AS negative"
        " FROM known GROUP BY TUMBLE(at, INTERVAL '30' SECOND)",
        "SELECT (us // 30000000 + 1) * 30000000 AS until, count(DISTINCT n),"
        " array_to_string(list_sort(list(DISTINCT page)), '+'),"
        " coalesce(array_to_string(list_sort(list(n) FILTER (WHERE n > 6)), ','), ''),"
        " arg_max(page, amount), count(*) FILTER (WHERE n < 0) FROM clicks WHERE n <> 3"
        " GROUP BY until HAVING until <= (SELECT w FROM mark)",
    ),
    "growing": Feature(
        "SELECT unix_micros(window_start) AS since, unix_micros(window_end) AS until,"
        " COUNT(*) AS clicks, COUNT(DISTINCT page) AS pages, MIN_BY(n, amount) AS n"
        " FROM TABLE(CUMULATE(TABLE clicks, DESCRIPTOR(at),"
        " INTERVAL '20' SECOND, INTERVAL '1' MINUTE, INTERVAL '7' SECOND))"
        " GROUP BY window_start, window_end",
        "SELECT since, until, count(*), count(DISTINCT page), arg_min(n, amount)"
        " FROM (SELECT *, since + k * 20000000 AS until"
        " FROM (SELECT *, (us - 7000000) // 60000000 * 60000000 + 7000000 AS since FROM clicks),"
        " (VALUES (1), (2), (3)) AS each (k))"
        " WHERE us < until AND until <= (SELECT w FROM mark) GROUP BY since, until",
    ),
    # Plain columns alone: aggregated where they are read.
    "measured": Feature(
        "SELECT unix_micros(window_end) AS until, ROUND(STDDEV(amount), 9) AS spread,"
        " ROUND(SKEWNESS(amount), 6) AS tilt, ROUND(CORR(amount, n), 9) AS together,"
        " MEDIAN(n) AS middle, PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY amount) AS high,"
        " array_join(PERCENTILE(n, array(0, 1)), '-') AS ends,"
        " SUM(DISTINCT n) AS numbers, COUNT(DISTINCT page, n) AS pairs, BIT_XOR(n) AS bits,"
        " STRING_AGG(DISTINCT page, '+') AS pages,"
        " LISTAGG(page, '>') WITHIN GROUP (ORDER BY n DESC) AS ordered"
        " FROM clicks GROUP BY TUMBLE(at, INTERVAL '20' SECOND)",
        "SELECT (us // 20000000 + 1) * 20000000 AS until, round(stddev(amount), 9),"
        " round(skew, 6), round(corr(amount, n), 9), median(n), quantile_disc(amount, 0.9),"
        " min(n)::DOUBLE || '-' || max(n)::DOUBLE, sum(DISTINCT n), count(DISTINCT (page, n)),"
        " bit_xor(n), string_agg(DISTINCT page, '+' ORDER BY page),"
        " string_agg(page, '>' ORDER BY n DESC, page)"
        " FROM clicks, LATERAL (SELECT sqrt(count(*)) * sum((o.amount - m) ** 3)"
        " / sum((o.amount - m) ** 2) ** 1.5 AS skew FROM clicks o, (SELECT avg(i.amount) AS m"
        " FROM clicks i WHERE i.us // 20000000 = clicks.us // 20000000)"
        " WHERE o.us // 20000000 = clicks.us // 20000000)"
        " GROUP BY until, skew HAVING until <= (SELECT w FROM mark)",
    ),
    "sketched": Feature(
        "SELECT unix_micros(window_end) AS until, page, APPROX_COUNT_DISTINCT(n, 0.01) AS numbers,"
        " ABS(APPROX_PERCENTILE(amount, 0.5) / PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY amount)"
        " - 1) <= 0.0079 AS close, EVERY(n > -2) AS high, SOME(n > 8) AS top FROM clicks"
        " GROUP BY TUMBLE(at, INTERVAL '1' MINUTE), page",
        "SELECT (us // 60000000 + 1) * 60000000 AS until, page, count(DISTINCT n), 1,"
        " bool_and(n > -2)::INT, bool_or(n > 8)::INT FROM clicks GROUP BY until, page"
        " HAVING until <= (SELECT w FROM mark)",
    ),
}


def test_every_window_gives_what_duckdb_gives(project: Project, build: Build) -> None:
    tell(project, build, FEATURES)


def test_an_event_exactly_a_gap_later_belongs_to_the_session_as_it_does_in_spark(
    project: Project, build: Build, spark: SparkSession
) -> None:
    """Within an epoch, and when the watermark stands exactly at the end between two."""
    visits = Feature(
        "SELECT page, unix_micros(window_start) AS since, unix_micros(window_end) AS until,"
        " COUNT(*) AS clicks FROM clicks GROUP BY SESSION(at, INTERVAL '4' SECOND), page",
        "",
    )
    lay_out(project, {"visits": visits}, {}, buckets=2)
    write_references(project, 1)

    def click(page: str, seconds: float) -> Record:
        return Record(page, 0.5, 1, 1, START + timedelta(seconds=seconds))

    # The last one takes the watermark to the end of the session that "a" has begun.
    first = [click("b", 0), click("b", 4), click("b", 8.000001), click("a", 6), click("c", 15)]
    then = [click("a", 10), click("a", 14), click("c", 60)]
    project.append("one.ndjson", list(first))
    run_until_done(build())
    project.append("one.ndjson", list(then))
    run_until_done(build())

    events = [(each.page, micros(each)) for each in (*first, *then[:-1])]
    batch = spark.createDataFrame(events, "page STRING, us BIGINT")
    batch.createOrReplaceTempView("events_a_gap_apart")
    answer = spark.sql(
        "SELECT page, unix_micros(w.start), unix_micros(w.end), clicks FROM"
        " (SELECT page, session_window(timestamp_micros(us), '4 seconds') AS w,"
        " count(*) AS clicks FROM events_a_gap_apart GROUP BY 1, 2)"
    ).collect()
    assert published(project, ["visits"])["visits"] == sorted(map(tuple, answer), key=repr)
    assert sorted(row["clicks"] for row in answer) == [1, 1, 2, 3]
