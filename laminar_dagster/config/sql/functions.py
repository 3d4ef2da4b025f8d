"""Which functions there are, and what kind each is.

``spark_functions.txt`` is what Spark itself lists; a test holds it against the installed Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final, Literal

FunctionKind = Literal["scalar", "aggregate", "window", "generator"]

# Known to Spark's grammar, and so not in its list.
_GRAMMAR: Final = ("try_cast", "timestampadd", "timestampdiff")

LOGICAL_CLOCK: Final = "epoch_time"
# The aggregates by every name they have, and what each is here.
AGGREGATES: Final[Mapping[str, str]] = {
    "count": "count",
    "count_if": "count_if",
    "sum": "sum",
    "min": "min",
    "max": "max",
    "avg": "avg",
    "mean": "avg",
    "min_by": "min_by",
    "max_by": "max_by",
    "first": "first",
    "first_value": "first",
    "last": "last",
    "last_value": "last",
    "array_agg": "collect_list",
    "collect_list": "collect_list",
    "collect_set": "collect_set",
}
WINDOWS: Final = ("tumble", "hop", "cumulate", "session")
WINDOW_EDGES: Final[Mapping[str, tuple[str, str]]] = {
    f"{name}_{edge}": (name, f"window_{edge}") for name in WINDOWS for edge in ("start", "end")
}
WINDOW_COLUMNS: Final = ("window_start", "window_end")

# Their first argument is a unit, not a column, when there are three.
WITH_UNIT: Final = frozenset(
    {"dateadd", "date_add", "datediff", "date_diff", "timestampadd", "timestampdiff"}
)
UNITS: Final = frozenset(
    "microsecond millisecond second minute hour day dayofyear week month quarter year".split(" ")
)

# Spark takes these for a function even without parentheses, unless there is such a column.
WITHOUT_PARENTHESES: Final = frozenset(
    {
        "current_catalog",
        "current_database",
        "current_date",
        "current_schema",
        "current_time",
        "current_timestamp",
        "current_user",
        "localtimestamp",
        "session_user",
        "user",
    }
)

# What Spark has and a stream of epochs does otherwise, with what to write.
ELSEWHERE: Final[Mapping[str, str]] = {
    "window": "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE) or HOP(ts, slide, size)",
    "session_window": "GROUP BY SESSION(ts, INTERVAL '30' MINUTE)",
    "window_time": "use window_start or window_end",
}


@cache
def spark_functions() -> Mapping[str, FunctionKind]:
    """Every function of Spark by its name in lower case."""
    text = (files(__package__) / "spark_functions.txt").read_text(encoding="utf-8")
    found: dict[str, FunctionKind] = dict.fromkeys(_GRAMMAR, "scalar")
    for line in text.splitlines():
        if not line.startswith("#"):
            name, kind = line.split(" ")
            found[name] = kind  # type: ignore[assignment]
    return found


def suggestions() -> tuple[str, ...]:
    """Every name that a call may have, for the nearest spelling."""
    return (*spark_functions(), LOGICAL_CLOCK, *WINDOWS, *WINDOW_EDGES)
