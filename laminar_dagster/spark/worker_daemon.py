"""The process that Spark's Python workers are forked from: ``spark.python.daemon.module``.

Spark's own has nothing loaded, so each worker imports Arrow, pandas and this package anew, and
searches all of it for garbage after every task: a second of a processor for each worker, and 40 ms
for each task. Here all is imported once, before the first fork, and not searched again.

Spark also puts zips of PySpark and py4j before everything else that Python imports from. What comes
out of a zip is compiled anew by every process. Where the zips belong to the installed PySpark, its
own compiled files are imported instead.
"""

from __future__ import annotations

import gc
import importlib
import signal
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

# There is a daemon for each kind of worker. Only these do an epoch's work, several at once.
_BUSY: Final = "pyspark.worker"

LOADED: Final = (
    _BUSY,
    "pandas",
    "pyarrow.compute",
    "laminar_dagster.spark.bucket_step",
    "laminar_dagster.spark.join_step",
    "laminar_dagster.spark.model_step",
    "laminar_dagster.spark.operator_step",
    "laminar_dagster.spark.scan",
    "laminar_dagster.spark.staging",
)


def without_bundled_zips(search_path: list[str]) -> list[str]:
    """A search path without Spark's zips, if the PySpark that is left is the same one.

    It is the same if the zips lie within it, as those of an installed PySpark do. A distribution of
    Spark has PySpark nowhere but in its zips, and they stay.
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
    # Service managers signal every process they find, and the epoch at hand still needs the
    # workers. Java ends them by other means: SIGKILL, SIGHUP, and the end of standard input.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    # Before the first module of PySpark: later ones come from where the package was found.
    sys.path[:] = without_bundled_zips(sys.path)
    from pyspark import daemon

    if kind == _BUSY:
        for module in LOADED:
            importlib.import_module(module)
        # A worker looks for garbage after every task. In what was here before it, there is none.
        gc.collect()
        gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main(sys.argv[1])
