"""What a pipeline's SQL can say: one table, from which the page ``docs/sql.md`` is made.

What it cannot say is in ``refusals.py``. Each row has an example; a test loads every one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# What the examples read, here and in ``refusals.py``.
TABLES: Final = """\
CREATE SOURCE TABLE clicks (
    user_id BIGINT, page STRING, amount DECIMAL(10, 2), device STRUCT<os: STRING>,
    tags ARRAY<STRING>, ts TIMESTAMP,
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (connector = 'file', path = 'clicks', format = 'ndjson');

CREATE SOURCE TABLE plain (id INT, at TIMESTAMP)
WITH (connector = 'file', path = 'plain', format = 'ndjson');
"""


@dataclass(frozen=True, slots=True)
class Supported:
    """A construct, an example of it, and what there is to know about it."""

    name: str
    example: str
    note: str = ""


SUPPORTED: Final[dict[str, tuple[Supported, ...]]] = {
    "Rows": (
        Supported(
            "SELECT … FROM … WHERE",
            "SELECT lower(page) AS page, ts FROM clicks WHERE amount > 0",
            "every deterministic scalar function of Spark SQL: CASE, nested types, JSON, regular "
            "expressions, dates",
        ),
        Supported("SELECT *", "SELECT *, user_id % 10 AS shard FROM clicks"),
        Supported(
            "a query in FROM",
            "SELECT page FROM (SELECT page, amount FROM clicks) WHERE amount > 1",
        ),
        Supported(
            "WITH (a common table expression)",
            "WITH paid AS (SELECT page, ts FROM clicks WHERE amount > 0), "
            "known AS (SELECT page, ts FROM paid WHERE page IS NOT NULL) SELECT page FROM known",
            "a query by a name, for this view alone. Read twice, its state is kept once",
        ),
        Supported(
            "UNION ALL",
            "SELECT page, ts FROM clicks UNION ALL SELECT upper(page) AS page, ts FROM clicks",
            "columns by position",
        ),
        Supported(
            "epoch_time()",
            "SELECT page, epoch_time() AS seen FROM clicks",
            "the epoch's logical clock; the wall clock is refused",
        ),
    ),
    "Windows of event time": (
        Supported(
            "GROUP BY TUMBLE(time, size)",
            "SELECT page, window_start, COUNT(*) AS n FROM clicks "
            "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), page",
            "`window_start`, `window_end`, TUMBLE_START(…), TUMBLE_END(…)",
        ),
        Supported(
            "GROUP BY HOP(time, slide, size)",
            "SELECT window_end, SUM(amount) AS total FROM clicks "
            "GROUP BY HOP(ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)",
            "the size is a multiple of the slide",
        ),
        Supported(
            "TABLE(TUMBLE(TABLE t, DESCRIPTOR(time), size))",
            "SELECT window_start, page, COUNT(*) AS n "
            "FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) "
            "GROUP BY window_start, window_end, page",
            "HOP, CUMULATE and SESSION too; GROUP BY names the window's edges",
        ),
        Supported(
            "GROUP BY CUMULATE(time, step, size)",
            "SELECT window_start, window_end, COUNT(*) AS n FROM clicks "
            "GROUP BY CUMULATE(ts, INTERVAL '1' HOUR, INTERVAL '1' DAY)",
            "one result for each step, from the beginning of the window",
        ),
        Supported(
            "GROUP BY SESSION(time, gap)",
            "SELECT user_id, window_start, window_end, COUNT(*) AS n FROM clicks "
            "GROUP BY SESSION(ts, INTERVAL '30' MINUTE), user_id",
            "a session ends `gap` after its last event; an event exactly then begins the next",
        ),
        Supported(
            "an offset, as the last argument",
            "SELECT window_start, COUNT(*) AS n FROM clicks "
            "GROUP BY TUMBLE(ts, INTERVAL '1' DAY, INTERVAL '6' HOUR)",
            "of TUMBLE, HOP and CUMULATE: windows begin so long after midnight, 1970, in UTC",
        ),
        Supported(
            "EMIT ON WINDOW CLOSE",
            "SELECT window_end, COUNT(*) AS n FROM clicks "
            "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE) EMIT ON WINDOW CLOSE",
            "the default: a window is put out once, when the watermark has passed its end",
        ),
        Supported(
            "EMIT CHANGES over windows",
            "SELECT window_end, page, COUNT(*) AS n FROM clicks "
            "GROUP BY TUMBLE(ts, INTERVAL '1' HOUR), page EMIT CHANGES",
            "each epoch puts out what it changed, as rows of `_weight` -1 and +1; sessions too",
        ),
    ),
    "Groups without a window": (
        Supported(
            "GROUP BY … EMIT CHANGES WITH (state.ttl = '30d')",
            "SELECT page, COUNT(*) AS n, SUM(amount) AS total FROM clicks GROUP BY page "
            "EMIT CHANGES WITH (state.ttl = '30d')",
            "a key leaves the view 30 days of event time after its last event",
        ),
        Supported(
            "state.ttl = 'unbounded'",
            "SELECT id, COUNT(*) AS n FROM plain GROUP BY id "
            "EMIT CHANGES WITH (state.ttl = 'unbounded')",
            "every key is kept for ever",
        ),
        Supported(
            "one row over everything",
            "SELECT COUNT(*) AS n, MAX(ts) AS last FROM clicks EMIT CHANGES",
            "it comes with the first record",
        ),
        Supported(
            "SELECT DISTINCT",
            "SELECT DISTINCT user_id, page FROM clicks EMIT CHANGES WITH (state.ttl = '1d')",
            "GROUP BY all of its columns",
        ),
        Supported(
            "deduplication: ROW_NUMBER() OVER (…) = 1",
            "SELECT user_id, page, ts FROM (SELECT *, ROW_NUMBER() OVER "
            "(PARTITION BY user_id, page ORDER BY ts) AS rn FROM clicks) WHERE rn = 1 "
            "EMIT CHANGES WITH (state.ttl = '1d')",
            "of rows with the same place in the order, the one with the smallest columns",
        ),
        Supported(
            "the first n of each key: ROW_NUMBER() OVER (…) <= n",
            "WITH numbered AS (SELECT page, user_id, amount, ROW_NUMBER() OVER "
            "(PARTITION BY page ORDER BY amount DESC) AS place FROM clicks) "
            "SELECT page, place, user_id, amount FROM numbered WHERE place <= 3 "
            "EMIT CHANGES WITH (state.ttl = '1d')",
        ),
        Supported(
            "QUALIFY ROW_NUMBER() OVER (…) <= n",
            "SELECT page, user_id, ts FROM clicks "
            "QUALIFY ROW_NUMBER() OVER (PARTITION BY page ORDER BY ts DESC) <= 2 "
            "EMIT CHANGES WITH (state.ttl = 'unbounded')",
        ),
        Supported(
            "groups over rows that are taken back",
            "SELECT n, COUNT(*) AS pages FROM "
            "(SELECT page, COUNT(*) AS n FROM clicks GROUP BY page) GROUP BY n "
            "EMIT CHANGES WITH (state.ttl = 'unbounded')",
            "COUNT, COUNT_IF, SUM and AVG undo a row of `_weight` -1 by themselves; the others "
            "cannot, and are refused. So for every input with `_weight`",
        ),
    ),
    "Aggregates": (
        Supported(
            "COUNT, SUM, MIN, MAX, AVG",
            "SELECT window_end, COUNT(*) AS n, COUNT(amount) AS paid, SUM(amount) AS s, "
            "MIN(ts) AS first, MAX(ts) AS last, AVG(amount) AS mean FROM clicks "
            "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
        ),
        Supported(
            "COUNT(DISTINCT x), exactly",
            "SELECT window_end, COUNT(DISTINCT user_id) AS users FROM clicks "
            "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
            "the state holds every distinct value",
        ),
        Supported(
            "MIN_BY, MAX_BY",
            "SELECT page, MAX_BY(user_id, amount) AS best FROM clicks "
            "GROUP BY page EMIT CHANGES WITH (state.ttl = '1d')",
            "of values with the same place, the smallest or largest",
        ),
        Supported(
            "FIRST, LAST, FIRST_VALUE, LAST_VALUE",
            "SELECT user_id, FIRST(page) AS entry, LAST(page) AS page FROM clicks "
            "GROUP BY SESSION(ts, INTERVAL '30' MINUTE), user_id",
            "by event time: MIN_BY(x, ts) and MAX_BY(x, ts)",
        ),
        Supported(
            "ARRAY_AGG, COLLECT_LIST, COLLECT_SET",
            "SELECT window_end, ARRAY_AGG(page) AS pages, "
            "array_join(ARRAY_AGG(DISTINCT page), ', ') AS list FROM clicks "
            "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
            "without nulls, in ascending order of the values; array_join makes a text of it",
        ),
        Supported(
            "COUNT_IF",
            "SELECT window_end, COUNT_IF(amount > 0) AS paid FROM clicks "
            "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
        ),
        Supported(
            "FILTER (WHERE …)",
            "SELECT window_end, COUNT(*) FILTER (WHERE amount > 0) AS paid FROM clicks "
            "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
        ),
        Supported(
            "HAVING",
            "SELECT page, window_end, COUNT(*) AS n FROM clicks "
            "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), page HAVING COUNT(*) > 10 AND n < 100",
            "over aggregates, keys, the window's edges and columns of SELECT",
        ),
    ),
}
