"""The gate through real epochs: what breaks a contract is not published, and what keeps it is."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infra.spark_connect import SparkConnectEndpoint
from laminar_dagster.config.mistakes import InvalidPipeline
from laminar_dagster.config.project import load_project
from laminar_dagster.core.errors import GateFailed
from laminar_dagster.runtime.assembly import assemble, known_connectors
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.survey import newest_manifest, survey
from tests.integration.cli.test_console_script import SCRIPT, environment
from tests.integration.spark.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCES = """
CREATE SOURCE TABLE clicks (
  id BIGINT, flag BOOLEAN, price DECIMAL(10, 2), day DATE, at TIMESTAMP, note STRING,
  tags ARRAY<STRING>
) WITH (connector = 'file', path = 'input', format = 'ndjson');
"""
SINKS = """
CREATE SINK rows FROM large WITH (connector = 'sqlite', path = 'out.db', table = 'large');
"""
LARGE = "SELECT id, flag, price, day, at, note, tags FROM clicks"
# Each dtype in a spelling of pandas or of SQL; every column but `id` may be null.
CONTRACT = """
schema_type: dataframe
strict: true
columns:
  id: {dtype: int64, nullable: true, unique: true, gt: 0}
  flag: {dtype: bool, nullable: true}
  price: {dtype: 'Decimal(10, 2)', nullable: true, ge: 0.1}
  day: {dtype: date, nullable: true, ge: 2024-01-01}
  at: {dtype: 'datetime64[ns]', nullable: true, ge: 2024-01-01T00:00:00Z}
  note: {dtype: str, nullable: true, str_length: {max_value: 3}}
  tags: {dtype: 'ARRAY<STRING>', nullable: true}
"""
TABLES = "SELECT name FROM sqlite_master WHERE name = 'large'"
FULL = {
    "flag": True,
    "price": 0.1,
    "day": "2024-01-01",
    "at": "2024-01-01T00:00:00Z",
    "note": "abc",
    "tags": ["a"],
}


def write(root: Path, contract: str, files: Mapping[str, list[dict[str, Any]]]) -> None:
    project = Project(root)
    project.write(sources=SOURCES, large=LARGE)
    folder = root / "dbt_like_configs" / "clicks"
    (folder / "models" / "per_minute.sql").unlink()
    (folder / "sinks.sql").write_text(SINKS)
    (folder / "contracts").mkdir(exist_ok=True)
    (folder / "contracts" / "large.yml").write_text(contract)
    for name, rows in files.items():
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (root / "input" / name).write_text(text)


def open_here(root: Path, spark: SparkSession) -> Pipeline:
    (model,) = load_project(root, {}, known_connectors())
    return assemble(model, root, lambda: spark)


def check_nothing_is_published(pipeline: Pipeline, root: Path) -> None:
    assert newest_manifest(pipeline.checkpoints, survey(pipeline.checkpoints)) is None
    assert not (root / "out.db").exists() or not Project(root).query(TABLES)


BROKEN: dict[str, tuple[str, dict[str, list[dict[str, Any]]]]] = {
    "a value": (r"id: greater_than\(0\) .* -5", {"a.ndjson": [{"id": -5, **FULL}]}),
    "two files": (
        "id: unique .*2 times, for example 7",
        {"a.ndjson": [{"id": 7, **FULL}, {"id": 1}], "b.ndjson": [{"id": 2}, {"id": 7}]},
    ),
    "one file": ("id: unique", {"a.ndjson": [{"id": 7, **FULL}, {"id": 7}]}),
    "a decimal": ("price: greater_than_or_equal_to", {"a.ndjson": [{"id": 1, "price": 0.09}]}),
}


@pytest.mark.parametrize(("message", "files"), BROKEN.values(), ids=BROKEN.keys())
def test_what_breaks_a_contract_is_not_published(
    tmp_path: Path, spark: SparkSession, message: str, files: dict[str, list[dict[str, Any]]]
) -> None:
    write(tmp_path, CONTRACT, files)
    pipeline = open_here(tmp_path, spark)
    with pytest.raises(GateFailed, match=message):
        EpochRunner(pipeline).run()
    check_nothing_is_published(pipeline, tmp_path)


NULLS = {
    "no null": [{"id": 1, **FULL}],
    "some nulls": [{"id": 1, **FULL}, {"id": 2}],
    "only nulls": [{"id": 3}],
}


@pytest.mark.parametrize("rows", NULLS.values(), ids=NULLS.keys())
def test_a_right_contract_holds_with_and_without_nulls(
    tmp_path: Path, spark: SparkSession, rows: list[dict[str, Any]]
) -> None:
    write(tmp_path, CONTRACT, {"a.ndjson": rows})
    EpochRunner(open_here(tmp_path, spark)).run()
    assert Project(tmp_path).query("SELECT id FROM large ORDER BY id") == [
        (row["id"],) for row in rows
    ]


def test_an_epoch_without_rows_keeps_its_contract(tmp_path: Path, spark: SparkSession) -> None:
    write(tmp_path, CONTRACT, {"a.ndjson": [{"id": 1}]})
    folder = tmp_path / "dbt_like_configs" / "clicks"
    (folder / "models" / "large.sql").write_text(f"{LARGE} WHERE id > 5")
    report = EpochRunner(open_here(tmp_path, spark)).run()
    assert report.epoch == 1


def test_a_row_that_is_replaced_is_not_judged_again(tmp_path: Path, spark: SparkSession) -> None:
    contract = "columns:\n  note: {dtype: str, unique: true}\n  seen: {dtype: int64, gt: 0}\n"
    write(tmp_path, contract, {"a.ndjson": [{"id": 1, "note": "a"}, {"id": 2, "note": "b"}]})
    folder = tmp_path / "dbt_like_configs" / "clicks"
    query = "SELECT note, COUNT(*) AS seen FROM clicks GROUP BY note EMIT CHANGES"
    (folder / "models" / "large.sql").write_text(f"{query} WITH (state.ttl = 'unbounded')")
    (folder / "sinks.sql").write_text(SINKS.replace(");", ", mode = 'upsert', key = 'note');"))
    EpochRunner(open_here(tmp_path, spark)).run()
    rows = [{"id": id, "note": "ab"[id % 2]} for id in range(4)]
    (tmp_path / "input" / "b.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    # What was published breaks the new contract, and is taken back; what takes its place keeps it.
    (folder / "contracts" / "large.yml").write_text(contract.replace("gt: 0", "gt: 2"))
    EpochRunner(open_here(tmp_path, spark)).run()
    found = Project(tmp_path).query("SELECT note, seen FROM large ORDER BY note")
    assert found == [("a", 3), ("b", 3)]


def test_rows_cannot_be_dropped_instead(tmp_path: Path, spark: SparkSession) -> None:
    contract = f"{CONTRACT}drop_invalid_rows: true\n"
    write(tmp_path, contract, {"a.ndjson": [{"id": -5, **FULL}]})
    with pytest.raises(InvalidPipeline, match=r"large\.yml:12: `drop_invalid_rows` is not poss"):
        open_here(tmp_path, spark)


def test_a_wrong_type_is_told_before_anything_runs(tmp_path: Path, spark: SparkSession) -> None:
    write(tmp_path, CONTRACT.replace("dtype: bool", "dtype: float64"), {})
    (mistake,) = open_here(tmp_path, spark).engine.examine().mistakes
    assert mistake.where.endswith("contracts/large.yml:6")
    assert mistake.problem == "flag: dtype('float64'), and it is boolean"
    write(tmp_path, CONTRACT, {})
    assert open_here(tmp_path, spark).engine.examine().mistakes == ()


@pytest.mark.service("spark_connect")
def test_the_gate_is_the_same_on_spark_connect(
    tmp_path: Path, spark_connect: SparkConnectEndpoint
) -> None:
    _, files = BROKEN["two files"]
    write(tmp_path, CONTRACT, files)
    env = environment(**spark_connect.environment())
    command = [SCRIPT, "run", "clicks", "--no-dagster"]

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)

    told = run()
    assert told.returncode == 1
    assert "id: unique (line 5; 2 times, for example 7)" in told.stdout + told.stderr
    assert not (tmp_path / "out.db").exists() or not Project(tmp_path).query(TABLES)
    write(tmp_path, CONTRACT.replace("unique: true", "unique: false"), {})
    mended = run()
    assert mended.returncode == 0, mended.stderr
    assert Project(tmp_path).query("SELECT COUNT(*) FROM large") == [(4,)]
