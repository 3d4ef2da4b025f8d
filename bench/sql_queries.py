"""Queries of each family of SQL, and the same for Structured Streaming where it has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench.click_schema import page_name

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

KEYS: Final = 20_000
_FOREVER: Final = "EMIT CHANGES WITH (state.ttl = 'unbounded')"
_DEDUPLICATED: Final = (
    "SELECT page, n, at FROM clicks QUALIFY ROW_NUMBER() OVER"
    f" (PARTITION BY page, n ORDER BY at) = 1 {_FOREVER}"
)


@dataclass(frozen=True, slots=True)
class Family:
    """A query of ours and the peer's.

    Attributes:
        sql: With the columns that ``key`` names, if its rows change.
        since: The column that says when a row's window began.
        peer: Makes it of a stream of clicks with a watermark; None where Spark has no such thing.
        mode: The peer's output mode.
        files: What else the pipeline is made of, by name.
    """

    name: str
    what: str
    sql: str
    key: str = ""
    since: str = ""
    peer: Callable[[DataFrame], DataFrame] | None = None
    mode: str = "append"
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def sink(self) -> str:
        """Where its rows go."""
        mode = f", mode = 'upsert', key = '{self.key}'" if self.key else ""
        options = f"connector = 'sqlite', path = 'out.db', table = 'pages'{mode}"
        return f"CREATE SINK pages FROM per_minute WITH ({options});"


def _groups(clicks: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return clicks.groupBy("page").agg(F.count("*").alias("clicks"), F.max("amount").alias("most"))


def _earliest(clicks: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return clicks.groupBy("page", "n").agg(F.min("at").alias("at"))


def _sessions(clicks: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    grouped = clicks.groupBy(F.session_window("at", "5 seconds").alias("w"), "page")
    counted = grouped.agg(F.count("*").alias("clicks"))
    return counted.select("page", F.col("w.start").alias("since"), "clicks")


def _windows(clicks: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    grouped = clicks.groupBy(F.window("at", "2 minutes", "30 seconds").alias("w"), "page")
    counted = grouped.agg(F.sum("n").alias("total"))
    return counted.select("page", F.col("w.start").alias("since"), "total")


def _joined(clicks: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    later = clicks.selectExpr("page AS same", "n AS next", "at AS later")
    near = "page = same AND later > at AND later <= at + INTERVAL 10 SECONDS"
    return clicks.join(later, F.expr(near)).select("page", "n", "next", "at")


def _enriched(clicks: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    pages = [(page_name(number), f"section {number % 100}") for number in range(KEYS)]
    table = clicks.sparkSession.createDataFrame(pages, "page STRING, section STRING")
    grouped = clicks.join(table, "page").groupBy(F.window("at", "1 minute").alias("w"), "section")
    counted = grouped.agg(F.count("*").alias("clicks"))
    return counted.select("section", F.col("w.start").alias("since"), "clicks")


def _numbered(clicks: DataFrame) -> DataFrame:
    import pandas as pd

    def number(
        key: tuple[str], frames: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        (count,) = state.get if state.exists else (0,)
        for frame in frames:
            times = frame["at"].sort_values()
            places = range(count + 1, count + len(times) + 1)
            yield pd.DataFrame({"page": key[0], "since": times, "place": places})
            count += len(times)
        state.update((count,))

    columns = "page STRING, since TIMESTAMP, place BIGINT"
    grouped = clicks.groupBy("page")
    return grouped.applyInPandasWithState(number, columns, "count BIGINT", "append", "NoTimeout")


_NUMBERED: Final = """
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.models import Step, keyed_operator


@keyed_operator(
    reads="clicks",
    keys=["page"],
    event_time="at",
    takes=[],
    state={"count": pa.int64()},
    columns={"place": pa.int64()},
    ttl="unbounded",
)
class Numbered:
    def on_rows(self, rows: pa.Table, state: pa.Table) -> Step:
        place = pc.add(pc.coalesce(state["count"], 0), 1)
        return Step(state={"count": place}, rows={"place": place})
"""
_SECTIONS: Final = """
CREATE REFERENCE TABLE sections (page STRING, section STRING, PRIMARY KEY (page))
WITH (connector = 'file', path = 'dbt_like_configs/clicks/sections.csv', format = 'csv');
"""

FAMILIES: Final = (
    # The peer keeps whichever click came first; the next one what ours keeps, the earliest.
    Family(
        "deduplication",
        "the first click of each page and number, beside dropDuplicates",
        _DEDUPLICATED,
        "page, n",
        peer=lambda clicks: clicks.dropDuplicates(["page", "n"]).select("page", "n", "at"),
    ),
    Family(
        "earliest",
        "the same, beside a group with MIN(at)",
        _DEDUPLICATED,
        "page, n",
        peer=_earliest,
        mode="update",
    ),
    Family(
        "distinct-rows",
        "SELECT DISTINCT of page and number, beside dropDuplicates",
        f"SELECT DISTINCT page, n FROM clicks {_FOREVER}",
        "page, n",
        peer=lambda clicks: clicks.dropDuplicates(["page", "n"]).select("page", "n"),
    ),
    Family(
        "groups",
        "a group by page with updates",
        "SELECT page, COUNT(*) AS clicks, MAX(amount) AS most FROM clicks GROUP BY page"
        f" {_FOREVER}",
        "page",
        peer=_groups,
        mode="update",
    ),
    Family(
        "sessions",
        "session windows by page",
        "SELECT page, window_start AS since, COUNT(*) AS clicks FROM clicks"
        " GROUP BY SESSION(at, INTERVAL '5' SECOND), page",
        since="since",
        peer=_sessions,
    ),
    Family(
        "hopping",
        "overlapping windows by page",
        "SELECT page, window_start AS since, SUM(n) AS total FROM clicks"
        " GROUP BY HOP(at, INTERVAL '30' SECOND, INTERVAL '2' MINUTE), page",
        since="since",
        peer=_windows,
    ),
    Family(
        "joins",
        "each click with those of its page in the next ten seconds",
        "SELECT a.page, a.n, b.n AS next, a.at FROM clicks a JOIN clicks b ON a.page = b.page"
        " AND b.at > a.at AND b.at <= a.at + INTERVAL '10' SECOND",
        peer=_joined,
    ),
    Family(
        "references",
        "clicks joined with a table of every page, in windows of its sections",
        "SELECT s.section, window_start AS since, COUNT(*) AS clicks FROM clicks c JOIN sections s"
        " ON c.page = s.page GROUP BY TUMBLE(c.at, INTERVAL '1' MINUTE), s.section",
        since="since",
        peer=_enriched,
        files={
            "references.sql": _SECTIONS,
            "sections.csv": "\n".join(
                ["page,section", *(f"{page_name(n)},section {n % 100}" for n in range(KEYS))]
            ),
        },
    ),
    Family(
        "python",
        "an operator in Python with state: each click with its number within its page",
        "SELECT page, at AS since, place FROM numbered",
        since="since",
        peer=_numbered,
        files={"models/numbered.py": _NUMBERED},
    ),
    Family(
        "top-n",
        "the three largest clicks of each page",
        "SELECT page, place, amount, at FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY page"
        f" ORDER BY amount DESC) AS place FROM clicks) WHERE place <= 3 {_FOREVER}",
        "page, place",
    ),
    Family(
        "distinct",
        "COUNT(DISTINCT) in windows",
        "SELECT window_end AS until, COUNT(DISTINCT page) AS pages FROM clicks"
        " GROUP BY TUMBLE(at, INTERVAL '1' MINUTE)",
    ),
)
