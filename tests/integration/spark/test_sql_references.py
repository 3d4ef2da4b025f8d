"""Joins with reference tables that change between epochs, against DuckDB."""

from __future__ import annotations

import random

import pytest

from laminar_dagster.core.errors import ChecksumMismatch
from laminar_dagster.runtime.epoch import EpochRunner
from tests.integration.spark.conftest import Build
from tests.integration.spark.features import (
    FOREVER,
    SESSIONS,
    Feature,
    lay_out,
    tell,
    write_references,
)
from tests.integration.spark.project import Project, random_records

# Many views in every epoch.
pytestmark = pytest.mark.timeout(900)

FEATURES = {
    "titled": Feature(
        "SELECT c.page, n, title, p.weight * n AS weighed FROM clicks c"
        " LEFT JOIN titles p ON c.page = p.page AND n > 2",
        "SELECT c.page, n, title, weight * n FROM clicks c LEFT JOIN titles p"
        " ON c.page = p.page AND c.gen = p.gen AND n > 2",
    ),
    "tagged": Feature(
        "SELECT tag, unix_micros(window_end) AS until, COUNT(*) AS clicks, SUM(least) AS least,"
        " COUNT(DISTINCT title) AS titles FROM clicks c JOIN tags t ON t.of_page = c.page"
        " JOIN titles p ON p.page = t.of_page WHERE n <> 4"
        " GROUP BY TUMBLE(c.at, INTERVAL '20' SECOND), tag",
        "SELECT tag, (us // 20000000 + 1) * 20000000 AS until, count(*), sum(least),"
        " count(DISTINCT title) FROM clicks c JOIN tags t ON c.page = t.page AND c.gen = t.gen"
        " JOIN titles p ON p.page = t.page AND p.gen = c.gen"
        " WHERE n <> 4 GROUP BY tag, until HAVING until <= (SELECT w FROM mark)",
    ),
    "untagged": Feature(
        "SELECT page, n FROM clicks LEFT ANTI JOIN tags ON page = of_page AND n = least",
        "SELECT page, n FROM clicks c WHERE NOT EXISTS (SELECT 1 FROM tags t"
        " WHERE c.page = t.page AND c.gen = t.gen AND c.n = t.least)",
    ),
    # Values of whole tables.
    "heavy": Feature(
        "SELECT page, n, (SELECT max(weight) + 1 FROM titles) * n AS worth FROM clicks c"
        " WHERE n > (SELECT min(least) FROM tags WHERE tag <> 'z') + 3"
        " OR n = (SELECT count(*) FROM tags)"
        " OR n < (SELECT sum(weight) FROM titles WHERE page > 'q')",
        "SELECT page, n, (SELECT max(weight) + 1 FROM titles p WHERE p.gen = c.gen) * n"
        " FROM clicks c WHERE"
        " n > (SELECT min(least) FROM tags t WHERE tag <> 'z' AND t.gen = c.gen) + 3"
        " OR n = (SELECT count(*) FROM tags t WHERE t.gen = c.gen)",
    ),
    "above": Feature(
        "SELECT c.page, tag, unix_micros(window_end) AS until, COUNT(*) AS clicks FROM clicks c"
        " JOIN tags t ON c.page = t.of_page WHERE n >= (SELECT avg(weight) FROM titles)"
        " GROUP BY TUMBLE(at, INTERVAL '10' SECOND), c.page, tag",
        "SELECT c.page, tag, (us // 10000000 + 1) * 10000000 AS until, count(*) FROM clicks c"
        " JOIN tags t ON c.page = t.page AND c.gen = t.gen"
        " WHERE n >= (SELECT avg(weight) FROM titles p WHERE p.gen = c.gen)"
        " GROUP BY c.page, tag, until HAVING until <= (SELECT w FROM mark)",
    ),
    # By event time, which nobody selects. A title is one of a page, and of one state of the table.
    "recently_titled": Feature(
        "SELECT title, n % 3 AS third, COUNT(*) AS clicks, FIRST(amount) AS first FROM clicks"
        " JOIN titles USING (page) WHERE page IN (SELECT of_page FROM tags)"
        " GROUP BY title, n % 3 EMIT CHANGES WITH (state.ttl = '15s')",
        SESSIONS.format(keys="page, gen, n % 3", gap=15_000_000)
        + "SELECT title, n % 3 AS third, count(*), min_by(amount, us) FROM numbered c"
        " JOIN titles USING (page, gen)"
        " WHERE EXISTS (SELECT 1 FROM tags t WHERE t.page = c.page AND t.gen = c.gen)"
        " GROUP BY title, third, session HAVING max(us) + 15000000 > (SELECT w FROM mark)"
        " QUALIFY row_number() OVER (PARTITION BY title, third ORDER BY session DESC) = 1",
        "title, third",
    ),
    "any_tag": Feature(
        "SELECT page, COUNT(*) AS clicks FROM (SELECT page FROM clicks LEFT SEMI JOIN tags"
        f" ON page = of_page) GROUP BY page {FOREVER}",
        "SELECT page, count(*) FROM clicks c WHERE EXISTS (SELECT 1 FROM tags t"
        " WHERE c.page = t.page AND c.gen = t.gen) GROUP BY page",
        "page",
    ),
}


def test_every_join_with_a_table_gives_what_duckdb_gives(project: Project, build: Build) -> None:
    tell(project, build, FEATURES)


def test_a_damaged_copy_is_told_as_that_also_where_a_value_is_computed_of_it(
    project: Project, build: Build
) -> None:
    lay_out(project, {"heavy": FEATURES["heavy"]}, {}, buckets=2)
    write_references(project, 1)
    chance = random.Random(8)
    project.append("a.ndjson", random_records(chance, 40))
    pipeline = build()
    EpochRunner(pipeline).run()
    store = pipeline.checkpoints.objects
    copies = [info.key for info in store.list("references/") if info.key.endswith(".arrow")]
    assert copies
    for key in copies:
        data = store.read(key)
        store.put(key, data[:-1] + bytes([data[-1] ^ 1]))
    project.append("a.ndjson", random_records(chance, 40, begin=30))
    with pytest.raises(ChecksumMismatch):
        EpochRunner(pipeline).run()
