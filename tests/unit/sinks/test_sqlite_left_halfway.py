"""A database in which somebody died while writing: only who may write can put it right."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from laminar_dagster.core.ids import EpochNumber, PipelineName
from laminar_dagster.sinks.sqlite.sink import SqliteSink
from tests.unit.sinks.staging import SINK, staged

ROWS = pa.table({"k": ["a"], "v": pa.array([1], pa.int64())})
DIE = """
import os, signal, sqlite3, sys
writer = sqlite3.connect(sys.argv[1], isolation_level=None)
writer.execute("PRAGMA journal_mode = DELETE")
writer.execute("PRAGMA cache_size = 1")
writer.execute("BEGIN IMMEDIATE")
writer.executemany("INSERT INTO t VALUES (?, ?)", [("x" * 500 + str(n), n) for n in range(3000)])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def left_halfway(tmp_path: Path) -> SqliteSink:
    path = tmp_path / "out.db"
    sink = SqliteSink(SINK, PipelineName("clicks"), path, "t", mode="upsert", key=("k",))
    sink.commit(EpochNumber(1), staged(ROWS))
    subprocess.run([sys.executable, "-c", DIE, str(path)], check=False)
    assert path.with_name("out.db-journal").exists()
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as reader:
        with pytest.raises(sqlite3.OperationalError):
            reader.execute("SELECT * FROM t").fetchall()
    return sink


def test_a_look_rolls_it_back(left_halfway: SqliteSink, tmp_path: Path) -> None:
    assert left_halfway.ledger() == EpochNumber(1)
    left_halfway.check(ROWS.schema)
    with closing(sqlite3.connect(tmp_path / "out.db")) as database:
        assert database.execute("SELECT * FROM t").fetchall() == [("a", 1)]


def test_the_next_epoch_is_committed(left_halfway: SqliteSink) -> None:
    left_halfway.commit(EpochNumber(2), staged(ROWS))
    assert left_halfway.ledger() == EpochNumber(2)
