"""A store or a sink that goes away in the middle of an epoch, and comes back."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from infra.s3 import S3Endpoint
from laminar_dagster.core.errors import (
    LaminarError,
    LedgerMismatch,
    RetryError,
    SinkUnavailable,
    UnknownOutcome,
)
from laminar_dagster.runtime.epoch import EpochRunner
from tests.integration.proof.in_process import before_step, open_here, run_to_the_end
from tests.integration.proof.published import check_everything, check_whole_epochs, read_lake
from tests.integration.proof.small_disk import SmallDisk, mounted
from tests.integration.proof.stream import SINKS, Layout, write_input, write_pipeline
from tests.services.faulty_wire import WireFactory
from tests.services.proofs import with_long_lane

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.proof("lost services")]

# Before any other step, without Spark: `sinks/test_absent_stores.py`.
_STEPS = with_long_lane(
    ["compute"], ["plan", "gate", "prepare", "write_manifest", "commit_sinks", "move_latest"]
)


@pytest.mark.parametrize("step", _STEPS)
def test_the_stores_folder_is_renamed_away(tmp_path: Path, spark: SparkSession, step: str) -> None:
    write_pipeline(tmp_path, Layout(max_records=120))
    write_input(tmp_path, 200)
    pipeline = open_here(tmp_path, spark)
    EpochRunner(pipeline).run()
    state, away = tmp_path / "state", tmp_path / "away"
    with before_step(step, lambda: state.rename(away)), pytest.raises(LaminarError):
        EpochRunner(pipeline).run()
    shutil.rmtree(state, ignore_errors=True)
    away.rename(state)
    check_whole_epochs(tmp_path, pipeline.checkpoints, tmp_path / "cut")
    check_everything(tmp_path, run_to_the_end(tmp_path, spark).checkpoints)


def test_a_pipeline_does_not_begin_again_in_an_empty_store(
    tmp_path: Path, spark: SparkSession
) -> None:
    write_pipeline(tmp_path, Layout(max_records=120))
    write_input(tmp_path, 200)
    EpochRunner(open_here(tmp_path, spark)).run()
    (tmp_path / "state").rename(tmp_path / "away")
    with pytest.raises(LedgerMismatch, match="is at epoch 1"):
        EpochRunner(open_here(tmp_path, spark)).run()
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "away").rename(tmp_path / "state")
    check_everything(tmp_path, run_to_the_end(tmp_path, spark).checkpoints)


@pytest.mark.service("s3")
@pytest.mark.parametrize("step", _STEPS)
def test_the_s3_server_is_away(
    tmp_path: Path,
    spark: SparkSession,
    s3_service: S3Endpoint,
    s3_bucket: str,
    faulty_wire: WireFactory,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    for name, value in s3_service.environment().items():
        monkeypatch.setenv(name, value)
    wire = faulty_wire(s3_service.host, s3_service.port)
    write_pipeline(tmp_path, Layout(store=f"s3://{s3_bucket}/shop?endpoint={wire.url}"))
    write_input(tmp_path, 120)
    pipeline = open_here(tmp_path, spark)
    with before_step(step, wire.refuse), pytest.raises((RetryError, UnknownOutcome)):
        EpochRunner(pipeline).run()
    wire.restore()
    check_whole_epochs(tmp_path, pipeline.checkpoints, tmp_path / "cut")
    check_everything(tmp_path, run_to_the_end(tmp_path, spark).checkpoints)


def test_another_writer_holds_the_database(tmp_path: Path, spark: SparkSession) -> None:
    sinks = SINKS.replace("table = 'per_minute'", "table = 'per_minute', busy_timeout = '200ms'")
    write_pipeline(tmp_path, Layout(max_records=120, sinks=sinks))
    write_input(tmp_path, 200)
    pipeline = open_here(tmp_path, spark)
    EpochRunner(pipeline).run()
    with closing(sqlite3.connect(tmp_path / "out.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(SinkUnavailable, match="minutes"):
            EpochRunner(pipeline).run()
        # The slow one holds back no other.
        assert read_lake(tmp_path)[0] == 2
    assert check_whole_epochs(tmp_path, pipeline.checkpoints, tmp_path / "cut") == (1, 2)
    check_everything(tmp_path, run_to_the_end(tmp_path, spark).checkpoints)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with mounted(tmp_path / "disk") as disk:
        yield disk


def test_the_sinks_are_read_only(tmp_path: Path, disk: SmallDisk, spark: SparkSession) -> None:
    sinks = SINKS.replace("'out.db'", "'disk/out.db'").replace("'lake'", "'disk/lake'")
    write_pipeline(tmp_path, Layout(max_records=120, sinks=sinks))
    write_input(tmp_path, 200)
    pipeline = open_here(tmp_path, spark)
    EpochRunner(pipeline).run()
    disk.set_read_only()
    with pytest.raises(LaminarError, match=r"minutes|lake"):
        EpochRunner(pipeline).run()
    disk.set_writable()
    ledgers = check_whole_epochs(tmp_path, pipeline.checkpoints, tmp_path / "cut", disk.folder)
    assert ledgers == (1, 1)
    check_everything(tmp_path, run_to_the_end(tmp_path, spark).checkpoints, disk.folder)
