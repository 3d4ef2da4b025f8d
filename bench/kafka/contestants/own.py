"""This project: a pipeline with ``connector = 'kafka'``, run as one epoch in a warm Spark session.

Timed from reading the project's files to the acknowledgement of the offsets. A scan is the frame
that epochs read, without what is made of it.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F

from bench.kafka.contestants.protocol import Job, Row, serve
from bench.kafka.contestants.spark_sums import sums_of
from laminar_dagster.config.project import load_project
from laminar_dagster.core.ids import CheckpointId, SourceId
from laminar_dagster.core.ports import Admission
from laminar_dagster.runtime.assembly import assemble, known_connectors
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.sources.kafka.source import KafkaSource
from laminar_dagster.spark.columns import CONTROL
from laminar_dagster.spark.scan import Scan, Split, scan_frame
from laminar_dagster.spark.session import open_session
from laminar_dagster.stores.local import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Limits that no job reaches: an epoch takes all that there is.
_SETTINGS: Final = """
name: clicks
store: state
epoch:
  max_records: 1000000000
  max_bytes: 1TiB
"""
_SOURCE: Final = """
CREATE SOURCE TABLE clicks (
  at TIMESTAMP, page STRING, amount DOUBLE, n INT, user STRING,
  WATERMARK FOR at AS at - INTERVAL '5' SECOND
) WITH ({options});
"""
_SINK: Final = """
CREATE SINK pages FROM per_minute
WITH (connector = 'sqlite', path = 'out.db', table = 'pages');
"""
_QUERY: Final = """
SELECT page, window_start AS minute, COUNT(*) AS clicks, SUM(n) AS total,
       AVG(amount) AS mean, MAX(amount) AS most
FROM clicks
GROUP BY TUMBLE(at, INTERVAL '1' MINUTE), page
"""


class Own:
    """Runs epochs."""

    def __init__(self, cores: int) -> None:
        """Open the session."""
        self._spark = _session(cores)
        self._sums: Row | None = None

    def run(self, job: Job) -> float:
        """One epoch over the topic, or its scan alone."""
        begun = time.perf_counter()
        pipeline = _pipeline(job, self._spark)
        if job.task == "scan":
            self._sums = self._scan(pipeline, job)
        else:
            EpochRunner(pipeline).run()
        return time.perf_counter() - begun

    def rows(self, job: Job) -> list[Row]:
        """What is in the sink."""
        if job.task == "scan":
            return [self._sums] if self._sums else []
        with closing(sqlite3.connect(job.path / "out.db")) as database:
            found = database.execute("SELECT page, minute, clicks, total, mean, most FROM pages")
            return [(page, _millis(minute), *numbers) for page, minute, *numbers in found]

    def _scan(self, pipeline: Pipeline, job: Job) -> Row:
        (source,) = pipeline.sources
        if not isinstance(source, KafkaSource):
            raise TypeError(f"not a source on Kafka: {source}")
        plan = source.plan(None, (), Admission(None, None), datetime.now(UTC))
        scan = Scan(
            source_id=SourceId("clicks"),
            # The last row of a task holds its report, and nothing in these.
            schema=pa.schema([each.with_nullable(True) for each in source.schema]),
            reader=source.reader(),
            splits=tuple(Split(number, part, None) for number, part in enumerate(plan.ranges)),
            time_column=None,
            delay=0,
            floor=None,
            fail_on_bad=True,
            store=LocalStore(job.path / "scan"),
            attempt=CheckpointId.from_parts(time.time_ns() // 1_000_000, 0),
        )
        frame = scan_frame(self._spark, scan)
        return sums_of(frame.where(F.col(CONTROL).isNull()))


def _session(cores: int) -> SparkSession:
    return open_session(
        {"spark.master": f"local[{cores}]", "spark.sql.shuffle.partitions": str(max(2, cores))}
    )


def _pipeline(job: Job, spark: SparkSession) -> Pipeline:
    options = {
        "connector": "kafka",
        "bootstrap.servers": job.servers,
        "topic": job.topic,
        "group.id": f"own-{job.path.name}",
        "format": job.format,
        **({"schema.registry.url": job.registry} if job.format == "avro" else {}),
        **job.settings,
    }
    written = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    folder = job.path / "dbt_like_configs" / "clicks"
    (folder / "models").mkdir(parents=True)
    (folder / "pipeline.yml").write_text(_SETTINGS)
    (folder / "sources.sql").write_text(_SOURCE.format(options=written))
    (folder / "sinks.sql").write_text(_SINK)
    (folder / "models" / "per_minute.sql").write_text(_QUERY)
    (model,) = load_project(Path(job.folder), {}, known_connectors())
    return assemble(model, Path(job.folder), lambda: spark)


def _millis(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


if __name__ == "__main__":
    serve(Own)
