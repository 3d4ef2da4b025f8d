"""Aggregating where records are read gives what Spark would have given, filter by filter."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from laminar_dagster.config.operators import stateful_operators
from laminar_dagster.config.relations import Stateful
from laminar_dagster.core.ports import Admission
from laminar_dagster.spark.arrow_predicates import predicate
from laminar_dagster.spark.early_operators import early_operator
from laminar_dagster.spark.engine import SparkEngine
from tests.integration.spark.conftest import Build
from tests.integration.spark.project import (
    LARGE,
    PER_MINUTE,
    Project,
    random_records,
    run_until_done,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = [0, 1, -1, 7, 2**31 - 1, -(2**31), None]
TEXTS = ["", "a", "b", "B", "é", "ab", "a ", None]
FLAGS = [True, False, None]
PREDICATES = [
    "n > 0",
    "0 > n",
    "n >= -1 AND n <= 7",
    "n = 1 OR t = 'a'",
    "NOT (n = 1 OR t = 'a')",
    "n != 7",
    "n <> 7 AND NOT f",
    "f",
    "NOT f",
    "f = true",
    "t < 'b'",
    "'a' <= t",
    "t = ''",
    "n IN (0, 1, -1)",
    "n NOT IN (0, 1)",
    "t IN ('a', 'é')",
    "n IS NULL",
    "n IS NOT NULL AND t IS NULL",
    "n > 9223372036854775807",
    "n < 3000000000",
    "(n = 1 AND t = 'a') OR (n = 7 AND f IS NULL)",
]
LEFT_TO_SPARK = [
    "n + 1 > 0",
    "t LIKE 'a%'",
    "d > 0",
    "n > 0.5",
    "t = 1",
    "n <=> 1",
    "n IN (1, NULL)",
]


@pytest.mark.parametrize("sql", PREDICATES)
def test_a_filter_keeps_what_spark_keeps(spark: SparkSession, sql: str) -> None:
    rows = [(n, t, f) for n in NUMBERS for t in TEXTS for f in FLAGS]
    table = pa.table(
        {
            "n": pa.array([n for n, _, _ in rows], pa.int32()),
            "t": pa.array([t for _, t, _ in rows], pa.string()),
            "f": pa.array([f for _, _, f in rows], pa.bool_()),
        }
    )
    keep = predicate(sql, table.schema)
    assert keep
    ours = keep(table).to_pylist()
    frame = spark.createDataFrame(table).selectExpr(f"({sql}) AS kept")
    assert ours == [row.kept for row in frame.collect()]


@pytest.mark.parametrize("sql", LEFT_TO_SPARK)
def test_a_filter_that_might_mean_something_else_is_left_to_spark(sql: str) -> None:
    schema = pa.schema(
        [("n", pa.int32()), ("t", pa.string()), ("d", pa.float64()), ("f", pa.bool_())]
    )
    assert predicate(sql, schema) is None


BY_SPARK = PER_MINUTE.replace("n >= 0", "n + 0 >= 0")


@pytest.mark.parametrize(
    "others", [LARGE, "SELECT page, minute AS at, mean AS twice FROM per_minute"]
)
def test_both_ways_give_the_same_state_and_output(
    project: Project, build: Build, others: str
) -> None:
    """With the records wanted by another view as well, and without."""
    found = []
    for model in (PER_MINUTE, BY_SPARK):
        project.write(per_minute=model, large=others)
        if not project.files:
            project.append("a.ndjson", random_records(random.Random(1), 300))
            project.append("b.ndjson", random_records(random.Random(2), 300))
        pipeline = build(limits=Admission(max_records=250))
        assert isinstance(pipeline.engine, SparkEngine)
        manifests = run_until_done(pipeline)
        found.append(
            [
                (
                    manifest.counts,
                    manifest.watermark,
                    [part.sha256 for entry in manifest.operators for part in entry.partitions],
                    [sink.output_sha256 for sink in manifest.sinks],
                )
                for manifest in manifests
            ]
        )
        for name in ("state", "lake", "out.db"):
            (project.root / name).rename(project.root / f"{name}.{len(found)}")
    assert found[0] == found[1]
    assert len(found[0]) > 2


FOREVER = "EMIT CHANGES WITH (state.ttl = 'unbounded')"
SOURCE_COLUMNS = pa.schema(
    [
        ("page", pa.string()),
        ("amount", pa.float64()),
        ("price", pa.decimal128(10, 2)),
        ("n", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
# State by key of each kind, with the key of its sink.
KEYED = {
    "totals": (
        "SELECT page, COUNT(*) AS clicks, SUM(amount) AS amount, AVG(price) AS price,"
        " MIN(amount) AS least, MAX_BY(n, at) AS newest, COUNT(DISTINCT n) AS numbers"
        f" FROM clicks WHERE n >= 0 GROUP BY page {FOREVER}",
        "page",
    ),
    "recent": (
        "SELECT page, n, COUNT(*) AS clicks, SUM(amount) AS amount FROM clicks WHERE n >= 0"
        " GROUP BY page, n EMIT CHANGES WITH (state.ttl = '15s')",
        "page, n",
    ),
    "overall": ("SELECT 1 AS one, COUNT(*) AS c FROM clicks WHERE n >= 0 EMIT CHANGES", "one"),
    "pairs": (f"SELECT DISTINCT page, price FROM clicks WHERE n >= 0 {FOREVER}", "page, price"),
    "open_minutes": (
        "SELECT page, window_end AS until, COUNT(*) AS clicks, SUM(amount) AS amount"
        " FROM clicks WHERE n >= 0"
        " GROUP BY HOP(at, INTERVAL '30' SECOND, INTERVAL '1' MINUTE), page"
        " EMIT CHANGES WITH (allowed.lateness = '1500ms')",
        "page, until",
    ),
    "visits": (
        "SELECT page, window_start AS since, SUM(amount) AS amount FROM clicks WHERE n >= 0"
        " GROUP BY SESSION(at, INTERVAL '4' SECOND), page",
        "",
    ),
    "firsts": (
        "SELECT page, n, amount FROM clicks WHERE n >= 0"
        f" QUALIFY ROW_NUMBER() OVER (PARTITION BY page, n ORDER BY at) = 1 {FOREVER}",
        "page, n",
    ),
    "best": (
        "SELECT page, place, amount, price FROM (SELECT *, ROW_NUMBER() OVER"
        " (PARTITION BY page ORDER BY n DESC, amount) AS place FROM clicks WHERE n >= 0)"
        " WHERE place <= 3 EMIT CHANGES WITH (state.ttl = '20s')",
        "page, place",
    ),
}


def lay_out(project: Project, views: Mapping[str, str]) -> None:
    """These views as the only ones, each with a sink."""
    folder = project.root / "dbt_like_configs" / "clicks"
    for each in (folder / "models").iterdir():
        each.unlink()
    sinks = []
    for name, sql in views.items():
        (folder / "models" / f"{name}.sql").write_text(sql)
        _, key = KEYED.get(name, ("", ""))
        mode = f", mode = 'upsert', key = '{key}'" if key else ""
        options = f"connector = 'sqlite', path = 'out.db', table = '{name}'{mode}"
        sinks.append(f"CREATE SINK to_{name} FROM {name} WITH ({options});")
    (folder / "sinks.sql").write_text("\n".join(sinks))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("large", [None, LARGE])
def test_both_ways_give_the_same_state_by_key(
    project: Project, build: Build, large: str | None
) -> None:
    """With the records wanted by another view as well, and without."""
    found = []
    project.append("a.ndjson", random_records(random.Random(1), 300))
    project.append("b.ndjson", random_records(random.Random(2), 260, begin=20))
    for is_early, condition in ((True, "n >= 0"), (False, "n + 0 >= 0")):
        views = {name: sql.replace("n >= 0", condition) for name, (sql, _) in KEYED.items()}
        lay_out(project, {**views, "large": large} if large else views)
        pipeline = build(limits=Admission(max_records=190))
        assert isinstance(pipeline.engine, SparkEngine)
        ways = {
            early_operator(operator, query, SOURCE_COLUMNS) is not None
            for view in pipeline.engine.model.views
            for operator, query in stateful_operators(view)
            if isinstance(query, Stateful)
        }
        assert ways == {is_early}
        found.append(
            [
                (
                    manifest.counts,
                    manifest.watermark,
                    {
                        entry.operator_id: [part.sha256 for part in entry.partitions]
                        for entry in manifest.operators
                    },
                    [(sink.sink_id, sink.output_sha256) for sink in manifest.sinks],
                )
                for manifest in run_until_done(pipeline)
            ]
        )
        for name in ("state", "out.db"):
            (project.root / name).rename(project.root / f"{name}.{len(found)}")
    assert found[0] == found[1]
    assert len(found[0]) > 2
    assert all(counts.late and counts.filtered for counts, *_ in found[0][:2])
