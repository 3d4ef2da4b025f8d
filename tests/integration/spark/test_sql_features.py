"""Every family of SQL on a real Spark: random data in random epochs against DuckDB over it all."""

from __future__ import annotations

import dataclasses
import random
import sqlite3
from contextlib import closing
from dataclasses import dataclass

import duckdb
import pytest

from laminar_dagster.core.ids import CheckpointId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.ports import Admission, Engine, EpochOutput, Examination
from laminar_dagster.core.upkeep import Rescale
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.rerun import rerun
from laminar_dagster.runtime.state_reader import compare_states, read_state
from laminar_dagster.runtime.upkeep import plan_upkeep
from laminar_dagster.testing.crash import Crash
from tests.integration.spark.conftest import Build
from tests.integration.spark.project import Project, Record, random_records, run_until_done


@dataclass(frozen=True)
class Feature:
    """A view, the key of its sink if its rows change, and DuckDB's query for the same rows.

    DuckDB has the clicks that are on time, their ``us`` in microseconds, and the watermark ``w``.
    """

    sql: str
    answer: str
    key: str = ""


FOREVER = "EMIT CHANGES WITH (state.ttl = 'unbounded')"
# Each click with the number of its session, of which a new one begins after {gap} microseconds.
SESSIONS = """
    WITH before AS (
      SELECT *, lag(us) OVER (PARTITION BY {keys} ORDER BY us) AS previous FROM clicks
    ), numbered AS (
      SELECT *, count(*) FILTER (WHERE previous IS NULL OR us >= previous + {gap})
        OVER (PARTITION BY {keys} ORDER BY us RANGE UNBOUNDED PRECEDING) AS session FROM before
    )"""
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
    "visits": Feature(
        "SELECT page, unix_micros(window_start) AS since, unix_micros(window_end) AS until,"
        " COUNT(*) AS clicks, FIRST(n) AS entry, LAST(amount) AS leaving FROM clicks WHERE n > 0"
        " GROUP BY SESSION(at, INTERVAL '4' SECOND), page",
        SESSIONS.replace("FROM clicks", "FROM clicks WHERE n > 0").format(
            keys="page", gap=4_000_000
        )
        + "SELECT page, min(us), max(us) + 4000000, count(*), arg_min(n, us), arg_max(amount, us)"
        " FROM numbered GROUP BY page, session"
        " HAVING max(us) + 4000000 <= (SELECT w FROM mark)",
    ),
    "open_visits": Feature(
        "SELECT page, unix_micros(window_start) AS since, SUM(n) AS total FROM clicks"
        " GROUP BY SESSION(at, INTERVAL '2' SECOND), page HAVING COUNT(*) > 1 EMIT CHANGES",
        SESSIONS.format(keys="page", gap=2_000_000)
        + "SELECT page, min(us), sum(n) FROM numbered GROUP BY page, session HAVING count(*) > 1",
        "page, since",
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
}


def lay_out(project: Project, buckets: int) -> None:
    """The features as the only views of the project, each with a sink."""
    folder = project.root / "dbt_like_configs" / "clicks"
    (folder / "pipeline.yml").write_text(f"name: clicks\nstore: state\nbuckets: {buckets}\n")
    for each in (folder / "models").iterdir():
        each.unlink()
    sinks = []
    for name, feature in FEATURES.items():
        (folder / "models" / f"{name}.sql").write_text(feature.sql)
        mode = f", mode = 'upsert', key = '{feature.key}'" if feature.key else ""
        options = f"connector = 'sqlite', path = 'out.db', table = '{name}'{mode}"
        sinks.append(f"CREATE SINK to_{name} FROM {name} WITH ({options});")
    (folder / "sinks.sql").write_text("\n".join(sinks))


def answers(project: Project) -> dict[str, list[tuple[object, ...]]]:
    """What DuckDB makes of all clicks that are on time."""
    with closing(duckdb.connect()) as database:
        database.execute(
            "CREATE TABLE clicks (page TEXT, amount DOUBLE, cents INT, n INT, us BIGINT)"
        )
        rows = [(r.page, r.amount, r.price, r.n, micros(r)) for r in project.on_time()]
        database.executemany("INSERT INTO clicks VALUES (?, ?, ?, ?, ?)", rows)
        mark = round(project.watermark().timestamp() * 1e6)
        database.execute("CREATE TABLE mark AS SELECT ?::BIGINT AS w", [mark])
        return {
            name: sorted(database.execute(feature.answer).fetchall(), key=repr)
            for name, feature in FEATURES.items()
        }


def micros(record: Record) -> int:
    return round(record.at.timestamp() * 1e6)


def published(project: Project) -> dict[str, list[tuple[object, ...]]]:
    with closing(sqlite3.connect(project.root / "out.db")) as database:
        return {
            name: sorted(database.execute(f"SELECT * FROM {name}").fetchall(), key=repr)
            for name in FEATURES
        }


@dataclass
class DyingEngine:
    """Computes an epoch, and dies before anybody hears of it."""

    engine: Engine
    deaths: int = 1

    def compute(
        self, plan: EpochPlan, parent: CheckpointManifest | None, attempt: CheckpointId
    ) -> EpochOutput:
        output = self.engine.compute(plan, parent, attempt)
        if parent is not None and self.deaths:
            self.deaths -= 1
            raise Crash("after computing")
        return output

    def examine(self) -> Examination:
        return self.engine.examine()


def test_every_feature_gives_what_duckdb_gives(project: Project, build: Build) -> None:
    """Cut into epochs, with a death in one of them, and with state that is spread anew between."""
    lay_out(project, buckets=2)
    chance = random.Random(1)
    first, second = random_records(chance, 300), random_records(chance, 260, begin=20)
    project.append("a.ndjson", first[:150])
    project.append("b.ndjson", second[:110])
    pipeline = build(limits=Admission(max_records=190))
    EpochRunner(pipeline).run()
    with pytest.raises(Crash):
        EpochRunner(dataclasses.replace(pipeline, engine=DyingEngine(pipeline.engine))).run()
    EpochRunner(pipeline).run()
    lay_out(project, buckets=3)
    pipeline = build()
    upkeep = Rescale(buckets_before=2, buckets_after=3)
    EpochRunner(pipeline).run(plan_upkeep(pipeline, upkeep))
    project.append("a.ndjson", first[150:])
    project.append("b.ndjson", second[110:])
    manifests = run_until_done(pipeline)
    found, expected = published(project), answers(project)
    for name in FEATURES:
        assert found[name] == expected[name], name
        assert len(expected[name]) > (0 if name == "overall" else 2), name
    verdict = rerun(pipeline, manifests[-2].epoch)
    assert verdict.is_identical, verdict
    for name, keys in (("totals", ("page",)), ("best", ("page", "place")), ("overall", ())):
        state = read_state(pipeline.checkpoints, manifests[-1], name)
        assert (state.keys, state.rows.num_rows) == (keys, len(expected[name]))
        assert compare_states(state, state).num_rows == 0
