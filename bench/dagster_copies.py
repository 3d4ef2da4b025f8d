"""An instance with very many epochs: the rows of one real epoch, copied with other numbers.

Copied within the database, in the benchmark alone: to run 20,000 epochs would take a day.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

# What grows with epochs and what the pages read, by file. Events come before what names them.
_TABLES: Final = {
    "history/runs.db": ("runs", "run_tags"),
    "history/runs/index.db": (
        "event_logs",
        "asset_event_tags",
        "asset_check_executions",
        "dynamic_partitions",
    ),
}
_EVENT_COLUMNS: Final = (
    "event_id",
    "evaluation_event_storage_id",
    "materialization_event_storage_id",
)
_AT_ONCE: Final = 200


def copy_epoch(home: Path, partition: str, run_ids: Sequence[str], epochs: int) -> None:
    """Fill an instance on SQLite that nobody has open.

    Args:
        home: Its ``DAGSTER_HOME``; holds one epoch.
        partition: The key of that epoch.
        run_ids: Its runs.
        epochs: How many there are to be afterwards.
    """
    for file, names in _TABLES.items():
        engine = sa.create_engine(f"sqlite:///{home / file}")
        sa.event.listen(engine, "connect", _hurry)
        with engine.begin() as connection:
            found = sa.MetaData()
            copied = [_Copied(connection, sa.Table(n, found, autoload_with=engine)) for n in names]
            for number in range(1, epochs + 1):
                key = f"{number:0{len(partition)}d}"
                if key == partition:
                    continue
                others = {
                    partition: key,
                    **{run_id: str(uuid.uuid5(uuid.UUID(run_id), key)) for run_id in run_ids},
                }
                events: dict[int, int] = {}
                for table in copied:
                    table.add(others, events)
            for table in copied:
                table.write()
        engine.dispose()


class _Copied:
    """One table, and the copies of its rows that are not written yet."""

    def __init__(self, connection: sa.Connection, table: sa.Table) -> None:
        self._connection, self._table = connection, table
        self._rows = [dict(row) for row in connection.execute(sa.select(table)).mappings()]
        self._last = max((row["id"] for row in self._rows), default=0)
        self._waiting: list[dict[str, Any]] = []

    def add(self, others: dict[str, str], events: dict[int, int]) -> None:
        """Copy every row, with other names in it; note which event became which."""
        for row in self._rows:
            self._last += 1
            copy = {**_renamed(row, others), "id": self._last}
            for name in _EVENT_COLUMNS:
                if copy.get(name) is not None:
                    copy[name] = events.get(copy[name], copy[name])
            if self._table.name == "event_logs":
                events[row["id"]] = self._last
            self._waiting.append(copy)
        if len(self._waiting) >= _AT_ONCE * len(self._rows):
            self.write()

    def write(self) -> None:
        """Insert what waits."""
        if self._waiting:
            self._connection.execute(self._table.insert(), self._waiting)
        self._waiting = []


def _hurry(connection: Any, _record: object) -> None:
    """Nobody would miss a copy that is cut short."""
    for setting in ("synchronous = OFF", "cache_size = -200000"):
        connection.execute(f"PRAGMA {setting}")


def _renamed(row: dict[str, Any], others: dict[str, str]) -> dict[str, Any]:
    return {
        name: _replaced(value, others) if isinstance(value, str) else value
        for name, value in row.items()
    }


def _replaced(text: str, others: dict[str, str]) -> str:
    for old, new in others.items():
        text = text.replace(old, new)
    return text


def run_ids_of(home: Path) -> Iterator[str]:
    """The runs that an instance holds."""
    engine = sa.create_engine(f"sqlite:///{home / 'history/runs.db'}")
    with engine.connect() as connection:
        yield from connection.execute(sa.text("SELECT run_id FROM runs")).scalars()
    engine.dispose()
