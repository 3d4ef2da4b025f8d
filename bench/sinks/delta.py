"""Delta Lake, beside ``write_deltalake``, which flushes nothing to the disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from bench.sinks.place import PIPELINE, Peer
from bench.sinks.rows import SINK
from laminar_dagster.core.ports import Sink
from laminar_dagster.sinks.delta.sink import DeltaSink


@dataclass(frozen=True)
class DeltaPlace:
    """A folder with a table for each."""

    folder: Path

    name = "sink-delta/append"
    title = "Delta, append"
    replaces = False
    # Its commit is told when the last row is handed over: the file is still to be written.
    commit_limit = None

    def sink(self) -> Sink:
        """See ``Place``."""
        return DeltaSink(SINK, PIPELINE, self.folder / SINK)

    def prepare(self, *names: str) -> None:
        """See ``Place``."""
        schema = DeltaTable(str(self.folder / SINK)).schema()
        for name in names:
            DeltaTable.create(str(self.folder / name), schema)

    def peers(self, rows: pa.Table) -> tuple[Peer, ...]:
        """See ``Place``."""
        path = str(self.folder / "plain")
        return (
            Peer(
                "plain",
                "deltalake: write_deltalake, not flushed",
                lambda: write_deltalake(path, rows, mode="append"),
            ),
        )

    def count(self, name: str) -> int:
        """See ``Place``."""
        return int(DeltaTable(str(self.folder / name)).count())

    def bare_begins(self, times: int) -> tuple[float, ...]:
        """See ``Place``. A client has nothing to begin."""
        return ()

    def plain_rollback(self, rows: pa.Table) -> float | None:
        """See ``Place``. What is not in the log is not there."""
        return None
