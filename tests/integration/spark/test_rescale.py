"""A state that is spread over another number of buckets is the same state, and goes on the same."""

from __future__ import annotations

import dataclasses
import json
import random
import sqlite3
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from laminar_dagster.config.project import load_project
from laminar_dagster.core import layout
from laminar_dagster.core.errors import ChecksumMismatch, PipelineChanged, StateIncompatible
from laminar_dagster.core.ids import CheckpointId, EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest, RecordCounts
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.ports import Engine, EpochOutput, Examination
from laminar_dagster.core.upkeep import Rescale
from laminar_dagster.runtime.assembly import assemble, known_connectors
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.loop import EpochLoop
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.rerun import rerun
from laminar_dagster.runtime.state_reader import read_state
from laminar_dagster.runtime.survey import newest_manifest, survey
from laminar_dagster.runtime.upkeep import plan_upkeep
from laminar_dagster.testing.crash import Crash

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2026, 1, 1, tzinfo=UTC)
DELAY = timedelta(seconds=5)
SOURCES = """
CREATE SOURCE TABLE sales (
  shop STRING, tax DECIMAL(8, 3), day DATE, gift BOOLEAN, weight DOUBLE, n INT, at TIMESTAMP,
  WATERMARK FOR at AS at - INTERVAL '5' SECOND
) WITH (connector = 'file', path = 'input', format = 'ndjson');
"""
MODELS = {
    "by_key": """
        SELECT window_start AS minute, shop, tax, day, gift, weight, COUNT(*) AS sales, SUM(n) AS n
        FROM sales
        GROUP BY TUMBLE(at, INTERVAL '1' MINUTE), shop, tax, day, gift, weight
        """,
    "overall": """
        SELECT window_start AS minute, COUNT(*) AS sales, SUM(tax) AS tax, MAX(n) AS most
        FROM sales GROUP BY HOP(at, INTERVAL '30' SECOND, INTERVAL '2' MINUTE)
        """,
}
SINKS = """
CREATE SINK keyed FROM by_key WITH (connector = 'sqlite', path = 'out.db', table = 'by_key');
CREATE SINK whole FROM overall WITH (connector = 'sqlite', path = 'out.db', table = 'overall');
"""


@dataclass
class Shop:
    """A project's folder, and what was sold."""

    root: Path
    spark: SparkSession
    sales: list[dict[str, Any]] = field(default_factory=list)

    def build(self, buckets: int) -> Pipeline:
        folder = self.root / "dbt_like_configs" / "shop"
        (folder / "models").mkdir(parents=True, exist_ok=True)
        (self.root / "input").mkdir(exist_ok=True)
        (folder / "pipeline.yml").write_text(f"name: shop\nstore: state\nbuckets: {buckets}\n")
        (folder / "sources.sql").write_text(SOURCES)
        (folder / "sinks.sql").write_text(SINKS)
        for name, sql in MODELS.items():
            (folder / "models" / f"{name}.sql").write_text(sql)
        (model,) = load_project(self.root, {}, known_connectors())
        return assemble(model, self.root, lambda: self.spark)

    def sell(self, sales: list[dict[str, Any]]) -> None:
        self.sales += sales
        with (self.root / "input" / "sales.ndjson").open("a") as out:
            for sale in sales:
                out.write(json.dumps(sale) + "\n")

    def rows(self, table: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.root / "out.db")) as database:
            return sorted(database.execute(f"SELECT * FROM {table}").fetchall(), key=repr)

    def expected(self) -> dict[tuple[object, ...], tuple[int, int]]:
        """The closed windows by key, computed without the engine."""
        newest = max(datetime.fromisoformat(each["at"]) for each in self.sales)
        found: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for sale in self.sales:
            minute = datetime.fromisoformat(sale["at"]).replace(second=0, microsecond=0)
            if minute + timedelta(minutes=1) <= newest - DELAY:
                tax = None if sale["tax"] is None else Decimal(sale["tax"])
                key = (minute, sale["shop"], tax, sale["day"], sale["gift"], sale["weight"])
                found[key].append(sale["n"])
        return {key: (len(all_n), sum(all_n)) for key, all_n in found.items()}

    def published(self) -> dict[tuple[object, ...], tuple[object, ...]]:
        found: dict[tuple[object, ...], tuple[object, ...]] = {}
        for minute, shop, tax, day, gift, weight, sales, n in self.rows("by_key"):
            spelled = datetime.fromisoformat(str(minute).replace("Z", "+00:00"))
            exact = None if tax is None else Decimal(str(tax))
            is_gift = None if gift is None else bool(gift)
            key = (spelled.replace(tzinfo=UTC), shop, exact, day, is_gift, weight)
            assert key not in found, "a window was published twice"
            found[key] = (sales, n)
        return found


def some_sales(chance: random.Random, count: int, begin: float) -> list[dict[str, Any]]:
    """In order, so that none is late; every key may be null."""
    found = []
    for place in range(count):
        at = START + timedelta(seconds=begin + place * 0.4)
        found.append(
            {
                "shop": chance.choice([None, "", "a", "b", "café"]),
                "tax": chance.choice([None, "0.000", "1.250", "-7.125", "99999.999"]),
                "day": chance.choice([None, str(date(2026, 1, 1)), str(date(1960, 2, 29))]),
                "gift": chance.choice([None, True, False]),
                "weight": chance.choice([None, 0.0, 1.5, -2.25]),
                "n": chance.randint(0, 9),
                "at": at.isoformat(),
            }
        )
    return found


def newest(pipeline: Pipeline) -> CheckpointManifest:
    found = newest_manifest(pipeline.checkpoints, survey(pipeline.checkpoints))
    assert found
    return found


def rescale(pipeline: Pipeline, before: int, after: int) -> CheckpointManifest:
    upkeep = Rescale(buckets_before=before, buckets_after=after)
    EpochRunner(pipeline).run(plan_upkeep(pipeline, upkeep))
    return newest(pipeline)


def states(pipeline: Pipeline) -> dict[str, Any]:
    manifest = newest(pipeline)
    return {
        name: read_state(pipeline.checkpoints, manifest, name).rows.to_pylist() for name in MODELS
    }


def files(manifest: CheckpointManifest) -> set[tuple[str, str]]:
    return {(part.path, part.sha256) for each in manifest.operators for part in each.partitions}


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> Shop:
    return Shop(tmp_path / "shop", spark)


def test_a_rescaled_state_is_the_same_state_and_goes_on_the_same(
    shop: Shop, tmp_path: Path, spark: SparkSession
) -> None:
    """From 4 buckets to 6, to 3, and to 6 again; beside a pipeline that always had 6."""
    twin = Shop(tmp_path / "twin", spark)
    always = twin.build(6)
    pipeline = shop.build(4)
    chance = random.Random(1)
    for begin in (0, 40):
        more = some_sales(chance, 100, begin)
        for each, runs in ((shop, pipeline), (twin, always)):
            each.sell(more)
            EpochRunner(runs).run()
    before = newest(pipeline)
    state = states(pipeline)
    assert len(state["by_key"]) > 20 and len(state["overall"]) > 3
    assert len(shop.published()) > 20, "some windows must be closed already"

    six = shop.build(6)
    with pytest.raises(StateIncompatible) as caught:
        EpochRunner(six).run()
    assert "laminar rescale" in caught.value.advice()
    first = rescale(six, 4, 6)
    assert (first.epoch, first.counts) == (before.epoch + 1, RecordCounts())
    assert [each.positions for each in first.sources] == [each.positions for each in before.sources]
    assert [each.watermarks for each in first.sources] == [
        each.watermarks for each in before.sources
    ]
    assert first.watermark == before.watermark
    assert all(not sink.files for sink in first.sinks)
    assert states(six) == state == states(always)
    parts = {str(each.operator_id): each.partitions for each in first.operators}
    assert [part.partition_id for part in parts["overall"]] == [0]
    assert len(parts["by_key"]) == 6
    for part in (part for each in parts.values() for part in each):
        assert (part.path.rpartition(".")[2], part.origin, part.is_incremental) == (
            "snap",
            None,
            False,
        )
    assert rerun(six, first.epoch).is_identical

    rescale(shop.build(3), 6, 3)
    again = rescale(shop.build(6), 3, 6)
    assert files(again) == files(first)
    assert states(six) == state

    for begin in (80, 140):
        more = some_sales(chance, 150, begin)
        for each, runs in ((shop, six), (twin, always)):
            each.sell(more)
            EpochRunner(runs).run()
    assert states(six) == states(always)
    assert shop.published() == shop.expected()
    assert len(shop.published()) > 150
    for table in MODELS:
        assert shop.rows(table) == twin.rows(table)


@dataclass(frozen=True)
class DyingEngine:
    """Computes, and does not live to tell."""

    inner: Engine

    def compute(
        self, plan: EpochPlan, parent: CheckpointManifest | None, attempt: CheckpointId
    ) -> EpochOutput:
        self.inner.compute(plan, parent, attempt)
        raise Crash

    def examine(self) -> Examination:
        return self.inner.examine()


def test_whoever_comes_next_finishes_a_rescale_or_refuses_by_name(shop: Shop) -> None:
    old = shop.build(4)
    shop.sell(some_sales(random.Random(2), 200, 0))
    EpochRunner(old).run()
    state = states(old)
    new = shop.build(2)
    dying = dataclasses.replace(new, engine=DyingEngine(new.engine))
    with pytest.raises(Crash):
        rescale(dying, 4, 2)
    with pytest.raises(PipelineChanged, match="rescale from 4 to 2 buckets, and this one has 4"):
        EpochRunner(old).run()
    shop.sell(some_sales(random.Random(3), 200, 80))
    EpochLoop(new, EpochRunner(new)).run_until_caught_up()
    manifest = newest(new)
    assert manifest.epoch == 3
    rescaled = new.checkpoints.winner(EpochNumber(2)).manifest
    assert read_state(new.checkpoints, rescaled, "by_key").rows.to_pylist() == state["by_key"]
    assert shop.published() == shop.expected()
    with pytest.raises(StateIncompatible, match="spread over 2 buckets, not 4"):
        EpochRunner(old).run()


def test_a_damaged_file_of_the_state_is_told_and_nothing_is_committed(shop: Shop) -> None:
    pipeline = shop.build(4)
    shop.sell(some_sales(random.Random(4), 100, 0))
    EpochRunner(pipeline).run()
    manifest = newest(pipeline)
    part = next(each for each in manifest.operators if each.operator_id == "by_key").partitions[-1]
    key = layout.checkpoint_key(manifest.checkpoint_id, part.path)
    objects = pipeline.checkpoints.objects
    whole = objects.read(key)
    objects.put(key, whole[:-9] + b"x" + whole[-8:])
    new = shop.build(5)
    with pytest.raises(ChecksumMismatch):
        rescale(new, 4, 5)
    assert newest(new).epoch == 1
    objects.put(key, whole)
    assert rescale(new, 4, 5).epoch == 2
