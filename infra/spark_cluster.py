"""A Spark cluster: a master and workers, each a process of its own, whose executors are others.

A session on ``local[*]`` keeps driver, scheduler and executors in one process. On a cluster
everything that an executor is given is sent to it, and an executor can die alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from infra.ports import LOOPBACK
from infra.service import Endpoint, Launch, Service
from infra.spark_home import java_home, spark_home

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


@dataclass(frozen=True, slots=True)
class SparkEndpoint(Endpoint):
    """Where a master or a worker listens.

    Attributes:
        log: Its log.
    """

    log: Path = field(repr=False)

    @property
    def url(self) -> str:
        """What ``spark.master`` takes, of a master."""
        return f"spark://{self.host}:{self.port}"


class _SparkProcess(Service[SparkEndpoint]):
    """A process of the cluster, which listens on loopback alone and tells its log how it is."""

    ready_within: ClassVar[float] = 60.0

    def install(self) -> None:
        """Find pyspark and Java."""
        spark_home(self.name)
        java_home(self.name)

    def _launched(self, data_dir: Path, port: int, main: str, *rest: str) -> Launch[SparkEndpoint]:
        """Run one of Spark's classes; its page for people is on any free port."""
        home = spark_home(self.name)
        ports = ("--host", LOOPBACK, "--port", str(port), "--webui-port", "0")
        return Launch(
            command=[str(home / "bin" / "spark-class"), main, *ports, *rest],
            environment={
                "JAVA_HOME": str(java_home(self.name)),
                "SPARK_HOME": str(home),
                # Also the pages for people are for this machine alone.
                "SPARK_LOCAL_IP": LOOPBACK,
                "SPARK_DAEMON_MEMORY": "256m",
            },
            endpoint=SparkEndpoint(LOOPBACK, port, data_dir / f"{self.name}.log"),
        )


class SparkMaster(_SparkProcess):
    """Knows the workers, and gives applications executors on them."""

    name: ClassVar[str] = "spark_master"

    def launch(self, data_dir: Path, port: int) -> Launch[SparkEndpoint]:
        """Listen for workers and applications."""
        return self._launched(data_dir, port, _MASTER)

    def is_ready(self, endpoint: SparkEndpoint) -> bool:
        """Ask the log whether this master has the port, and has work to give."""
        log = endpoint.log.read_text(errors="replace")
        return f"Starting Spark master at {endpoint.url}" in log and "New state: ALIVE" in log


class SparkWorker(_SparkProcess):
    """Starts executors when its master says so."""

    name: ClassVar[str] = "spark_worker"

    def __init__(self, master: SparkEndpoint, *, cores: int = 1, memory: str = "1g") -> None:
        """Create a worker that is not running.

        Args:
            master: Whose it is.
            cores: How many tasks its executors may do at a time.
            memory: For its executors.
        """
        super().__init__()
        self._master = master
        self._size = ("--cores", str(cores), "--memory", memory)

    def launch(self, data_dir: Path, port: int) -> Launch[SparkEndpoint]:
        """Join the master; what executors write is in ``work`` below the folder."""
        folder = ("--work-dir", str(data_dir / "work"))
        return self._launched(data_dir, port, _WORKER, *self._size, *folder, self._master.url)

    def is_ready(self, endpoint: SparkEndpoint) -> bool:
        """Ask the log whether the master knows it."""
        log = endpoint.log.read_text(errors="replace")
        is_own = f"Starting Spark worker {endpoint.host}:{endpoint.port}" in log
        return is_own and "Successfully registered with master" in log
