"""Refusals of unsupported uses of ``explode(…)`` and its like, in FROM and in SELECT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from laminar_dagster.config.sql.refusal import Refusal

# The functions that turn the items of a list or map into rows.
EXPLODING: Final = frozenset(
    {"explode", "explode_outer", "inline", "inline_outer", "posexplode", "posexplode_outer"}
)
_MINUTE: Final = "TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"

GENERATORS: Final[Mapping[str, Refusal]] = {
    "inside": Refusal(
        "explode(…) inside an expression, outside SELECT, or beside groups",
        "name its column by LATERAL VIEW explode(…) t AS x, and use x",
        example="SELECT upper(explode(tags)) AS tag FROM clicks",
    ),
    "second": Refusal(
        "a second explode(…) in SELECT",
        "use LATERAL VIEW for each: every item of one with every item of the other; or "
        "arrays_zip(…) for the items side by side",
        example="SELECT explode(tags) AS tag, explode(array(1, 2)) AS n FROM clicks",
    ),
    "function": Refusal(
        "a function that makes several rows, other than explode, posexplode and inline of one list",
        "make a list of it: LATERAL VIEW explode(array(…)) t AS x",
        example="SELECT page, a FROM clicks LATERAL VIEW stack(2, 'x', 'y') t AS a",
    ),
    "names": Refusal(
        "inline or UNNEST whose columns have no names",
        "name each: LATERAL VIEW inline(…) t AS a, b; CROSS JOIN UNNEST(…) AS t (a)",
        example="SELECT page FROM clicks CROSS JOIN UNNEST(tags)",
        why="leaves open how many there are",
    ),
    "several": Refusal(
        "UNNEST of several lists",
        "put them side by side: UNNEST(arrays_zip(a, b)) AS t (a, b)",
        example="SELECT page, a FROM clicks CROSS JOIN UNNEST(tags, tags) AS t (a, b)",
    ),
    "ordinality": Refusal(
        "WITH ORDINALITY",
        "use LATERAL VIEW posexplode(…) t AS place, x, which counts from 0",
        example="SELECT page, n FROM clicks CROSS JOIN UNNEST(tags) WITH ORDINALITY AS t (x, n)",
    ),
    "kind": Refusal(
        "UNNEST or LATERAL in anything but CROSS, INNER and LEFT JOIN",
        "use CROSS JOIN; or LEFT JOIN … ON TRUE, which keeps rows without items",
        example="SELECT page, x FROM clicks RIGHT JOIN UNNEST(tags) AS t (x) ON TRUE",
    ),
    "condition": Refusal(
        "a condition in ON of UNNEST or LATERAL",
        "use WHERE, and ON TRUE",
        example="SELECT page, x FROM clicks JOIN UNNEST(tags) AS t (x) ON x > 'a'",
    ),
    "window": Refusal(
        "LATERAL VIEW or UNNEST beside a window function in FROM",
        "group what comes out: GROUP BY TUMBLE(ts, …)",
        example=f"SELECT x, COUNT(*) AS n FROM {_MINUTE} LATERAL VIEW explode(tags) t AS x "
        "GROUP BY window_start, window_end, x",
    ),
}
