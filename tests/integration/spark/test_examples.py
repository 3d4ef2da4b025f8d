"""The example of what SQL can say, as it is in the repository, on the demo's own input."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from examples.clickstream import generator
from laminar_dagster.config.project import load_project
from laminar_dagster.runtime.assembly import assemble, known_connectors
from tests.integration.spark.project import run_until_done

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]
EVENTS = 20_000


def test_the_example_of_visitors_adds_up(tmp_path: Path, spark: SparkSession) -> None:
    shutil.copytree(ROOT / "dbt_like_configs" / "visitors", tmp_path / "dbt_like_configs/visitors")
    generator.write(tmp_path / ".laminar" / "clickstream" / "input", EVENTS)
    (model,) = load_project(tmp_path, {}, known_connectors())
    manifests = run_until_done(assemble(model, tmp_path, lambda: spark))
    processed = sum(each.counts.processed for each in manifests)
    assert processed > EVENTS / 2
    path = tmp_path / ".laminar" / "visitors" / "output" / "visitors.db"
    with closing(sqlite3.connect(path)) as database:

        def ask(sql: str) -> tuple[object, ...]:
            found: tuple[object, ...] = database.execute(sql).fetchone()
            return found

        users, clicks, purchases = ask(
            "SELECT COUNT(*), SUM(clicks), SUM(purchases) FROM user_totals"
        )
        counted = "SELECT SUM(users), SUM(users * purchases) FROM users_by_purchases"
        assert ask(counted) == (users, purchases)
        buyers = "SELECT COUNT(*) FROM user_totals WHERE purchases > 0"
        assert ask("SELECT COUNT(*) FROM last_purchase") == ask(buyers)
        (seen,) = ask("SELECT COUNT(*) FROM known_pages")
        (visited,) = ask("SELECT SUM(clicks) FROM visits")
    assert isinstance(clicks, int) and isinstance(visited, int) and isinstance(seen, int)
    assert 0 < visited <= clicks <= processed
    assert seen > 0
