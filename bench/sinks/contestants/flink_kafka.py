"""Flink's exactly-once sink on Kafka, by way of PyFlink: no Python touches a record.

Timed from the definition of the tables to the end of the job, when its last transaction is
committed. The rows come from a file. The cluster within the JVM is started with each job, as
PyFlink does; that is in the time, and so is the wait for the checkpoint that commits.
"""

from __future__ import annotations

import os
import time
from typing import Any, Final

from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

from bench.kafka.contestants.protocol import Job, Row, serve

JARS: Final = "BENCH_FLINK_JARS"
_COLUMNS: Final = "id BIGINT, `at` TIMESTAMP(6), page STRING, amount DOUBLE, n INT"


class FlinkKafka:
    """Runs jobs."""

    def __init__(self, cores: int) -> None:
        """Start the JVM."""
        self._cores = cores
        self._tables()

    def run(self, job: Job) -> float:
        """Write the rows of a file once."""
        begun = time.perf_counter()
        tables = self._tables()
        tables.get_config().set("execution.checkpointing.dir", (job.path / "state").as_uri())
        source = {
            "connector": "filesystem",
            "path": (job.path / "rows.csv").as_uri(),
            "format": "csv",
        }
        sink = {
            "connector": "kafka",
            "topic": job.topic,
            "properties.bootstrap.servers": job.servers,
            "properties.transaction.timeout.ms": "60000",
            "properties.linger.ms": "5",
            "format": "json",
            "sink.delivery-guarantee": "exactly-once",
            "sink.transactional-id-prefix": f"flink-{job.path.name}",
        }
        tables.execute_sql(f"CREATE TABLE source_rows ({_COLUMNS}) WITH ({_written(source)})")
        tables.execute_sql(f"CREATE TABLE sink_rows ({_COLUMNS}) WITH ({_written(sink)})")
        tables.execute_sql("INSERT INTO sink_rows SELECT * FROM source_rows").wait()
        return time.perf_counter() - begun

    def rows(self, job: Job) -> list[Row]:
        """Counted by whoever asked."""
        return []

    def _tables(self) -> Any:
        chosen = EnvironmentSettings.new_instance().in_streaming_mode()
        tables = TableEnvironment.create(chosen.build())
        config = tables.get_config()
        config.set("pipeline.jars", os.environ[JARS])
        config.set("parallelism.default", str(self._cores))
        config.set("execution.checkpointing.interval", "1 s")
        config.set("execution.checkpointing.mode", "EXACTLY_ONCE")
        return tables


def _written(options: dict[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())


if __name__ == "__main__":
    serve(FlinkKafka)
