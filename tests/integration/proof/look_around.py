"""Tells what the process has that workers are forked from: ``main`` runs in a process of its own.

There the fork server is started anew, as the proofs start it, whatever other tests have done.
"""

from __future__ import annotations

import json
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
        """Look."""
        there = [name for name in CLIENTS if name in sys.modules]
        (self.root / "found").write_text(" ".join([str(os.getppid()), *there]))


def main(root: Path) -> None:
    """Print what a worker found, and its parent's threads and sockets."""
    start(LookAround(root)).must_finish()
    parent, *there = (root / "found").read_text().split()
    process = Path("/proc") / parent
    threads = [(task / "comm").read_text() for task in (process / "task").iterdir()]
    opened = [os.readlink(file) for file in (process / "fd").iterdir()]
    sockets = [each for each in opened if each.startswith("socket:")]
    sys.stdout.write(json.dumps({"there": there, "threads": threads, "sockets": len(sockets)}))
