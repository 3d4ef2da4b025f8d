"""Spark's JDBC writer: as many connections as cores, each with a transaction of its own.

Timed is the write alone; the rows are in Spark's memory before. Its inserts are sent in large
batches that the driver rewrites to statements of many rows, which is faster than it comes. It
appends: a job that is run twice writes twice, and one that fails may leave a part.
"""

from __future__ import annotations

import os
import time
from typing import Final

from bench.kafka.contestants.protocol import Job, Row, serve
from laminar_dagster.spark.session import open_session

JARS: Final = "BENCH_SPARK_JARS"
_BATCH: Final = "10000"


class SparkJdbc:
    """Writes rows."""

    def __init__(self, cores: int) -> None:
        """Open the session."""
        self._cores = cores
        self._spark = open_session(
            {"spark.master": f"local[{cores}]", "spark.jars": os.environ[JARS]}
        )

    def run(self, job: Job) -> float:
        """Write the rows of a file once."""
        rows = self._spark.read.parquet(str(job.path / "rows.parquet")).repartition(self._cores)
        rows.persist().count()
        begun = time.perf_counter()
        rows.write.jdbc(
            job.servers,
            job.topic,
            mode="append",
            properties={
                **job.settings,
                "driver": "org.postgresql.Driver",
                "batchsize": _BATCH,
                "reWriteBatchedInserts": "true",
            },
        )
        seconds = time.perf_counter() - begun
        rows.unpersist()
        return seconds

    def rows(self, job: Job) -> list[Row]:
        """Counted by whoever asked."""
        return []


if __name__ == "__main__":
    serve(SparkJdbc)
