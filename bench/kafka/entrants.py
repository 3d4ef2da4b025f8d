"""Who takes part."""

from __future__ import annotations

from typing import Final

from bench.kafka import peers
from bench.kafka.contest import Entrant

PORTABLE: Final = Entrant("portable", "laminar, portable reader", peers.own, {"reader": "portable"})
FAST: Final = Entrant("fast", "laminar, fast reader", peers.own, {"reader": "fast"})
SPARK: Final = Entrant("spark", "Structured Streaming", peers.structured_streaming)
SPARK_ROCKSDB: Final = Entrant(
    "spark-rocksdb",
    "Structured Streaming, RocksDB",
    peers.structured_streaming,
    {"state": "rocksdb"},
)
SPARK_UNTUNED: Final = Entrant(
    "spark-untuned",
    "Spark's connector, as it comes",
    peers.structured_streaming,
    {"tuned": "no"},
)
SPARK_TUNED: Final = Entrant(
    "spark-tuned", "Spark's connector, larger fetches", peers.structured_streaming
)
FLINK: Final = Entrant("flink", "Flink SQL, streaming", peers.flink, {"mode": "streaming"})
FLINK_BATCH: Final = Entrant("flink-batch", "Flink SQL, batch", peers.flink, {"mode": "batch"})
# Plain Python: its second run is as fast as its first.
QUIX: Final = Entrant("quix", "Quix Streams", peers.quix, jobs=1, jobs_again=1)

AGGREGATE: Final = (PORTABLE, FAST, SPARK, SPARK_ROCKSDB, FLINK, FLINK_BATCH, QUIX)
SCAN: Final = (PORTABLE, FAST, SPARK_UNTUNED, SPARK_TUNED)
SPARK_ONLY: Final = (PORTABLE, FAST, SPARK)
