"""Both sinks keep the contract."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable

from laminar_dagster.core.ids import PipelineName, SinkId
from laminar_dagster.core.ports import ArrowSchema, Sink
from laminar_dagster.sinks.delta.sink import DeltaSink
from laminar_dagster.sinks.sqlite.sink import SqliteSink
from laminar_dagster.testing.sink_contract import Mode, Row, SinkContract, SinkPlace, StagedRow
from tests.unit.sinks.staging import COLUMNS, encode

pytestmark = pytest.mark.slow

PIPELINE = PipelineName("clicks")


@dataclass(frozen=True)
class SqlitePlace:
    """A database file with one table for each sink."""

    path: Path

    def open(self, sink_id: SinkId, mode: Mode) -> Sink:
        return SqliteSink(
            sink_id,
            PIPELINE,
            self.path,
            f"rows of {sink_id}",
            mode=mode,
            key=("key",) if mode == "upsert" else (),
            busy_timeout=3,
        )

    def read(self, sink_id: SinkId) -> list[Row]:
        if not self.path.exists():
            return []
        with closing(sqlite3.connect(self.path, timeout=60)) as connection:
            found = connection.execute(
                "SELECT 1 FROM sqlite_master WHERE name = ?", (f"rows of {sink_id}",)
            ).fetchone()
            if not found:
                return []
            return connection.execute(f'SELECT key, value FROM "rows of {sink_id}"').fetchall()

    def encode(self, rows: Sequence[StagedRow], weights: Sequence[int] | None) -> bytes:
        return encode(rows, weights)

    def columns(self) -> ArrowSchema:
        return COLUMNS


@dataclass(frozen=True)
class DeltaPlace:
    """A folder with one Delta table for each sink."""

    folder: Path

    def open(self, sink_id: SinkId, mode: Mode) -> Sink:
        return DeltaSink(
            sink_id,
            PIPELINE,
            self.folder / sink_id,
            mode=mode,
            key=("key",) if mode == "upsert" else (),
        )

    def read(self, sink_id: SinkId) -> list[Row]:
        if not DeltaTable.is_deltatable(str(self.folder / sink_id)):
            return []
        rows = DeltaTable(str(self.folder / sink_id)).to_pyarrow_table().to_pylist()
        return [(row["key"], row["value"]) for row in rows]

    def encode(self, rows: Sequence[StagedRow], weights: Sequence[int] | None) -> bytes:
        return encode(rows, weights)

    def columns(self) -> ArrowSchema:
        return COLUMNS


class TestSqliteSink(SinkContract):
    rows = 2000

    @pytest.fixture
    def place(self, tmp_path: Path) -> SinkPlace:
        return SqlitePlace(tmp_path / "warehouse.db")


class TestDeltaSink(SinkContract):
    rows = 1000

    @pytest.fixture
    def place(self, tmp_path: Path) -> SinkPlace:
        return DeltaPlace(tmp_path / "tables")
