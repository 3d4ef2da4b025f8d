"""A Spark session made for epochs: small, warm, in UTC."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from laminar_dagster.spark.java_process import ignore_stop_signals

SessionFactory = Callable[[], SparkSession]

# The one that this process has: threads other than the one that opened it have none of their own.
_opened: Final[list[SparkSession]] = []

# By name: it is a program of its own.
WORKER_DAEMON: Final = "laminar_dagster.spark.worker_daemon"

_DEFAULTS: Final[Mapping[str, str]] = {
    "spark.master": "local[*]",
    "spark.app.name": "laminar",
    # A resident process has no use for a web server on a port of its own.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # One moment, one spelling, whatever the machine's zone.
    "spark.sql.session.timeZone": "UTC",
    # An epoch is small: re-planning it between stages takes longer than it saves.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
}


def open_session(settings: Mapping[str, str] = {}) -> SparkSession:
    """The session of this process, made when there is none.

    Args:
        settings: Spark's own, over the defaults above. With ``spark.remote``, or with
            ``SPARK_REMOTE`` in the environment, it is a session on a Spark Connect server.
    """
    remote = settings.get("spark.remote") or os.environ.get("SPARK_REMOTE")
    if remote:
        return _open_remote_session(remote, settings)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder
    for key, value in local_settings(settings).items():
        builder = builder.config(key, value)
    # In the main thread Spark takes Ctrl-C for itself, in the middle of its start.
    with ThreadPoolExecutor(1, thread_name_prefix="spark-start") as starter:
        starter.submit(builder.getOrCreate).result()
    # A session is active in the thread that asked for it.
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    ignore_stop_signals(session)
    _opened[:] = [session]
    return session


def local_settings(settings: Mapping[str, str]) -> Mapping[str, str]:
    """All that a session of this process is made with."""
    chosen = {**_DEFAULTS, **settings}
    # Elsewhere the package may come to an executor with its first task, after the daemon's start.
    if chosen["spark.master"].startswith("local"):
        chosen.setdefault("spark.python.daemon.module", WORKER_DAEMON)
    return chosen


def stop_computing() -> None:
    """Cancel what this process has Spark compute. Not from the thread that waits for it."""
    if _opened:
        (_opened[0].interruptAll if is_remote() else _opened[0].sparkContext.cancelAllJobs)()


def _open_remote_session(remote: str, settings: Mapping[str, str]) -> SparkSession:
    """All that a session on a server can choose is how its queries run."""
    builder = SparkSession.builder.remote(remote)
    for key, value in {**_DEFAULTS, **settings}.items():
        if key.startswith("spark.sql."):
            builder = builder.config(key, value)
    session = builder.getOrCreate()
    _opened[:] = [session]
    return session
