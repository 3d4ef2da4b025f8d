"""A process that copies the tables of a source, and is killed at a chosen write to the store."""

from __future__ import annotations

import multiprocessing
import signal
from multiprocessing.forkserver import ensure_running
from multiprocessing.process import BaseProcess
from pathlib import Path

from laminar_dagster.config.model import SourceTable
from laminar_dagster.core.ports import ObjectStore, Snapshotting, Source
from laminar_dagster.plugins.declarations import SourceConnector, SourceContext
from laminar_dagster.plugins.registry import find
from laminar_dagster.runtime.snapshots import StoredSnapshots
from laminar_dagster.stores.local import LocalStore
from laminar_dagster.testing.crash import KillingStore


def open_source(table: SourceTable, store: ObjectStore) -> Source:
    """As a process that has just begun opens it."""
    keeper = StoredSnapshots(store, table.source_id)
    connector = find(SourceConnector, table.connector, str(table.place))
    return connector.build(table, SourceContext(Path(), {}, keeper))


def start_copy(table: SourceTable, root: Path, nth: int) -> BaseProcess:
    """Copy in a process of its own that dies.

    Args:
        table: Of the source.
        root: Of the store.
        nth: Before which write it dies; if it gets that far, after it has described the copy.
    """
    hits = root.with_name(f"{root.name}-{nth}")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    ensure_running()
    process = context.Process(target=_copy, args=(table, root, nth, hits), daemon=True)
    process.start()
    return process


def must_be_killed(process: BaseProcess) -> None:
    """Wait for its death at the place that was chosen."""
    process.join(120)
    assert process.exitcode == -signal.SIGKILL


def _copy(table: SourceTable, root: Path, nth: int, hits: Path) -> None:
    (hits / "any").mkdir(parents=True)
    (hits / "last").mkdir()
    whole = KillingStore(LocalStore(root), r"/snapshot\.json$", 1, "after", hits / "last", None)
    source = open_source(table, KillingStore(whole, "", nth, "before", hits / "any", None))
    assert isinstance(source, Snapshotting)
    source.prepare(None, ())
