"""Where Spark's Python workers come from."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from laminar_dagster.spark.session_settings import WORKER_DAEMON
from laminar_dagster.spark.worker_daemon import LOADED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def look_around(_: Iterable[object]) -> Iterator[tuple[int, str, int, list[str], str | None]]:
    import pyspark

    parent = Path(f"/proc/{os.getppid()}/cmdline").read_text().replace("\0", " ")
    yield os.getpid(), parent, gc.get_freeze_count(), list(sys.modules), pyspark.__file__


def test_a_worker_has_everything_loaded_when_it_is_forked(spark: SparkSession) -> None:
    workers = spark.sparkContext.parallelize([1, 2], 2).mapPartitions(look_around).collect()
    assert workers
    for pid, parent, frozen, loaded, source in workers:
        assert pid != os.getpid()
        assert f"-m {WORKER_DAEMON} pyspark.worker" in parent
        assert set(LOADED) <= set(loaded)
        assert frozen > 10_000
        assert source == pyspark.__file__, "compiled anew by every worker"
