"""Spark's classes, loaded once and kept: ``python -m infra.spark_classes`` makes the archive.

A Spark that runs for seconds spends most of them loading classes and compiling what it will not
run long enough to need. With the classes in an archive, and only the quick one of the JVM's two
compilers, it starts in half the time and a third of the processor's. That is for tests: a Spark
that runs for hours wants the thorough compiler.

An archive fits one Java and one set of jars at one path, so it lies in the environment. Whatever
it does not fit starts without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

# Read by spark-submit, for the JVM of a driver. Java's own variables for that are announced on
# standard error by each Java that reads them.
VARIABLE: Final = "SPARK_SUBMIT_OPTS"

ARCHIVE: Final = Path(sys.prefix) / ".spark-classes.jsa"
_QUICK: Final = "-XX:TieredStopAtLevel=1"
# Whether the archive fits is of no interest to whoever reads a program's output.
_SILENT: Final = "-Xlog:disable"
_ROWS: Final = "id long, name string, part long"


def quick_start(archive: Path = ARCHIVE) -> str:
    """Options with which a JVM of Spark starts quickly; with the archive, if there is one."""
    # Options are parted at white space.
    if not archive.exists() or " " in str(archive):
        return _QUICK
    return f"{_QUICK} -Xshare:auto -XX:SharedArchiveFile={archive} {_SILENT}"


def make_archive() -> None:
    """Have Spark do a little of everything, and keep the classes it needed."""
    unfinished = ARCHIVE.with_suffix(f".{os.getpid()}")
    options = f"{_QUICK} -XX:ArchiveClassesAtExit={unfinished} {_SILENT}"
    subprocess.run(
        [sys.executable, "-c", "from infra.spark_classes import work; work()"],
        # Spark's own choice is the python3 on the PATH, which need not have what Spark needs.
        env={**os.environ, VARIABLE: options, "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=300,
        check=True,
    )
    unfinished.replace(ARCHIVE)


def work() -> None:
    """What an epoch has Spark do, then the JVM's end in peace, at which it keeps its classes."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    def same(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.authenticate", "true")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    rows = spark.range(1000).selectExpr("id", "CAST(id AS STRING) AS name", "id % 7 AS part")
    grouped = rows.mapInArrow(same, _ROWS).groupBy("part").applyInArrow(lambda each: each, _ROWS)
    placed = grouped.unionByName(spark.range(3), allowMissingColumns=True).where("id > 3")
    placed.selectExpr("max(id)", "count(DISTINCT name)", "sum(part)").collect()
    spark.stop()
    gateway = SparkContext._gateway  # noqa: SLF001, nothing else knows the JVM's process
    assert gateway is not None
    gateway.shutdown()
    # The JVM of a driver in Python ends when nobody writes to it any more.
    gateway.proc.stdin.close()
    gateway.proc.wait(120)


if __name__ == "__main__":
    make_archive()
