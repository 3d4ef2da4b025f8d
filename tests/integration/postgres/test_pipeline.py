"""A pipeline from a table to a table, in Spark: it equals the live query, and runs again alike."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from laminar_dagster.config.project import load_project
from laminar_dagster.core import layout
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.runtime.assembly import assemble, known_connectors
from laminar_dagster.runtime.collector import Retention, collect
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.rerun import rerun
from laminar_dagster.runtime.verification import verify_checkpoint
from tests.integration.postgres.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.service("postgres")

_SOURCE = """
CREATE SOURCE TABLE sales (
  id BIGINT NOT NULL, product STRING, amount DECIMAL(10, 2), at TIMESTAMP,
  WATERMARK FOR at AS at - INTERVAL '1' MINUTE
) WITH (
  connector = 'postgres-cdc', host = '{host}', port = '{port}', database = '{database}',
  user = '{user}', password = '${{DB_PASSWORD}}', tables = 'sales', slot = '{slot}',
  publication = 'all', before = 'required', 'snapshot.file.bytes' = '8KiB'
);
"""
_NOW = "SELECT id, product, amount, _weight FROM sales WHERE amount > 10"
_MINUTES = """
SELECT product, window_start AS minute, SUM(amount * _weight) AS revenue, SUM(_weight) AS sales
FROM sales GROUP BY TUMBLE(at, INTERVAL '1' MINUTE), product HAVING SUM(_weight) > 0
"""
_SINKS = """
CREATE SINK now FROM sales_now
WITH (connector = 'sqlite', path = 'out.db', table = 'now', mode = 'upsert', key = 'id');
CREATE SINK minutes FROM minutes
WITH (connector = 'sqlite', path = 'out.db', table = 'minutes', mode = 'append');
"""
_LIVE = """
SELECT product, floor(extract(epoch FROM at) / 60)::int, sum(amount)::float8, count(*)
FROM sales WHERE at < '2026-01-01 00:10' GROUP BY 1, 2
"""


def test_views_equal_the_live_queries(tables: Tables, tmp_path: Path, spark: SparkSession) -> None:
    tables.run(
        "CREATE TABLE sales (id bigint PRIMARY KEY, product text, amount numeric, at timestamptz)",
        "ALTER TABLE sales REPLICA IDENTITY FULL",
        """
        INSERT INTO sales
        SELECT n, 'p' || n % 3, round(n / 7.0, 2), '2026-01-01'::timestamptz + n * interval '1 s'
        FROM generate_series(0, 299) AS n
        """,
    )
    folder = tmp_path / "dbt_like_configs" / "sales"
    (folder / "models").mkdir(parents=True)
    (folder / "pipeline.yml").write_text(
        "name: sales\nstore: state\nbuckets: 2\nepoch:\n  max_records: 200\n"
    )
    endpoint = tables.endpoint
    source = _SOURCE.format(
        host=endpoint.host, port=endpoint.port, user=endpoint.user, database=tables.database,
        slot=tables.slot,
    )  # fmt: skip
    (folder / "sources.sql").write_text(source)
    (folder / "sinks.sql").write_text(_SINKS)
    (folder / "models" / "sales_now.sql").write_text(_NOW)
    (folder / "models" / "minutes.sql").write_text(_MINUTES)
    secret = {"DB_PASSWORD": endpoint.password}
    (model,) = load_project(tmp_path, secret, known_connectors())
    pipeline = assemble(model, tmp_path, lambda: spark)
    runner = EpochRunner(pipeline)
    for _ in range(2):
        runner.run()
    tables.run(
        "UPDATE sales SET amount = amount + 1 WHERE id % 5 = 0 AND id > 240",
        "DELETE FROM sales WHERE id BETWEEN 250 AND 260",
        # Closes every window before it.
        "INSERT INTO sales VALUES (1000, 'p0', 11, '2026-01-01 00:11:01')",
    )
    runner.run()
    live = tables.fetch("SELECT id, product, amount::float8 FROM sales WHERE amount > 10")
    assert _rows(tmp_path, "SELECT id, product, CAST(amount AS REAL) FROM now") == set(live)
    found = _rows(
        tmp_path,
        "SELECT product, unixepoch(minute) / 60, CAST(revenue AS REAL), sales FROM minutes",
    )
    assert {(a, b, round(c, 2), d) for a, b, c, d in found} == {
        (a, b, round(c, 2), d) for a, b, c, d in tables.fetch(_LIVE)
    }
    # Of the snapshot, and of the stream.
    assert all(rerun(pipeline, EpochNumber(epoch)).is_identical for epoch in (1, 3))
    store = pipeline.checkpoints.objects
    manifest = pipeline.checkpoints.winner(EpochNumber(1)).manifest
    assert all(each.problem is None for each in verify_checkpoint(pipeline.checkpoints, manifest))
    assert not any(endpoint.password.encode() in store.read(info.key) for info in store.list(""))
    # When no checkpoint is left that stands before its end, the files of the snapshot go.
    files = [info.key for info in store.list(layout.SNAPSHOTS) if "rows-" in info.key]
    assert len(files) > 1
    collect(pipeline.checkpoints, Retention(1), pipeline.clock.now())
    left = [info.key for info in store.list(layout.SNAPSHOTS)]
    assert left == [layout.snapshot_key(model.sources[0].source_id, 1)]


def _rows(root: Path, query: str) -> set[tuple[Any, ...]]:
    with closing(sqlite3.connect(root / "out.db")) as connection:
        return set(connection.execute(query).fetchall())
