"""Tables in files, read by SQLite and by the Delta client."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from tests.integration.proof.sinks.accounts import COLUMNS, Rows, View
from tests.integration.proof.sinks.ground import WRITES, Ground, Server


@dataclass(frozen=True)
class SqlitePlace:
    """A database file."""

    ground: Ground
    kind: str
    view: View
    server: Server | None = None

    @property
    def file(self) -> Path:
        """The database."""
        return self.ground.root / f"{self.kind}.db"

    def make(self) -> None:
        """Nothing."""

    def options(self) -> dict[str, str]:
        place = {"connector": "sqlite", "path": str(self.file), "table": "rows"}
        return place | WRITES[self.view]

    def is_commit(self, request: bytes) -> bool:
        return False

    def ledger(self) -> int:
        found = self._ask("SELECT epoch FROM _laminar_ledger WHERE pipeline = ?", self.ground.name)
        return int(found[0][0]) if found else 0

    def rows(self) -> Rows:
        return Counter(self._ask(f"SELECT {', '.join(COLUMNS[self.view])} FROM rows"))

    def _ask(self, statement: str, *values: str) -> list[tuple[Any, ...]]:
        if not self.file.exists():
            return []
        address = f"{self.file.as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=30)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
            if not {"rows", "_laminar_ledger"} <= tables:
                return []
            return database.execute(statement, values).fetchall()


@dataclass(frozen=True)
class DeltaPlace:
    """A table in a folder."""

    ground: Ground
    kind: str
    view: View
    server: Server | None = None

    @property
    def folder(self) -> Path:
        """The table."""
        return self.ground.root / self.kind

    def make(self) -> None:
        """Nothing."""

    def options(self) -> dict[str, str]:
        return {"connector": "delta", "path": str(self.folder)} | WRITES[self.view]

    def is_commit(self, request: bytes) -> bool:
        return False

    def ledger(self) -> int:
        """As the table's own log says, entry by entry: each epoch once, in order."""
        found = []
        for entry in sorted((self.folder / "_delta_log").glob("*.json")):
            actions = [json.loads(line) for line in entry.read_text().split("\n") if line]
            found += [action["txn"]["version"] for action in actions if "txn" in action]
        assert found == list(range(1, len(found) + 1))
        return len(found)

    def rows(self) -> Rows:
        if not self.ledger():
            return Counter()
        table = DeltaTable(self.folder).to_pyarrow_table()
        columns = [table.column(name).to_pylist() for name in COLUMNS[self.view]]
        return Counter(zip(*columns, strict=True))
