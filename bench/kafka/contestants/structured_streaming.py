"""Spark Structured Streaming with its own Kafka connector, in the session settings of ours.

Timed from building the query to its end: with ``availableNow`` one batch over all there is, and
one without data that closes the windows. The connector's fetch settings are raised above their
defaults unless ``tuned`` is ``no``.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from bench.kafka.contestants.protocol import Job, Row, serve
from bench.kafka.contestants.spark_sums import sums_of
from laminar_dagster.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

JARS: Final = "BENCH_SPARK_JARS"
_COLUMNS: Final = "at TIMESTAMP, page STRING, amount DOUBLE, n INT, user STRING"
_STATE: Final = "spark.sql.streaming.stateStore.providerClass"
_PROVIDERS: Final = {
    "default": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
_TUNED: Final = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(8 * 1024 * 1024),
    "kafka.fetch.max.bytes": str(64 * 1024 * 1024),
    "kafka.receive.buffer.bytes": str(1024 * 1024),
}
_HEADER: Final = 5


class StructuredStreaming:
    """Runs queries."""

    def __init__(self, cores: int) -> None:
        """Open the session."""
        self._spark = open_session(
            {
                "spark.master": f"local[{cores}]",
                "spark.sql.shuffle.partitions": str(max(2, cores)),
                "spark.jars": os.environ[JARS],
            }
        )
        self._sums: Row | None = None

    def run(self, job: Job) -> float:
        """One query over the topic."""
        begun = time.perf_counter()
        if job.task == "scan":
            self._sums = sums_of(self._clicks(job, self._spark.read, "endingOffsets"))
        else:
            self._aggregate(job)
        return time.perf_counter() - begun

    def rows(self, job: Job) -> list[Row]:
        """What is in the Parquet files. Their log is not needed: no batch was run twice."""
        if job.task == "scan":
            return [self._sums] if self._sums else []
        found = pq.read_table(job.path / "out")
        minutes = found.column("minute").cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
        return [
            (row["page"], minute, row["clicks"], row["total"], row["mean"], row["most"])
            for row, minute in zip(
                found.drop_columns(["minute"]).to_pylist(), minutes.to_pylist(), strict=True
            )
        ]

    def _aggregate(self, job: Job) -> None:
        store = job.settings.get("state", "default")
        self._spark.conf.set(_STATE, _PROVIDERS[store])
        counted = (
            self._clicks(job, self._spark.readStream, None)
            .withWatermark("at", "5 seconds")
            .groupBy(F.window("at", "1 minute"), "page")
            .agg(
                F.count("*").alias("clicks"),
                F.sum("n").alias("total"),
                F.avg("amount").alias("mean"),
                F.max("amount").alias("most"),
            )
            .select(
                "page", F.col("window.start").alias("minute"), "clicks", "total", "mean", "most"
            )
        )
        query = (
            counted.writeStream.format("parquet")
            .option("checkpointLocation", str(job.path / "checkpoint"))
            .option("path", str(job.path / "out"))
            .outputMode("append")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def _clicks(self, job: Job, read: Any, ending: str | None) -> DataFrame:
        reader = (
            read.format("kafka")
            .option("kafka.bootstrap.servers", job.servers)
            .option("subscribe", job.topic)
            .option("startingOffsets", "earliest")
        )
        if ending:
            reader = reader.option(ending, "latest")
        if job.settings.get("tuned") != "no":
            reader = reader.options(**_TUNED)
        return _decoded(reader.load(), job)


def _decoded(messages: DataFrame, job: Job) -> DataFrame:
    if job.format == "avro":
        from pyspark.sql.avro.functions import from_avro

        body = F.expr(f"substring(value, {_HEADER + 1}, length(value) - {_HEADER})")
        click = from_avro(body, job.schema)
    else:
        click = F.from_json(F.col("value").cast("string"), _COLUMNS)
    return messages.select(click.alias("click")).select("click.*")


if __name__ == "__main__":
    serve(StructuredStreaming)
