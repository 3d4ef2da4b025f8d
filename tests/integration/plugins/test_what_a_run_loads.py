"""An epoch from files to SQLite loads no client of another system."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.plugins.loaded_modules import modules_of
from tests.unit.plugins.test_what_is_loaded import TO_SQLITE, systems, write_pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# As in tests/unit/plugins/test_what_is_loaded.py, of the process that drives Spark: 323, and a few.
RUN = 330


def test_a_run_loads_what_the_pipeline_names(tmp_path: Path) -> None:
    write_pipeline(tmp_path, "clicks", TO_SQLITE)
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "a").write_text('{"n": 7, "ts": "2026-01-01T00:00:00Z"}\n')
    loaded = modules_of(tmp_path, "run", "--epochs", "1")
    with closing(sqlite3.connect(tmp_path / "out.db")) as connection:
        assert connection.execute("SELECT n FROM kept").fetchall() == [(7,)]
    assert not loaded.clients
    assert not {"sources.kafka", "sinks.kafka", "clients.kafka", "sinks.delta"} & systems(loaded)
    assert "dagster" not in loaded.names
    assert len(loaded.ours) <= RUN, len(loaded.ours)
