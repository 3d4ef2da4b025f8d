"""What a scan in Spark adds up, so that no column can be left undecoded."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bench.kafka.contestants.protocol import Row


def sums_of(clicks: DataFrame) -> Row:
    """The last moment, how long the texts are, and the sums of the numbers."""
    found = clicks.agg(
        F.max(F.unix_millis("at")),
        F.sum(F.length("page") + F.length("user")),
        F.sum("n"),
        F.sum("amount"),
        F.count("*").cast("double"),
    ).first()
    if found is None:
        raise RuntimeError("a scan without an answer")
    moment, letters, total, amount, count = found
    return ("", moment, letters, total, amount, count)
