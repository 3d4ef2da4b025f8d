"""The examples of what SQL can say, as they are in the repository, on the demo's own input."""

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


def run(name: str, folder: Path, spark: SparkSession) -> tuple[int, Path]:
    """Run an example to its end; how many records it took in, and where it put its rows."""
    shutil.copytree(ROOT / "dbt_like_configs" / name, folder / "dbt_like_configs" / name)
    generator.write(folder / ".laminar" / "clickstream" / "input", EVENTS)
    (model,) = load_project(folder, {}, known_connectors())
    manifests = run_until_done(assemble(model, folder, lambda: spark))
    processed = sum(each.counts.processed for each in manifests)
    assert processed > EVENTS / 2
    return processed, folder / ".laminar" / name / "output" / f"{name}.db"


def test_the_example_of_funnels_joins(tmp_path: Path, spark: SparkSession) -> None:
    _, path = run("funnels", tmp_path, spark)
    with closing(sqlite3.connect(path)) as database:

        def count(sql: str) -> int:
            (found,) = database.execute(sql).fetchone()
            assert isinstance(found, int)
            return found

        assert count("SELECT COUNT(*) FROM purchases_after WHERE load_ms > 500") > 0
        assert (
            count("SELECT COUNT(*) FROM purchases_after WHERE amount <= 0 OR load_ms <= 500") == 0
        )
        assert count("SELECT COUNT(*) FROM left_behind") > 0
        users = count("SELECT COUNT(*) FROM users")
        assert 0 < count("SELECT COUNT(*) FROM users WHERE spent IS NULL") < users
        assert count("SELECT COUNT(DISTINCT user_id) FROM users") == users


def test_the_example_of_visitors_adds_up(tmp_path: Path, spark: SparkSession) -> None:
    processed, path = run("visitors", tmp_path, spark)
    with closing(sqlite3.connect(path)) as database:

        def ask(sql: str) -> tuple[object, ...]:
            found: tuple[object, ...] = database.execute(sql).fetchone()
            return found

        users, clicks, purchases = ask(
            "SELECT COUNT(*), SUM(clicks), SUM(purchases) FROM user_totals"
        )
        counted = "SELECT SUM(users), SUM(users * purchases) FROM users_by_purchases"
        assert ask(counted) == (users, purchases)
        other = (
            "SELECT COUNT(*) FROM users_by_purchases g WHERE most <> (SELECT"
            " MAX(spent) FROM user_totals t WHERE t.purchases = g.purchases)"
        )
        assert ask(other) == (0,), "what was the most before is undone"
        buyers = "SELECT COUNT(*) FROM user_totals WHERE purchases > 0"
        assert ask("SELECT COUNT(*) FROM last_purchase") == ask(buyers)
        (seen,) = ask("SELECT COUNT(*) FROM known_pages")
        sections = database.execute(
            "SELECT section, SUM(clicks) FROM section_minutes GROUP BY section ORDER BY section"
        ).fetchall()
        (visited,) = ask("SELECT SUM(clicks) FROM visits")
        parts = "SELECT minute, level, name, clicks FROM {} ORDER BY minute, level, name"
        in_sql, in_python = (
            database.execute(parts.format(name)).fetchall()
            for name in ("path_minutes", "part_minutes")
        )
        fastest, slow = ask("SELECT MIN(load_ms), COUNT(*) FROM slow_clicks")
        (stepped,) = ask("SELECT SUM(clicks) FROM steps_by_minute")
        waits = "SELECT DISTINCT unixepoch(ts) - unixepoch(since) FROM left_carts"
        assert database.execute(waits).fetchall() == [(120,)]
    assert in_sql == in_python
    assert isinstance(fastest, int) and isinstance(slow, int)
    assert fastest > 600 and 0 < slow < processed
    assert {level for _, level, _, _ in in_sql} == {1, 2}
    assert isinstance(clicks, int) and isinstance(visited, int) and isinstance(seen, int)
    assert 0 < visited <= clicks <= processed
    assert seen > 0
    assert [name for name, _ in sections] == ["entrance", "products", "service", "shop"]
    # Its last minutes are still open.
    assert clicks * 0.8 < sum(count for _, count in sections) <= processed
    assert isinstance(stepped, int) and 0 < stepped < processed
