"""What cold runs compute, for ``laminar run`` and for Structured Streaming; imports no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.sql_queries import FAMILIES, Family

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# In place of a shape: a session, and one row that is counted.
FLOOR: Final = "floor"


def _chosen(clicks: DataFrame) -> DataFrame:
    return clicks.where("n % 10 = 0").selectExpr(
        "upper(page) AS page", "amount * 2 AS amount", "at"
    )


def _counted(clicks: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    grouped = clicks.groupBy(F.window("at", "1 minute").alias("w"), "page")
    return grouped.agg(F.count("*").alias("clicks")).select("page", "w.start", "clicks")


_NAMED: Final = {family.name: family for family in FAMILIES}
SHAPES: Final[tuple[Family, ...]] = (
    Family(
        "projections",
        "a projection with a filter",
        "SELECT upper(page) AS page, amount * 2 AS amount, at FROM clicks WHERE n % 10 = 0",
        peer=_chosen,
    ),
    Family(
        "windows",
        "a one-minute window by page",
        "SELECT page, window_start AS since, COUNT(*) AS clicks FROM clicks"
        " GROUP BY TUMBLE(at, INTERVAL '1' MINUTE), page",
        peer=_counted,
    ),
    _NAMED["joins"],
    _NAMED["groups"],
)
