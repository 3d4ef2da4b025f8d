"""Random streams, cut into epochs at random: always DuckDB's answer, and never the cut's."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, Phase, assume, given, note, settings

from laminar_dagster.config.project import load_project
from laminar_dagster.core.ports import Admission
from laminar_dagster.runtime.assembly import assemble, known_connectors
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from tests.integration.proof.answer import Rows, counted, moment
from tests.integration.proof.random_stream import (
    LAYOUT,
    LINE_BREAKS,
    Stream,
    expected,
    streams,
)
from tests.integration.proof.stream import append_lines, write_pipeline
from tests.integration.proof.worker import is_caught_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.proof("random streams")]

# How SQLite's columns are to be read: t is a time, m a decimal, a the mean of decimals.
_KINDS = {"tumbled": ".t..........mmma", "hopped": ".t..m.", "mixed": "..mt"}


@settings(
    max_examples=5,
    # To make an example smaller takes minutes, and it is small as it is.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(stream=streams())
@pytest.mark.timeout(1200)
def test_any_cut_gives_the_answer_over_the_whole_input(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, stream: Stream
) -> None:
    whole = tmp_path_factory.mktemp("whole")
    _extend(whole, stream, [0, 0], tuple(map(len, stream.files)))
    right = expected(whole)
    # What is not there cannot be wrong.
    assume(all(right.values()))
    note(f"rows: { {view: rows.total() for view, rows in right.items()} }")
    _finish(_open(whole, spark, stream.limits[1]), whole)
    growing = _grow(tmp_path_factory.mktemp("growing"), spark, stream)
    for root in (growing, whole):
        for view, rows in right.items():
            _same(view, _in_sqlite(root, view), rows)
        for view in ("tumbled", "mixed"):
            _same(view, _in_delta(root, view), right[view])


def test_a_key_with_a_line_break(spark: SparkSession, tmp_path: Path) -> None:
    at = "2026-01-01T00:00:00Z"
    lines = [json.dumps({"k": f"a{each}b", "i": 1, "at": at}) for each in LINE_BREAKS]
    append_lines(tmp_path / "input" / "events" / "0.ndjson", lines)
    _finish(_open(tmp_path, spark, 1000), tmp_path)
    _same("mixed", _in_delta(tmp_path, "mixed"), expected(tmp_path)["mixed"])


def _grow(root: Path, spark: SparkSession, stream: Stream) -> Path:
    """Files that grow between epochs, and epochs of few records."""
    pipeline = _open(root, spark, stream.limits[0])
    there = [0, 0]
    for ends in stream.growth:
        _extend(root, stream, there, ends)
        EpochRunner(pipeline).run()
    _extend(root, stream, there, tuple(map(len, stream.files)))
    _finish(pipeline, root)
    return root


def _extend(root: Path, stream: Stream, there: list[int], ends: tuple[int, ...]) -> None:
    """Write each file from where it is to a place, if that is further."""
    for number, end in enumerate(ends):
        lines = stream.files[number][there[number] : end]
        append_lines(root / "input" / "events" / f"{number}.ndjson", lines)
        there[number] = max(there[number], end)


def _open(root: Path, spark: SparkSession, limit: int) -> Pipeline:
    write_pipeline(root, LAYOUT)
    (root / "input" / "events").mkdir(parents=True, exist_ok=True)
    (model,) = load_project(root, {}, known_connectors())
    return replace(assemble(model, root, lambda: spark), limits=Admission(max_records=limit))


def _finish(pipeline: Pipeline, root: Path) -> None:
    while not is_caught_up(pipeline, root):
        EpochRunner(pipeline).run()


def _in_sqlite(root: Path, view: str) -> Rows:
    with closing(sqlite3.connect(root / "out.db")) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        rows = database.execute(f"SELECT * FROM {view}").fetchall() if view in tables else []
    return counted(tuple(map(_typed, _KINDS[view], row)) for row in rows)


def _typed(kind: str, value: Any) -> Any:
    if value is None or kind == ".":
        return value
    if kind == "t":
        return moment(value)
    return Decimal(str(value)) if kind == "m" else _millionths(Decimal(str(value)))


def _in_delta(root: Path, view: str) -> Rows:
    table = DeltaTable(root / f"{view}_lake").to_pyarrow_table()
    if "k" not in table.column_names:
        return counted(())
    columns = [table.column(name).to_pylist() for name in table.column_names]
    if view == "tumbled":
        columns[-1] = [value if value is None else _millionths(value) for value in columns[-1]]
    return counted(zip(*columns, strict=True))


def _millionths(value: Decimal) -> int:
    assert value * 10**6 == int(value * 10**6)
    return int(value * 10**6)


def _same(view: str, found: Rows, right: Rows) -> None:
    missing, surplus = right - found, found - right
    assert not missing and not surplus, (
        f"{view}: missing {list(missing.elements())[:3]}, too many {list(surplus.elements())[:3]}"
    )
