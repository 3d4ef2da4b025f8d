"""A pipeline with real checkpoints on a local disk, and ways to damage them."""

from __future__ import annotations

import json
import os
import shutil
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from laminar_dagster.cli.main import cli
from laminar_dagster.core import layout
from laminar_dagster.core.document import FORMAT_VERSION
from laminar_dagster.core.ids import CheckpointId, EpochNumber, PipelineName
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.ports import Reference
from laminar_dagster.core.prepared import AttemptRecord
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.clock import SystemClock, mint_checkpoint_id
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.stores.local import LocalStore
from laminar_dagster.testing.memory_pipeline import (
    MemoryEngine,
    MemoryLog,
    MemorySink,
    MemorySource,
    MemoryTable,
)


class ClockOf2026(SystemClock):
    """Stands still, a minute before midday on the first of January 2026."""

    def now(self) -> datetime:
        return datetime(2026, 1, 1, 11, 59, tzinfo=UTC)


@dataclass
class History:
    """A store, the pipeline that writes to it, and the ids of its checkpoints by epoch."""

    root: Path
    log: MemoryLog = field(default_factory=MemoryLog)
    table: MemoryTable = field(default_factory=MemoryTable)
    ids: dict[int, CheckpointId] = field(default_factory=dict)
    tables: tuple[Reference, ...] = ()

    @property
    def checkpoints(self) -> CheckpointStore:
        return CheckpointStore(LocalStore(self.root))

    def pipeline(self) -> Pipeline:
        store = LocalStore(self.root)
        return Pipeline(
            name=PipelineName("clicks"),
            fingerprint="code-1",
            checkpoints=CheckpointStore(store),
            engine=MemoryEngine(store, self.log),
            sources=(MemorySource(self.log),),
            sinks=(MemorySink(self.table),),
            references=self.tables,
            clock=ClockOf2026(),
            # Nothing goes unless the test asks for it.
            collect_every=10**6,
        )

    def arrive(self) -> None:
        """More input."""
        self.log.partitions[0].extend((3, 4, 5))
        self.log.partitions[1].append(7)

    def run(self, epochs: int) -> History:
        pipeline = self.pipeline()
        for _ in range(epochs):
            self.arrive()
            report = EpochRunner(pipeline).run()
            self.ids[report.epoch] = report.checkpoint_id
        return self

    def copy(self, root: Path) -> History:
        """The same history at another place."""
        shutil.copytree(self.root, root)
        return History(root, deepcopy(self.log), deepcopy(self.table), dict(self.ids))

    def attempt(self, epoch: int) -> CheckpointId:
        """Leave an attempt that was killed before it won."""
        checkpoint = mint_checkpoint_id()
        self.checkpoints.begin_attempt(
            AttemptRecord(
                version=FORMAT_VERSION,
                epoch=EpochNumber(epoch),
                checkpoint_id=checkpoint,
                started_at=datetime.now(UTC),
            )
        )
        return checkpoint

    def manifest(self, epoch: int) -> CheckpointManifest:
        found = self.checkpoints.manifest(self.ids[epoch])
        assert found is not None
        return found

    def path(self, epoch: int, name: str) -> Path:
        """A file in the folder of an epoch's checkpoint."""
        return self.root / layout.checkpoint_folder(self.ids[epoch]) / name

    def flip(self, epoch: int, name: str) -> None:
        """Change one bit in the middle of a file."""
        flip_bit(self.path(epoch, name))

    def files(self) -> set[str]:
        """Every object there is, whatever the store itself says."""
        return {
            path.relative_to(self.root).as_posix()
            for path in self.root.rglob("*")
            if path.is_file() and not path.relative_to(self.root).as_posix().startswith(".")
        }


def flip_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@dataclass
class Laminar:
    """The command, run in this process."""

    store: str | None = None
    before: tuple[str, ...] = ()

    def __call__(self, *args: str) -> Result:
        given = ["--store", self.store] if self.store is not None else []
        result = CliRunner().invoke(cli, [*self.before, *args, *given])
        assert isinstance(result.exception, SystemExit | None)
        return result

    def json(self, *args: str, exit_code: int = 0) -> Any:
        """The one document that a command prints."""
        result = self(*args, "--json")
        assert result.exit_code == exit_code, result.output
        return json.loads(result.stdout)

    def error(self, *args: str, exit_code: int) -> dict[str, Any]:
        """The error of a command, the same for people and for programs."""
        error: dict[str, Any] = self.json(*args, exit_code=exit_code)["error"]
        assert error["exit_code"] == exit_code
        human = self(*args)
        assert human.exit_code == exit_code
        assert human.stdout == ""
        assert human.stderr.splitlines()[0].startswith(f"error[{error['kind']}]: ")
        assert ("\n  hint: " in human.stderr) == bool(error["hint"])
        return error


def older(path: Path, by: timedelta) -> None:
    """Make a file look as if it had been written earlier."""
    moment = path.stat().st_mtime - by.total_seconds()
    os.utime(path, (moment, moment))


@dataclass
class Project:
    """A project's folder with the pipeline ``clicks``, and the command run on it."""

    root: Path

    @property
    def folder(self) -> Path:
        """Of the pipeline."""
        return self.root / "dbt_like_configs" / "clicks"

    @property
    def store(self) -> Path:
        return self.root / ".laminar" / "clicks" / "store"

    @property
    def laminar(self) -> Laminar:
        return Laminar(before=("--project", str(self.root)))

    def history(self, epochs: int) -> History:
        """Epochs of a pipeline in memory, in this project's store."""
        return History(self.store).run(epochs)

    def edit(self, file: str, old: str, new: str) -> None:
        """Change a file of the pipeline's."""
        path = self.folder / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def files(self) -> set[str]:
        """Everything there is."""
        return {path.relative_to(self.root).as_posix() for path in self.root.rglob("*")}
