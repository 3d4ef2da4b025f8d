"""A family of SQL on a real Spark: random data in random epochs against DuckDB over it all."""

from __future__ import annotations

import dataclasses
import random
import shutil
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta

import duckdb
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.ports import Admission
from laminar_dagster.core.upkeep import Rescale
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.rerun import rerun
from laminar_dagster.runtime.upkeep import plan_upkeep
from laminar_dagster.testing.crash import Crash
from tests.integration.spark.conftest import Build
from tests.integration.spark.dying_engine import DyingEngine
from tests.integration.spark.project import Project, Record, random_records, run_until_done


@dataclass(frozen=True)
class Feature:
    """A view, the key of its sink if its rows change, and DuckDB's query for the same rows.

    DuckDB has the clicks that are on time, their ``us`` in microseconds, and the watermark ``w``;
    in ``patient_clicks`` those that are up to 1.5 seconds late as well; and the reference tables
    ``titles`` and ``tags`` as they were when a click's epoch was planned, told apart by ``gen``.
    """

    sql: str
    answer: str
    key: str = ""


LATENESS = timedelta(seconds=1.5)
PATIENT = "WITH (allowed.lateness = '1500ms')"
FOREVER = "EMIT CHANGES WITH (state.ttl = 'unbounded')"
# Each click with the number of its session, of which a new one begins after {gap} microseconds. In
# SQL an event exactly at the end still belongs to a session: there a microsecond is added.
SESSIONS = """
    WITH before AS (
      SELECT *, lag(us) OVER (PARTITION BY {keys} ORDER BY us) AS previous FROM clicks
    ), numbered AS (
      SELECT *, count(*) FILTER (WHERE previous IS NULL OR us >= previous + {gap})
        OVER (PARTITION BY {keys} ORDER BY us RANGE UNBOUNDED PRECEDING) AS session FROM before
    )"""

REFERENCES = """
CREATE REFERENCE TABLE titles (page STRING, title STRING, weight INT, PRIMARY KEY (page))
WITH (connector = 'file', path = 'titles.csv', format = 'csv');
CREATE REFERENCE TABLE tags (tag STRING, of_page STRING NOT NULL, least BIGINT)
WITH (connector = 'delta', path = 'tags');
"""
# The tables at first, and as they are when an epoch that was planned before is retried.
Held = Mapping[int, list[tuple[str, str, int | None]]]
TITLES: Held = {
    1: [("p0", "first", 1), ("p1", "second", 2)],
    2: [("p1", "other", 5), ("p2", "third", 7)],
}
TAGS: Held = {
    1: [("x", "p0", 1), ("y", "p0", 3), ("x", "p2", 5), ("z", "p2", None)],
    2: [("y", "p1", 2), ("x", "p0", 1), ("x", "p0", 1)],
}


def write_references(project: Project, gen: int) -> None:
    """The reference tables in one of their states."""
    lines = ["page,title,weight", *(",".join(map(str, row)) for row in TITLES[gen])]
    (project.root / "titles.csv").write_text("\n".join(lines))
    kinds = pa.schema([("tag", pa.string()), ("of_page", pa.string()), ("least", pa.int64())])
    columns = dict(zip(kinds.names, map(list, zip(*TAGS[gen], strict=True)), strict=True))
    write_deltalake(project.root / "tags", pa.table(columns, kinds), mode="overwrite")


def lay_out(
    project: Project, features: Mapping[str, Feature], python: Mapping[str, str], buckets: int
) -> None:
    """The features as the only views of the project, each with a sink, and models below them."""
    folder = project.root / "dbt_like_configs" / "clicks"
    (folder / "pipeline.yml").write_text(f"name: clicks\nstore: state\nbuckets: {buckets}\n")
    for each in (folder / "models").iterdir():
        each.unlink()
    sinks = []
    for name, feature in features.items():
        (folder / "models" / f"{name}.sql").write_text(feature.sql)
        mode = f", mode = 'upsert', key = '{feature.key}'" if feature.key else ""
        options = f"connector = 'sqlite', path = 'out.db', table = '{name}'{mode}"
        sinks.append(f"CREATE SINK to_{name} FROM {name} WITH ({options});")
    for name, code in python.items():
        (folder / "models" / f"{name}.py").write_text(code)
    (folder / "sinks.sql").write_text("\n".join(sinks))
    (folder / "references.sql").write_text(REFERENCES)


def answers(
    project: Project, features: Mapping[str, Feature], later: list[Record | str]
) -> dict[str, list[tuple[object, ...]]]:
    """What DuckDB makes of all clicks that are on time; ``later`` are those of later epochs."""
    with closing(duckdb.connect()) as database:
        database.execute(
            "CREATE TABLE clicks (page TEXT, amount DOUBLE, cents INT, n INT, us BIGINT, gen INT)"
        )
        database.execute("CREATE TABLE patient_clicks AS FROM clicks")
        gens = {id(record): 2 for record in later}
        for table, lateness in (("clicks", timedelta(0)), ("patient_clicks", LATENESS)):
            rows = [
                (r.page, r.amount, r.price, r.n, micros(r), gens.get(id(r), 1))
                for r in project.on_time(lateness)
            ]
            database.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?, ?)", rows)
        assert len(project.on_time()) < len(rows) < len(project.on_time(timedelta(days=1)))
        database.execute("CREATE TABLE titles (gen INT, page TEXT, title TEXT, weight INT)")
        database.execute("CREATE TABLE tags (gen INT, tag TEXT, page TEXT, least BIGINT)")
        for gen in (1, 2):
            for table, held in (("titles", TITLES), ("tags", TAGS)):
                values = [(gen, *row) for row in held[gen]]
                database.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", values)
        mark = round(project.watermark().timestamp() * 1e6)
        database.execute("CREATE TABLE mark AS SELECT ?::BIGINT AS w", [mark])
        return {
            name: sorted(database.execute(feature.answer).fetchall(), key=repr)
            for name, feature in features.items()
        }


def micros(record: Record) -> int:
    return round(record.at.timestamp() * 1e6)


def published(project: Project, names: Iterable[str]) -> dict[str, list[tuple[object, ...]]]:
    with closing(sqlite3.connect(project.root / "out.db")) as database:
        return {
            name: sorted(database.execute(f"SELECT * FROM {name}").fetchall(), key=repr)
            for name in names
        }


def tell(
    project: Project,
    build: Build,
    features: Mapping[str, Feature],
    python: Mapping[str, str] = {},
) -> tuple[Pipeline, CheckpointManifest, dict[str, list[tuple[object, ...]]]]:
    """Cut into epochs, with a death in one of them, and with state that is spread anew between.

    Returns:
        The pipeline, its last checkpoint, and what every feature gave, which DuckDB gave too.
    """
    lay_out(project, features, python, buckets=2)
    write_references(project, 1)
    chance = random.Random(1)
    first, second = random_records(chance, 300), random_records(chance, 260, begin=20)
    project.append("a.ndjson", first[:150])
    project.append("b.ndjson", second[:110])
    pipeline = build(limits=Admission(max_records=190))
    EpochRunner(pipeline).run()
    with pytest.raises(Crash):
        EpochRunner(dataclasses.replace(pipeline, engine=DyingEngine(pipeline.engine))).run()
    # The epoch is planned: it goes on with the tables as they were.
    write_references(project, 2)
    retried = EpochRunner(pipeline).run().epoch
    verdict = rerun(pipeline, retried)
    assert verdict.is_identical, verdict
    lay_out(project, features, python, buckets=3)
    pipeline = build()
    upkeep = Rescale(buckets_before=2, buckets_after=3)
    EpochRunner(pipeline).run(plan_upkeep(pipeline, upkeep))
    project.append("a.ndjson", first[150:])
    project.append("b.ndjson", second[110:])
    manifests = run_until_done(pipeline)
    found = published(project, features)
    expected = answers(project, features, first[150:] + second[110:])
    for name in features:
        assert found[name] == expected[name], name
        assert len(expected[name]) > (0 if name == "overall" else 2), name
    shutil.rmtree(project.root / "tags")
    verdict = rerun(pipeline, manifests[-2].epoch)
    assert verdict.is_identical, verdict
    return pipeline, manifests[-1], found
