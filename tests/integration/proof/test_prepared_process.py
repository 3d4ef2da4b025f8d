"""Workers are forked from a process that has imported everything, and has opened nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.proof.processes import start

# Whose handles do not survive a fork: a worker has to make its own.
CLIENTS = ("confluent_kafka", "psycopg", "pymysql", "boto3", "deltalake", "pyspark")


@dataclass(frozen=True)
class LookAround:
    """Writes down the parent of a worker, and which clients were there when it began."""

    root: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self) -> None:
        there = [name for name in CLIENTS if name in sys.modules]
        (self.root / "found").write_text(" ".join([str(os.getppid()), *there]))


def test_it_has_every_client_and_no_handle_of_any(tmp_path: Path) -> None:
    start(LookAround(tmp_path)).must_finish()
    parent, *there = (tmp_path / "found").read_text().split()
    assert there == [*CLIENTS]
    process = Path("/proc") / parent
    threads = [(task / "comm").read_text() for task in (process / "task").iterdir()]
    assert not [name for name in threads if name.startswith(("rdk:", "grpc", "tokio"))]
    opened = [os.readlink(file) for file in (process / "fd").iterdir()]
    # Its own one, at which it is asked for workers.
    assert len([each for each in opened if each.startswith("socket:")]) == 1
