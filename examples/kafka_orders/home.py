"""The folder of the demo: a project like any other, and the broker's data beside it."""

from __future__ import annotations

import fcntl
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from examples.kafka_orders.processes import SCRATCH
from examples.kafka_orders.verdict import Record
from examples.kafka_orders.watch import PIPELINE

_PIPELINE_FILES: Final = Path(__file__).with_name(PIPELINE)
_ADDRESS: Final = "127.0.0.1:9092"
_MARK: Final = ".kafka-demo"
_SHOWN: Final = ("sources.sql", "models/product_sales.sql", "sinks.sql")


class FolderRefused(Exception):
    """The folder belongs to somebody else, or another demo is at work in it."""


@dataclass(frozen=True, slots=True)
class Home:
    """Where everything is."""

    folder: Path

    @property
    def broker(self) -> Path:
        """Kafka's own."""
        return self.folder / "broker"

    @property
    def config(self) -> Path:
        """The pipeline's files."""
        return self.folder / "dbt_like_configs" / PIPELINE

    @property
    def scratch(self) -> Path:
        """For temporary files."""
        return self.folder.absolute() / SCRATCH

    @property
    def topic(self) -> Path:
        """A copy of all records."""
        return self.folder / "topic.parquet"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have the folder for oneself.

        Raises:
            FolderRefused: Another demo has it.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        lock = self.folder.with_name(f"{self.folder.name}.lock")
        with lock.open("a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FolderRefused(
                    f"another demo is at work in {self.folder}: wait for it, or give --folder"
                ) from None
            yield

    def clear(self) -> None:
        """Begin anew.

        Raises:
            FolderRefused: It holds something that no demo made.
        """
        if self.folder.exists():
            if any(self.folder.iterdir()) and not (self.folder / _MARK).exists():
                raise FolderRefused(f"{self.folder} holds files that are not the demo's")
            self.remove()
        self.folder.mkdir()
        (self.folder / _MARK).touch()
        (self.folder / "logs").mkdir()
        self.scratch.mkdir()

    def remove(self) -> None:
        """All of it."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def write_project(self, servers: str) -> None:
        """The pipeline, with the broker's address."""
        shutil.copytree(_PIPELINE_FILES, self.config)
        sources = self.config / "sources.sql"
        sources.write_text(sources.read_text("utf-8").replace(_ADDRESS, servers), "utf-8")

    def statements(self) -> str:
        """The pipeline's SQL, without the comments."""
        texts = [(self.config / name).read_text("utf-8") for name in _SHOWN]
        return "\n".join(re.sub(r"^\s*--.*\n", "", text, flags=re.M) for text in texts).strip()

    def write_record(self, record: Record) -> None:
        """For a later look."""
        (self.folder / "demo.json").write_bytes(msgspec.json.encode(record))

    def read_record(self) -> Record:
        """Of the run that left the folder.

        Raises:
            FolderRefused: There is none.
        """
        path = self.folder / "demo.json"
        if not path.exists():
            raise FolderRefused(
                f"there is no {path}: run `make kafka-demo KAFKA_DEMO_ARGS=--keep` first"
            )
        return msgspec.json.decode(path.read_bytes(), type=Record)
