"""The same windowed aggregation twice: as a pipeline of this project, and in Structured Streaming.

Both read the same files with the same Spark session, keep what they know on the same disk, and
are timed from the first question for new files to the last commit.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from bench.click_schema import COLUMNS, DELAY_SECONDS
from laminar_dagster.config.project import load_project
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.runtime.assembly import assemble, known_connectors
from laminar_dagster.runtime.epoch import EpochReport, EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from laminar_dagster.spark.engine import SparkEngine

# Page, minute, and what was counted: to be compared between the two.
Row = tuple[str, datetime, int, int, float, float]

# Limits that no benchmark reaches: it offers as much as an epoch is to take.
_SETTINGS: Final = """
name: clicks
store: state
epoch:
  max_records: 1000000000
  max_bytes: 1TiB
"""
_SOURCE: Final = f"""
CREATE SOURCE TABLE clicks (
  at TIMESTAMP, page STRING, amount DOUBLE, n INT,
  WATERMARK FOR at AS at - INTERVAL '{DELAY_SECONDS}' SECOND
) WITH (connector = 'file', path = 'input', format = 'ndjson', 'idle.timeout' = '{{idle}}');
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


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch, as seen from outside and as it reports of itself."""

    seconds: float
    report: EpochReport
    manifest: CheckpointManifest

    @property
    def steps(self) -> dict[str, float]:
        """Seconds, by step."""
        return {step.name: step.seconds for step in self.report.steps}


def lay_out(root: Path, idle_timeout: str, query: str, sink: str, files: Mapping[str, str]) -> Path:
    """Write the project of a ``ClickPipeline``; the folder of its input, still empty."""
    folder = root / "dbt_like_configs" / "clicks"
    (folder / "models").mkdir(parents=True)
    (folder / "pipeline.yml").write_text(_SETTINGS)
    (folder / "sources.sql").write_text(_SOURCE.format(idle=idle_timeout))
    (folder / "sinks.sql").write_text(sink)
    for name, text in {"models/per_minute.sql": query, **files}.items():
        (folder / name).write_text(text)
    input_folder = root / "input"
    input_folder.mkdir()
    return input_folder


class ClickPipeline:
    """The aggregation as a pipeline in a project's folder."""

    def __init__(
        self,
        root: Path,
        spark: SparkSession,
        *,
        idle_timeout: str = "1ms",
        query: str = _QUERY,
        sink: str = _SINK,
        files: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Lay the project out, and put the pipeline together from it.

        Args:
            root: An empty folder.
            spark: Where it is to run.
            idle_timeout: By default a file that was read to its end holds nothing back.
            query: Of the view ``per_minute``.
            sink: The statement that makes its sink; empty for none.
            files: What else is in the pipeline's folder, by name.
        """
        self.root = root
        self.input = lay_out(root, idle_timeout, query, sink, files)
        (model,) = load_project(root, {}, known_connectors())
        self.pipeline: Pipeline = assemble(model, root, lambda: spark)

    @property
    def engine(self) -> SparkEngine:
        """The pipeline's engine."""
        from laminar_dagster.spark.engine import SparkEngine

        if not isinstance(self.pipeline.engine, SparkEngine):
            raise TypeError(f"not an engine on Spark: {self.pipeline.engine}")
        return self.pipeline.engine

    def replace(self, **changes: Any) -> None:
        """Put other parts in place of some of the pipeline's."""
        self.pipeline = replace(self.pipeline, **changes)

    def offer(self, files: Iterable[Path]) -> None:
        """Let files appear in the directory that is read. No byte of them is copied."""
        for file in files:
            os.link(file, self.input / file.name)

    def run(self) -> Epoch:
        """The next epoch, over what there is."""
        begun = time.perf_counter()
        report = EpochRunner(self.pipeline).run()
        seconds = time.perf_counter() - begun
        manifest = self.pipeline.checkpoints.manifest(report.checkpoint_id)
        if manifest is None:
            raise RuntimeError(f"epoch {report.epoch} left no manifest")
        return Epoch(seconds, report, manifest)

    def rows(self) -> list[Row]:
        """What is in the sink, sorted."""
        with closing(sqlite3.connect(self.root / "out.db")) as database:
            found = database.execute("SELECT page, minute, clicks, total, mean, most FROM pages")
            return sorted(
                (page, datetime.fromisoformat(minute).replace(tzinfo=UTC), *numbers)
                for page, minute, *numbers in found
            )


class ClickStream:
    """The aggregation as a query of Structured Streaming, with a Parquet sink."""

    def __init__(self, root: Path, spark: SparkSession, files_per_batch: int) -> None:
        """Make empty folders for it."""
        self._spark = spark
        self._root = root
        self._files_per_batch = files_per_batch
        self.input = root / "input"
        self.input.mkdir(parents=True)
        self.batch_sizes: list[int] = []

    def offer(self, files: Iterable[Path]) -> None:
        """Let files appear in the directory that is read. No byte of them is copied."""
        for file in files:
            os.link(file, self.input / file.name)

    def run(self) -> float:
        """All that there is, batch by batch; seconds."""
        from pyspark.sql import functions as F

        begun = time.perf_counter()
        clicks = (
            self._spark.readStream.schema(COLUMNS)
            .option("maxFilesPerTrigger", self._files_per_batch)
            .json(str(self.input))
        )
        counted = (
            clicks.withWatermark("at", f"{DELAY_SECONDS} seconds")
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
            .option("checkpointLocation", str(self._root / "checkpoint"))
            .option("path", str(self._root / "out"))
            .outputMode("append")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        seconds = time.perf_counter() - begun
        progress = query.recentProgress
        self.batch_sizes = [each.numInputRows for each in progress if each.numInputRows]
        return seconds

    def rows(self) -> list[Row]:
        """What is in the sink, sorted. Its log of files is not needed: no batch was run twice."""
        found = pq.read_table(self._root / "out")
        minutes = found.column("minute").cast(pa.timestamp("us", tz="UTC"))
        found = found.set_column(1, "minute", minutes)
        return sorted(tuple(row.values()) for row in found.to_pylist())
