"""A Spark as a user starts it: ``python -m bench.cold_peer SHAPE INPUT OUT``, or ``floor`` alone.

A process of its own, with Spark's own settings, that ends when the work is done.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.click_schema import COLUMNS, DELAY_SECONDS
from bench.cold_shapes import FLOOR, SHAPES


def main(shape: str, folder: str = "", out: str = "") -> None:
    """Start Spark, compute, and stop it."""
    spark = SparkSession.builder.appName("cold").getOrCreate()
    if shape == FLOOR:
        spark.range(1).count()
    else:
        stream(spark, shape, Path(folder), Path(out))
    spark.stop()


def stream(spark: SparkSession, shape: str, folder: Path, out: Path) -> None:
    """All that there is through a query of Structured Streaming, into files of Parquet."""
    (family,) = (family for family in SHAPES if family.name == shape)
    assert family.peer is not None
    clicks = spark.readStream.schema(COLUMNS).json(str(folder))
    query = family.peer(clicks.withWatermark("at", f"{DELAY_SECONDS} seconds"))
    writer = query.writeStream.outputMode(family.mode).trigger(availableNow=True)

    def write(batch: Any, number: int) -> None:
        batch.write.parquet(str(out / str(number)))

    writer = writer.option("checkpointLocation", str(out.with_name("checkpoint")))
    writer.foreachBatch(write).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
