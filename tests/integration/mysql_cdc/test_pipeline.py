"""A pipeline from a table to a table: whatever dies on the way, both are equal in the end."""

from __future__ import annotations

import dataclasses
import random
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from laminar_dagster.cli.connections import check_connections
from laminar_dagster.config.project import load_project
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.runtime.assembly import assemble, build_adapters, known_connectors
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.rerun import rerun
from laminar_dagster.testing.crash import Crash
from laminar_dagster.testing.faulty_store import Fault, FaultyStore
from tests.integration.mysql_cdc.conftest import ShopFactory
from tests.integration.mysql_cdc.shop import Shop
from tests.integration.mysql_cdc.test_histories import COLUMNS, change

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCES = """
CREATE SOURCE TABLE orders (id BIGINT NOT NULL, name STRING, amount DECIMAL(20, 4))
WITH (connector = 'mysql-cdc', host = '{host}', port = '{port}', database = '{database}',
      user = '{user}', password = '${{PASSWORD}}', ssl_mode = 'disabled', tables = 'orders');
"""
LARGE = "SELECT id, upper(name) AS name, amount, _weight FROM orders WHERE amount > 0"
SINKS = """
CREATE SINK copy FROM large
WITH (connector = 'sqlite', path = 'out.db', table = 'large', mode = 'upsert', key = 'id');
"""


def lay_out(root: Path, shop: Shop) -> dict[str, str]:
    """A project over the shop; returns its environment."""
    folder = root / "dbt_like_configs" / "shop"
    (folder / "models").mkdir(parents=True)
    limits = "epoch:\n  max_records: 40\n"
    (folder / "pipeline.yml").write_text(f"name: shop\nstore: state\nbuckets: 2\n{limits}")
    place = dataclasses.asdict(shop.endpoint) | {"database": shop.database}
    (folder / "sources.sql").write_text(SOURCES.format(**place))
    (folder / "models" / "large.sql").write_text(LARGE)
    (folder / "sinks.sql").write_text(SINKS)
    return {"PASSWORD": shop.endpoint.password}


def published(root: Path) -> dict[int, tuple[str | None, Decimal]]:
    with closing(sqlite3.connect(root / "out.db")) as database:
        rows = database.execute("SELECT id, name, amount FROM large").fetchall()
    return {key: (name, Decimal(str(amount))) for key, name, amount in rows}


def live(shop: Shop) -> dict[int, tuple[str | None, Decimal]]:
    rows = shop.run("SELECT id, name, amount FROM orders WHERE amount > 0")
    return {key: (name.upper() if name is not None else None, amount) for key, name, amount in rows}


@pytest.mark.slow
def test_a_view_equals_the_same_query_on_the_table(
    shop_with: ShopFactory,
    tmp_path: Path,
    spark: SparkSession,
) -> None:
    dice = random.Random(11)
    shop = shop_with(COLUMNS)
    shop.run("CREATE TABLE others (id BIGINT)")
    environment = lay_out(tmp_path, shop)
    for _ in range(15):
        change(shop, dice)

    def build() -> Pipeline:
        (model,) = load_project(tmp_path, environment, known_connectors())
        return assemble(model, tmp_path, lambda: spark)

    crashes = 0
    for _ in range(3):
        for _ in range(12):
            change(shop, dice)
        for place in (dice.randrange(3, 25), None):
            pipeline = build()
            if place is not None:
                store = FaultyStore(pipeline.checkpoints.objects, {place: Fault.CRASH_AFTER})
                pipeline = dataclasses.replace(pipeline, checkpoints=CheckpointStore(store))
            try:
                EpochRunner(pipeline).run()
            except Crash:
                crashes += 1
    assert crashes
    while True:
        pipeline = build()
        report = EpochRunner(pipeline).run()
        manifest = pipeline.checkpoints.manifest(report.checkpoint_id)
        assert manifest is not None
        if manifest.counts.read == 0:
            break
    assert published(tmp_path) == live(shop)
    assert published(tmp_path)
    # Of the copy and of the log, an epoch that is run again comes out the same.
    for epoch in (1, int(manifest.epoch) - 1):
        assert rerun(build(), EpochNumber(epoch)).is_identical
    # Nothing of all this knows the password but the environment.
    files = [each for each in (tmp_path / "state").rglob("*") if each.is_file()]
    assert files
    assert not any(shop.endpoint.password.encode() in each.read_bytes() for each in files)
    (model,) = load_project(tmp_path, environment, known_connectors())
    findings = list(check_connections(model, build_adapters(model, tmp_path), tmp_path))
    assert [each.error for each in findings] == [None] * 3
    assert "0 bytes and 0 s behind the log" in findings[1].found
