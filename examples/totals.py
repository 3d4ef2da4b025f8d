"""A small pipeline of one's own: a source of numbers, an engine, and a sink on SQLite.

The engine and the source come from ``laminar_dagster.testing``. The sink shows what it takes to
write one: a transaction that checks the ledger, publishes the rows, and moves the ledger.
"""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path

from laminar_dagster.core.errors import LedgerMismatch
from laminar_dagster.core.ids import EpochNumber, PipelineName, SinkId
from laminar_dagster.core.ports import Admission, ObjectStore, StagedOutput
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.testing.memory_pipeline import MemoryEngine, MemoryLog, MemorySource

RECORDS_PER_EPOCH = 400


class TotalsSink:
    """Appends to a table of SQLite, exactly once."""

    def __init__(self, path: Path) -> None:
        """Open the database, and make its tables if there are none."""
        self.sink_id = SinkId("totals")
        self._path = path
        with closing(self._connect()) as database, database:
            database.execute(
                "CREATE TABLE IF NOT EXISTS totals"
                " (partition INTEGER, position INTEGER, value INTEGER, total INTEGER)"
            )
            database.execute("CREATE TABLE IF NOT EXISTS ledger (epoch INTEGER)")

    def ledger(self) -> EpochNumber | None:
        """The last epoch that is in the table."""
        with closing(self._connect()) as database:
            row = database.execute("SELECT epoch FROM ledger").fetchone()
        return EpochNumber(row[0]) if row else None

    def commit(self, epoch: EpochNumber, staged: StagedOutput) -> None:
        """Rows and ledger in one transaction."""
        rows = [row for file in staged.entry.files for row in json.loads(staged.read(file))]
        with closing(self._connect()) as database, database:
            database.execute("BEGIN IMMEDIATE")
            found = database.execute("SELECT epoch FROM ledger").fetchone()
            stands = found[0] if found else staged.entry.joined_at - 1
            if stands == epoch:
                return
            if stands != epoch - 1:
                raise LedgerMismatch(self.sink_id, epoch, stands)
            database.executemany("INSERT INTO totals VALUES (?, ?, ?, ?)", rows)
            database.execute("DELETE FROM ledger")
            database.execute("INSERT INTO ledger VALUES (?)", (epoch,))

    def rows(self) -> list[tuple[int, ...]]:
        """The whole table."""
        with closing(self._connect()) as database:
            query = "SELECT partition, position, value, total FROM totals ORDER BY 1, 2"
            return database.execute(query).fetchall()

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, timeout=30, isolation_level=None)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        return database


def numbers(records: int) -> MemoryLog:
    """The same numbers in every process."""
    chance = random.Random(7)
    return MemoryLog([[chance.randint(-99, 99) for _ in range(records)] for _ in range(4)])


def build(store: ObjectStore, log: MemoryLog, sink: TotalsSink) -> Pipeline:
    """The pipeline ``demo``."""
    return Pipeline(
        name=PipelineName("demo"),
        fingerprint="totals-1",
        checkpoints=CheckpointStore(store),
        engine=MemoryEngine(store, log),
        sources=(MemorySource(log),),
        sinks=(sink,),
        limits=Admission(max_records=RECORDS_PER_EPOCH),
    )
