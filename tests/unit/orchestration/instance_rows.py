"""What an instance of Dagster holds, counted in its tables and files rather than asked of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import dagster as dg
import sqlalchemy as sa
from dagster._core.storage.event_log import SqlEventLogStorage
from dagster._core.storage.runs import SqlRunStorage

EVENT_TABLES = ("event_logs", "asset_event_tags", "asset_check_executions", "dynamic_partitions")
RUN_TABLES = ("runs", "run_tags")


def rows(instance: dg.DagsterInstance) -> dict[str, int]:
    """How many rows each table has that grows with runs and epochs."""
    events, runs = instance.event_log_storage, instance.run_storage
    assert isinstance(events, SqlEventLogStorage)
    assert isinstance(runs, SqlRunStorage)
    with events.index_connection() as connection:
        found = {name: _count(connection, name) for name in EVENT_TABLES}
    with runs.connect() as connection:
        return {**found, **{name: _count(connection, name) for name in RUN_TABLES}}


def rows_of_runs(instance: dg.DagsterInstance, run_ids: Iterable[str]) -> dict[str, int]:
    """How many rows of each table are of some runs, existing or not."""
    events, runs = instance.event_log_storage, instance.run_storage
    assert isinstance(events, SqlEventLogStorage)
    assert isinstance(runs, SqlRunStorage)
    ids = list(run_ids)
    found: dict[str, int] = {}
    with events.index_connection() as connection:
        for name in ("event_logs", "asset_check_executions"):
            found[name] = _count(connection, name, ids)
    with runs.connect() as connection:
        for name in RUN_TABLES:
            found[name] = _count(connection, name, ids)
    return found


def files(home: Path) -> dict[str, int]:
    """The size of every file of an instance."""
    return {
        str(file.relative_to(home)): file.stat().st_size
        for file in home.rglob("*")
        if file.is_file()
    }


def _count(connection: sa.Connection, name: str, run_ids: list[str] | None = None) -> int:
    table = sa.table(name, sa.column("run_id"))
    query = sa.select(sa.func.count()).select_from(table)
    if run_ids is not None:
        query = query.where(table.c.run_id.in_(run_ids))
    return int(connection.execute(query).scalar_one())
