"""Wrong queries, broken contracts and files that change: named errors, and nothing published."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from laminar_dagster.core.errors import (
    GateFailed,
    LaminarError,
    RetentionExpired,
    SourceReplaced,
)
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.runtime import steps
from laminar_dagster.runtime.epoch import EpochRunner
from tests.integration.proof.in_process import open_here, run_to_the_end
from tests.integration.proof.published import check_everything, check_whole_epochs
from tests.integration.proof.stream import MODELS, Layout, write_input, write_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.proof("bad input")]

_WINDOW = "FROM clicks GROUP BY TUMBLE(at, INTERVAL '1' MINUTE), page"
_ONLY_SPARK_SEES = {
    "sum-of-a-string": f"SELECT page, window_start AS minute, SUM(page) AS total {_WINDOW}",
    "average-of-a-time": f"SELECT page, window_start AS minute, AVG(at) AS total {_WINDOW}",
    "wrong-arity": "SELECT substring(page) AS page, amount, at FROM clicks",
    "sum-of-text-and-list": "SELECT page + array(1) AS page, amount, at FROM clicks",
    "filter-that-is-no-condition": "SELECT page, amount, at FROM clicks WHERE amount",
    "having-that-is-no-condition": (
        f"SELECT page, window_start AS minute, COUNT(*) AS c {_WINDOW} HAVING MAX(page)"
    ),
    "grouped-by-a-map": (
        "SELECT map(page, n) AS page, window_start AS minute, COUNT(*) AS c FROM clicks"
        " GROUP BY TUMBLE(at, INTERVAL '1' MINUTE), map(page, n)"
    ),
    "union-of-other-types": (
        "SELECT page, amount, at FROM clicks"
        " UNION ALL SELECT page, array(1) AS amount, at FROM refunds"
    ),
}


@pytest.mark.parametrize("query", _ONLY_SPARK_SEES.values(), ids=_ONLY_SPARK_SEES.keys())
def test_what_only_spark_can_see_names_the_views_file(
    tmp_path: Path, spark: SparkSession, query: str
) -> None:
    broken = "per_minute" if "TUMBLE" in query else "moves"
    write_pipeline(tmp_path, Layout(models={**MODELS, broken: query}))
    write_input(tmp_path, 60)
    pipeline = open_here(tmp_path, spark)
    with pytest.raises(LaminarError, match=rf"{broken}\.sql"):
        EpochRunner(pipeline).run()
    assert check_whole_epochs(tmp_path, pipeline.checkpoints, tmp_path / "cut") == (0, 0)


_FAILS_ON_DATA = {
    "division-by-zero": "SELECT page, 1 / (n - n) AS amount, at FROM clicks",
    "cast": "SELECT page, CAST(page AS INT) AS amount, at FROM clicks",
    "overflow": "SELECT page, n + 2147483647 AS amount, at FROM clicks WHERE n > 0",
}


@pytest.mark.parametrize("query", _FAILS_ON_DATA.values(), ids=_FAILS_ON_DATA.keys())
def test_a_query_that_fails_on_a_record_publishes_nothing_and_goes_on_when_mended(
    tmp_path: Path, spark: SparkSession, query: str
) -> None:
    write_pipeline(tmp_path, Layout(models={**MODELS, "moves": query}))
    write_input(tmp_path, 60)
    pipeline = open_here(tmp_path, spark)
    with pytest.raises(LaminarError, match=r"(?i)division by zero|cannot be cast|overflow"):
        EpochRunner(pipeline).run()
    assert check_whole_epochs(tmp_path, pipeline.checkpoints, tmp_path / "cut") == (0, 0)
    write_pipeline(tmp_path, Layout())
    manifests = check_everything(tmp_path, run_to_the_end(tmp_path, spark).checkpoints)
    assert len(manifests) == 1


_CONTRACT = """
schema_type: dataframe
version: 0.35.0
columns:
  amount:
    dtype: float64
    nullable: false
    checks:
      less_than_or_equal_to: {limit}
"""


def test_an_epoch_waits_for_its_contract_to_be_mended(tmp_path: Path, spark: SparkSession) -> None:
    layout = Layout(max_records=60)
    write_pipeline(tmp_path, layout)
    write_input(tmp_path, 120)
    EpochRunner(open_here(tmp_path, spark)).run()
    contracts = {"moves": _CONTRACT.format(limit=1)}
    write_pipeline(tmp_path, Layout(max_records=60, contracts=contracts))
    for _ in range(2):
        pipeline = open_here(tmp_path, spark)
        with pytest.raises(GateFailed, match="amount"):
            EpochRunner(pipeline).run()
        ledgers = check_whole_epochs(tmp_path, pipeline.checkpoints, tmp_path / "cut")
        assert ledgers == (1, 1)
    planned = pipeline.checkpoints.plan(EpochNumber(2))
    contracts = {"moves": _CONTRACT.format(limit=64)}
    write_pipeline(tmp_path, Layout(max_records=60, contracts=contracts))
    report = EpochRunner(open_here(tmp_path, spark)).run()
    assert report.epoch == 2
    pipeline = run_to_the_end(tmp_path, spark)
    assert pipeline.checkpoints.plan(EpochNumber(2)) == planned
    check_everything(tmp_path, pipeline.checkpoints)


def _shrink(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def _replace(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b'"page": "p1"', b'"page": "p2"'))


def _cut_off_and_grow(file: Path) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[1:] * 2))


_CHANGES: dict[str, Callable[[Path], None]] = {
    "shrinks": _shrink,
    "is-replaced": _replace,
    "is-rotated": _cut_off_and_grow,
    "vanishes": Path.unlink,
}


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES.keys())
def test_a_file_that_changes_between_plan_and_compute(
    tmp_path: Path, spark: SparkSession, change: Callable[[Path], None]
) -> None:
    write_pipeline(tmp_path, Layout())
    write_input(tmp_path, 120)
    pipeline = open_here(tmp_path, spark)
    steps.plan(pipeline, EpochNumber(1))
    file = tmp_path / "input" / "clicks" / "a.ndjson"
    original = file.read_bytes()
    change(file)
    with pytest.raises((SourceReplaced, RetentionExpired), match=r"a\.ndjson"):
        EpochRunner(open_here(tmp_path, spark)).run()
    file.write_bytes(original)
    assert check_whole_epochs(tmp_path, pipeline.checkpoints, tmp_path / "cut") == (0, 0)
    check_everything(tmp_path, run_to_the_end(tmp_path, spark).checkpoints)
