"""A table that changes, a pipeline that mirrors it, and a worker that is killed in between."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.survey import survey
from laminar_dagster.stores.local import LocalStore
from tests.integration.proof.kill_points import KillPoint
from tests.integration.proof.processes import start
from tests.integration.proof.published import manifests_of
from tests.integration.proof.stream import Layout, write_pipeline
from tests.integration.proof.worker import Job

Rows = set[tuple[Any, ...]]


def kill_while_the_table_changes(
    root: Path,
    spark: dict[str, str],
    layout: Layout,
    kill: tuple[int, KillPoint],
    write: Callable[[], None],
    live: Callable[[], Rows],
    published: Callable[[], Rows],
) -> None:
    """Kill a worker while others write; let others go on until the mirror equals the table.

    Args:
        root: Where the project is laid out.
        spark: The environment of the workers.
        layout: The pipeline.
        kill: The epoch, and the point in it.
        write: Changes the table.
        live: What the table holds.
        published: What the sink holds.
    """
    write_pipeline(root, layout)
    writing = Thread(target=write)
    writing.start()
    start(Job(root, spark, kill=kill, epochs=kill[0])).must_be_killed()
    writing.join()
    checkpoints = CheckpointStore(LocalStore(root / "state"))
    for _ in range(40):
        start(Job(root, spark, epochs=1)).must_finish()
        if not survey(checkpoints).unfinished and published() == live():
            break
    assert published() == live()
    for manifest in manifests_of(checkpoints):
        assert manifest.counts.is_balanced
        assert manifest.counts.dead_lettered == 0


def rows_in(file: Path, statement: str) -> Rows:
    """What a table of SQLite holds; nothing if there is none yet."""
    if not file.exists():
        return set()
    with closing(sqlite3.connect(file)) as connection:
        return set(connection.execute(statement).fetchall())
