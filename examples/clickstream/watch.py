"""The store and the sinks, looked at from outside while a worker writes to them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable

from laminar_dagster.config.project import load_pipeline
from laminar_dagster.core import layout
from laminar_dagster.core.ids import CheckpointId, EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.ports import StagedOutput
from laminar_dagster.runtime.assembly import build_sink, known_connectors
from laminar_dagster.runtime.checked_files import read_verified
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.survey import survey
from laminar_dagster.sinks.staged import staged_tables
from laminar_dagster.stores.url import open_store

PIPELINE: Final = "clickstream"


@dataclass(frozen=True, slots=True)
class Look:
    """What stood where, at one moment.

    Attributes:
        confirmed: The epoch that ``_latest`` points at; 0 before the first.
        epoch: The epoch after it, which may not have begun.
        planned: Whether that has a plan.
        attempt: The folder of its first attempt, if there is one, with the number of its files.
        winner: The attempt that is to become its checkpoint, if that is decided.
        manifest: Its manifest, if it is written.
        ledgers: The last epoch of each sink, by name. Empty unless there is a manifest.
    """

    confirmed: int
    epoch: int
    planned: bool = False
    attempt: tuple[CheckpointId, int] | None = None
    winner: CheckpointId | None = None
    manifest: CheckpointManifest | None = None
    ledgers: tuple[tuple[str, int], ...] = ()

    @property
    def is_computing(self) -> bool:
        """Somebody has begun it, and nobody has won it."""
        return self.attempt is not None and self.winner is None

    def having(self, epoch: int) -> tuple[str, ...]:
        """The sinks whose ledger is at an epoch."""
        return tuple(name for name, stands in self.ledgers if stands == epoch)

    @property
    def is_half_committed(self) -> bool:
        """The manifest is written; one sink has the epoch, and another has not."""
        return 0 < len(self.having(self.epoch)) < len(self.ledgers)


class Watch:
    """Looks, and changes nothing."""

    def __init__(self, project: Path) -> None:
        """Read the pipeline's files; nothing is opened.

        Raises:
            ConfigError: They have a mistake.
        """
        folder = project / "dbt_like_configs" / PIPELINE
        model = load_pipeline(folder, connectors=known_connectors())
        self.max_records = model.config.epoch.max_records
        self._store = project / model.config.store
        self._checkpoints = CheckpointStore(open_store(model.config.store, project))
        self._sinks = tuple(build_sink(table, project, model.config.name) for table in model.sinks)

    def look(self) -> Look:
        """How far it is now."""
        standing = survey(self._checkpoints)
        confirmed = int(standing.confirmed)
        if not standing.epochs:
            return Look(confirmed, confirmed + 1)
        found = standing.epochs[0]
        return Look(
            confirmed,
            confirmed + 1,
            planned=found.planned,
            attempt=None if found.prepared else self._attempt(found.epoch),
            winner=found.prepared.checkpoint_id if found.prepared else None,
            manifest=found.manifest,
            ledgers=self.ledgers() if found.manifest else (),
        )

    def ledgers(self) -> tuple[tuple[str, int], ...]:
        """The last epoch of each sink; 0 before the first."""
        return tuple((str(sink.sink_id), int(sink.ledger() or 0)) for sink in self._sinks)

    def manifests(self) -> list[CheckpointManifest]:
        """Of every epoch, from the first on, as long as none is missing."""
        found: list[CheckpointManifest] = []
        while prepared := self._checkpoints.prepared(EpochNumber(len(found) + 1)):
            manifest = self._checkpoints.manifest(prepared.checkpoint_id)
            if manifest is None:
                break
            found.append(manifest)
        return found

    def staged(self, manifest: CheckpointManifest, sink: str) -> pa.Table | None:
        """The rows that an epoch put out for a sink; None if there are none."""
        (entry,) = (each for each in manifest.sinks if each.sink_id == sink)
        objects = self._checkpoints.objects
        staged = StagedOutput(
            entry,
            lambda file: read_verified(
                objects,
                layout.checkpoint_key(manifest.checkpoint_id, file.path),
                file.size_bytes,
                file.sha256,
            ),
        )
        tables = list(staged_tables(staged))
        return pa.concat_tables(tables) if tables else None

    def _attempt(self, epoch: EpochNumber) -> tuple[CheckpointId, int] | None:
        """The newest attempt at an epoch, and how many files it has besides its record."""
        attempts = self._checkpoints.attempts(self._checkpoints.checkpoint_ids())
        mine = [each for each, of_epoch in attempts.items() if of_epoch == epoch]
        if not mine:
            return None
        newest = max(mine)
        folder = self._store / "checkpoints" / newest
        files = [each for each in folder.rglob("*") if each.is_file()]
        return newest, len(files) - 1


def delta_epochs(folder: Path, sink: str) -> list[int]:
    """The epochs that a Delta table's history names, oldest first, each as often as it does."""
    application = f"laminar:{PIPELINE}:{sink}"
    table = DeltaTable(folder)
    return [
        version
        for each in range(table.version() + 1)
        if (version := DeltaTable(folder, version=each).transaction_version(application))
    ]


@contextmanager
def write_lock(database: Path) -> Iterator[None]:
    """Hold SQLite's write lock, as a backup or a long statement of somebody else would."""
    connection = sqlite3.connect(database, timeout=60, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
    finally:
        connection.close()
