"""The process that Spark's Python workers are forked from: ``spark.python.daemon.module``.

Spark's own has nothing loaded, so each worker imports Arrow, pandas and this package anew, and
searches all of it for garbage after every task: a second of a processor for each worker, and 40 ms
for each task. Here all is imported once, before the first fork, and not searched again.
"""

from __future__ import annotations

import gc
import importlib
import signal
import sys
from typing import Final

from pyspark import daemon

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


def main(kind: str) -> None:
    """Load what workers of a kind need, then fork them whenever Spark asks."""
    # Service managers signal every process they find, and the epoch at hand still needs the
    # workers. Java ends them by other means: SIGKILL, SIGHUP, and the end of standard input.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    if kind == _BUSY:
        for module in LOADED:
            importlib.import_module(module)
        # A worker looks for garbage after every task. In what was here before it, there is none.
        gc.collect()
        gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main(sys.argv[1])
