"""Flink SQL by way of PyFlink, in the JVM that it starts: no Python touches a record.

Timed from the definition of the tables to the end of the job, when its files are committed. The
cluster within the JVM is started with each job, as PyFlink does; that is in the time.
"""

from __future__ import annotations

import csv
import os
import time
from datetime import UTC, datetime
from typing import Any, Final

from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

from bench.kafka.contestants.protocol import Job, Row, serve

JARS: Final = "BENCH_FLINK_JARS"
_JSON: Final = {
    "value.format": "json",
    "value.json.timestamp-format.standard": "ISO-8601",
}
_SOURCE: Final = """
CREATE TABLE clicks (
  `at` {moment}, page STRING, amount DOUBLE, n INT, `user` STRING,
  WATERMARK FOR `at` AS `at` - INTERVAL '5' SECOND
) WITH ({options})
"""
_SINK: Final = """
CREATE TABLE pages (
  page STRING, `minute` TIMESTAMP(3), clicks BIGINT, total BIGINT, mean DOUBLE, most DOUBLE
) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv')
"""
_QUERY: Final = """
INSERT INTO pages
SELECT page, window_start, COUNT(*), SUM(CAST(n AS BIGINT)), AVG(amount), MAX(amount)
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(`at`), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, page
"""


class Flink:
    """Runs jobs."""

    def __init__(self, cores: int) -> None:
        """Start the JVM."""
        self._cores = cores
        self._tables("streaming")

    def run(self, job: Job) -> float:
        """One job over what the topic holds now."""
        begun = time.perf_counter()
        tables = self._tables(job.settings.get("mode", "streaming"))
        tables.get_config().set("execution.checkpointing.dir", (job.path / "state").as_uri())
        tables.execute_sql(_source(job))
        tables.execute_sql(_SINK.format(path=(job.path / "out").as_uri()))
        tables.execute_sql(_QUERY).wait()
        return time.perf_counter() - begun

    def rows(self, job: Job) -> list[Row]:
        """What is in the files that were committed; others are hidden."""
        found: list[Row] = []
        for path in (job.path / "out").rglob("*"):
            if path.is_file() and not path.name.startswith((".", "_")):
                with path.open(newline="") as file:
                    found += [_row(line) for line in csv.reader(file)]
        return found

    def _tables(self, mode: str) -> Any:
        settings = EnvironmentSettings.new_instance()
        chosen = settings.in_batch_mode() if mode == "batch" else settings.in_streaming_mode()
        tables = TableEnvironment.create(chosen.build())
        config = tables.get_config()
        config.set("pipeline.jars", os.environ[JARS])
        config.set("table.local-time-zone", "UTC")
        config.set("parallelism.default", str(self._cores))
        if mode == "streaming":
            config.set("execution.checkpointing.interval", "5 s")
            config.set("execution.checkpointing.mode", "EXACTLY_ONCE")
        return tables


def _source(job: Job) -> str:
    options = {
        "connector": "kafka",
        "topic": job.topic,
        "properties.bootstrap.servers": job.servers,
        "properties.group.id": f"flink-{job.path.name}",
        "scan.startup.mode": "earliest-offset",
        "scan.bounded.mode": "latest-offset",
    }
    moment = "TIMESTAMP_LTZ(3)"
    if job.format == "avro":
        # The type that its Avro format gives to milliseconds.
        moment = "TIMESTAMP(3)"
        options |= {"value.format": "avro-confluent", "value.avro-confluent.url": job.registry}
    else:
        options |= _JSON
    written = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    return _SOURCE.format(moment=moment, options=written)


def _row(cells: list[str]) -> Row:
    page, minute, clicks, total, mean, most = cells
    moment = datetime.fromisoformat(minute).replace(tzinfo=UTC)
    millis = int(moment.timestamp() * 1000)
    return (page, millis, int(clicks), int(total), float(mean), float(most))


if __name__ == "__main__":
    serve(Flink)
