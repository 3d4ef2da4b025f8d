"""Starting workers, and learning how they ended.

Workers are forked from a server process that has imported Spark's client and everything else, and
has opened nothing: a worker is there in milliseconds, and as new as any other process.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import TYPE_CHECKING, Final

from infra.process import tail
from tests.integration.proof.worker import NAMED_ERROR, AnyJob, main

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

# By SIGKILL; by the kernel, for a forbidden system call.
KILLED = (-signal.SIGKILL, -signal.SIGSYS)


@dataclass(frozen=True)
class Worker:
    """A worker that runs, or has ended."""

    process: BaseProcess
    log: Path

    def wait(self, seconds: float = 240) -> int:
        """How it ended: the exit code, or minus the signal."""
        self.process.join(seconds)
        code = self.process.exitcode
        if code is None:
            self.process.kill()
            self.process.join()
            raise AssertionError(f"it did not end within {seconds:g} s:\n{tail(self.log, 40)}")
        return code

    def kill(self) -> None:
        """SIGKILL, now; returns when it is gone."""
        self.process.kill()
        self.must_be_killed()

    def stop(self) -> None:
        """SIGSTOP: it stands still, with all its connections open."""
        assert self.process.pid
        os.kill(self.process.pid, signal.SIGSTOP)

    def wake(self) -> None:
        """SIGCONT."""
        assert self.process.pid
        os.kill(self.process.pid, signal.SIGCONT)

    def must_be_killed(self) -> None:
        """Wait for its death at the place that was chosen."""
        code = self.wait()
        assert code in KILLED, f"it ended with {code}, and was to be killed:\n{tail(self.log, 40)}"

    def must_finish_or_fail(self, *kinds: str) -> None:
        """Wait for its end: orderly, or with one of these named errors."""
        if self.wait() != 0:
            self.must_fail(*kinds)

    def must_fail(self, *kinds: str) -> None:
        """Wait for its end with one of these named errors."""
        code = self.wait()
        assert code == NAMED_ERROR, f"it ended with {code}:\n{tail(self.log, 40)}"
        kind = json.loads((self.log.with_name("error.json")).read_text())["kind"]
        assert kind in kinds, f"it ended with {kind}:\n{tail(self.log, 40)}"

    def must_finish(self) -> None:
        """Wait for its orderly end."""
        code = self.wait()
        assert code == 0, f"it ended with {code}:\n{tail(self.log, 40)}"


def start(job: AnyJob) -> Worker:
    """Start a worker."""
    log = job.root / "worker.log"
    process = forkserver().Process(target=main, args=(job, log), daemon=True)
    process.start()
    return Worker(process, log)


# Without all of these a worker imports them each time. The first epochs of one take 0.22 s of the
# processor instead of 0.29 s on a local store, and 0.64 s instead of 0.87 s on S3.
_IMPORTED: Final = (
    "boto3.s3.inject",
    "botocore.handlers",
    "confluent_kafka",
    "deltalake",
    "laminar_dagster.sinks.delta.sink",
    "laminar_dagster.sinks.formats.json",
    "laminar_dagster.sinks.kafka.sink",
    "laminar_dagster.sinks.mysql.sink",
    "laminar_dagster.sinks.postgres.sink",
    "laminar_dagster.sinks.sqlite.sink",
    "laminar_dagster.sources.file.source",
    "laminar_dagster.sources.kafka.source",
    "laminar_dagster.spark.engine",
    "laminar_dagster.stores.s3",
    "laminar_dagster.stores.s3_client",
    "pandas",
    "psycopg",
    "pyarrow.dataset",
    "pymysql",
    "pyspark.sql.connect.session",
    "tests.integration.proof.sinks.job",
    "tests.integration.proof.worker",
)


def forkserver() -> ForkServerContext:
    """Where processes come from. The server reads the list of modules once, when it starts."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_IMPORTED])
    ensure_running()
    return context
