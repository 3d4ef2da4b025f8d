"""The process that Spark's Python workers are forked from: ``spark.python.daemon.module``.

Spark's own daemon has nothing loaded, so each worker imports Arrow, pandas and this package anew,
and collects garbage among all of it after every task: a CPU second for each worker, and 40 ms for
each task. Here everything is imported once, before the first fork, and frozen for the collector.

Spark also puts zips of PySpark and py4j first on Python's search path. Modules from a zip are
compiled anew by every process. Where the zips belong to the installed PySpark, its own compiled
files are imported instead.
"""

from __future__ import annotations

import gc
import importlib
import signal
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

# There is a daemon for each kind of worker. Only workers of this kind do an epoch's work.
_BUSY: Final = "pyspark.worker"

LOADED: Final = (
    _BUSY,
    "pandas",
    # Arrow imports these itself, when a worker first groups or converts.
    "pyarrow.acero",
    "pyarrow.compute",
    "pyarrow.pandas_compat",
    "laminar_dagster.spark.bucket_step",
    "laminar_dagster.spark.join_step",
    "laminar_dagster.spark.model_step",
    "laminar_dagster.spark.operator_step",
    "laminar_dagster.spark.scan",
    "laminar_dagster.spark.staging",
)


def without_bundled_zips(search_path: list[str]) -> list[str]:
    """A search path without Spark's zips, if the same PySpark is also installed as a package.

    It is the same if the zips lie within the installed package. A distribution of Spark has PySpark
    nowhere but in its zips, so there they stay.
    """
    zips = [entry for entry in search_path if _is_bundled(entry)]
    rest = [entry for entry in search_path if entry not in zips]
    pyspark, py4j = (PathFinder.find_spec(name, rest) for name in ("pyspark", "py4j"))
    if pyspark is None or pyspark.origin is None or py4j is None:
        return search_path
    installed = Path(pyspark.origin).resolve().parent
    if not all(Path(entry).resolve().is_relative_to(installed) for entry in zips):
        return search_path
    return rest


def _is_bundled(entry: str) -> bool:
    path = Path(entry)
    return path.name == "pyspark.zip" or path.match("py4j-*.zip")


def main(kind: str) -> None:
    """Load what workers of a kind need, then fork them whenever Spark asks."""
    # Service managers signal the whole process group, but the current epoch still needs the
    # workers. Java ends them by other means: SIGKILL, SIGHUP, and the end of standard input.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    # Before PySpark is first imported: its submodules load from where the package was found.
    sys.path[:] = without_bundled_zips(sys.path)
    from pyspark import daemon

    if kind == _BUSY:
        for module in LOADED:
            importlib.import_module(module)
        # A worker collects garbage after every task: exclude what was loaded before the fork.
        gc.collect()
        gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main(sys.argv[1])
