"""A fixture for a Spark cluster: `spark_cluster`, a master and two workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.spark_cluster import SparkMaster, SparkWorker

_WORKERS = 2


@dataclass(frozen=True)
class SparkCluster:
    """A cluster that runs.

    Attributes:
        url: For ``spark.master``.
        folder: With a folder ``worker-N`` for each worker.
    """

    url: str
    folder: Path
    workers: tuple[SparkWorker, ...]

    def executors_of(self, worker: int) -> list[Path]:
        """The folders of all executors that a worker has started."""
        return sorted((self.folder / f"worker-{worker}" / "work").glob("app-*/*"))

    def kill(self, worker: int) -> None:
        """SIGKILL a worker and its executors, now."""
        os.killpg(self.workers[worker].identity.pid, signal.SIGKILL)


@pytest.fixture
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A new one, since tests kill parts of it."""
    folder = tmp_path_factory.mktemp("spark_cluster")
    with ExitStack() as stack:
        master = stack.enter_context(SparkMaster()).start(folder / "master")
        workers = tuple(stack.enter_context(SparkWorker(master)) for _ in range(_WORKERS))
        for number, worker in enumerate(workers):
            worker.start(folder / f"worker-{number}")
        yield SparkCluster(master.url, folder, workers)
