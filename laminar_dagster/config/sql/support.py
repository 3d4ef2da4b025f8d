"""The supported SQL of a pipeline: one table, from which the page ``docs/sql.md`` is made.

Unsupported SQL is in ``refusals.py``. Each row has an example; a test loads every one of them.
"""

from __future__ import annotations

from typing import Final

from laminar_dagster.config.sql.aggregate_support import AGGREGATES
from laminar_dagster.config.sql.supported import Supported

# The tables that the examples read, here and in ``refusals.py``.
TABLES: Final = """\
CREATE SOURCE TABLE clicks (
    user_id BIGINT, page STRING, amount DECIMAL(10, 2), device STRUCT<os: STRING>,
    tags ARRAY<STRING>, ts TIMESTAMP,
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (connector = 'file', path = 'clicks', format = 'ndjson');

CREATE SOURCE TABLE plain (id INT, at TIMESTAMP)
WITH (connector = 'file', path = 'plain', format = 'ndjson');

CREATE REFERENCE TABLE pages (page STRING, title STRING, weight INT, PRIMARY KEY (page))
WITH (connector = 'file', path = 'pages.csv', format = 'csv');
"""


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
            "the epoch's logical clock; the wall clock is refused. Over records and over rows that "
            "are put out once: not over rows that may be taken back",
        ),
    ),
    "Rows that become several": (
        Supported(
            "LATERAL VIEW [OUTER] explode(…) t AS x",
            "SELECT page, tag FROM clicks LATERAL VIEW explode(tags) t AS tag WHERE tag <> 'old'",
            "one row for every item of a list, or every `key, value` of a map; with OUTER, a row "
            "without items stays, with nulls. Items keep their order, rows their event time and "
            "`_weight`. Several in a row: every item of one with every item of the other",
        ),
        Supported(
            "posexplode(…), inline(…)",
            "SELECT page, place, tag, os FROM clicks "
            "LATERAL VIEW posexplode(tags) t AS place, tag "
            "LATERAL VIEW OUTER inline(array(device)) d AS os",
            "with the place of an item, from 0; a list of structs, a column for each field. "
            "explode_outer and so on are the same with OUTER",
        ),
        Supported(
            "explode(…) AS x in SELECT",
            "SELECT page, explode(tags) AS tag, ts FROM clicks WHERE amount > 0",
            "one in a SELECT, of rows and not of groups; `AS (key, value)` for a map",
        ),
        Supported(
            "CROSS JOIN UNNEST(…) AS t (x)",
            "SELECT page, tag FROM clicks c LEFT JOIN UNNEST(c.tags) AS t (tag) ON TRUE",
            "LEFT JOIN … ON TRUE keeps rows without items. `JOIN LATERAL explode(…) AS t (x)` too",
        ),
        Supported(
            "groups of what comes out",
            "SELECT tag, window_end, COUNT(*) AS n FROM clicks LATERAL VIEW explode(tags) t AS tag "
            "GROUP BY tag, TUMBLE(ts, INTERVAL '1' MINUTE)",
            "and joins of it. A record counts as processed if it has an item, else as filtered",
        ),
    ),
    "Joins with a reference table": (
        Supported(
            "JOIN … ON",
            "SELECT a.user_id, p.title FROM clicks a JOIN pages p ON a.page = p.page",
            "the table as the epoch's plan has pinned it; several partners give several rows",
        ),
        Supported(
            "LEFT JOIN",
            "SELECT a.user_id, p.title FROM clicks a LEFT JOIN pages p ON a.page = p.page "
            "AND a.amount > 0",
            "ON takes equalities with columns of the table, and conditions on the stream",
        ),
        Supported(
            "LEFT SEMI JOIN, LEFT ANTI JOIN",
            "SELECT a.user_id FROM clicks a LEFT ANTI JOIN pages p ON a.page = p.page",
        ),
        Supported(
            "WHERE [NOT] EXISTS (SELECT …), [NOT] IN (SELECT …)",
            "SELECT user_id FROM clicks WHERE page IN (SELECT page FROM pages) AND amount > 1",
            "the same as these; see Joins",
        ),
        Supported(
            "(SELECT max(x) FROM table WHERE …) as a value",
            "SELECT page, amount FROM clicks WHERE amount > (SELECT avg(weight) FROM pages "
            "WHERE title <> 'old') OR page IS NULL",
            "one expression of COUNT, SUM, AVG, MIN, MAX and the like over the table as it is "
            "pinned, in WHERE and in SELECT of rows; it does not look at the row around it",
        ),
        Supported(
            "a window over a join",
            "SELECT p.title, window_end, SUM(p.weight) AS weight FROM clicks a "
            "JOIN pages p USING (page) GROUP BY p.title, TUMBLE(a.ts, INTERVAL '1' MINUTE)",
            "event time passes through, and so does the `_weight` of rows that are taken back; "
            "they join a table that never changes",
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
            "HOP and CUMULATE too; GROUP BY, or SELECT DISTINCT, names the window's edges",
        ),
        Supported(
            "TABLE(SESSION(TABLE t PARTITION BY key, DESCRIPTOR(time), gap))",
            "SELECT user_id, window_start, window_end, COUNT(*) AS n "
            "FROM TABLE(SESSION(TABLE clicks PARTITION BY user_id, DESCRIPTOR(ts), "
            "INTERVAL '30' MINUTE)) GROUP BY user_id, window_start, window_end",
            "sessions of each key, or of several: (a, b); GROUP BY lists the same. Without "
            "PARTITION BY, of the whole table",
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
            "a session ends `gap` after its last event; an event exactly then still belongs to it,"
            " as in Spark and Flink",
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
        Supported(
            "allowed.lateness = '1m'",
            "SELECT window_end, COUNT(*) AS n FROM clicks GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE) "
            "EMIT ON WINDOW CLOSE WITH (allowed.lateness = '1m')",
            "windows and sessions of this view close a minute later, and take records that are so "
            "late. With EMIT CHANGES they are corrected for so long",
        ),
        Supported(
            "state.added = 'null', 'from_now'",
            "SELECT window_end, COUNT(*) AS n, MAX(amount) AS most FROM clicks "
            "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE) "
            "EMIT ON WINDOW CLOSE WITH (state.added = 'null')",
            "what rows that are there show of an aggregate that is added; without it such a change "
            "is refused. With EMIT CHANGES too",
        ),
    ),
    "Joins": (
        Supported(
            "JOIN … ON within an interval",
            "SELECT a.user_id, a.page, b.page AS next FROM clicks a JOIN clicks b "
            "ON a.user_id = b.user_id AND a.amount < b.amount "
            "AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '10' MINUTE",
            "a pair is put out once, when its second row comes. Also with <, <=, >, >= and -",
        ),
        Supported(
            "LEFT, RIGHT, FULL [OUTER] JOIN",
            "SELECT a.page, b.page AS bought FROM clicks a LEFT JOIN clicks b "
            "ON a.user_id = b.user_id AND b.amount > 0 "
            "AND b.ts > a.ts AND b.ts < a.ts + INTERVAL '1' HOUR",
            "a row without a partner is put out when the watermark says that none can come. Parts "
            "of ON are equalities, comparisons of the left with the right, or over one side",
        ),
        Supported(
            "[LEFT] SEMI JOIN, [LEFT] ANTI JOIN",
            "SELECT a.user_id, a.page FROM clicks a ANTI JOIN clicks b ON a.user_id = b.user_id "
            "AND b.ts > a.ts AND b.ts <= a.ts + INTERVAL '1' HOUR",
            "each row of the left once, if it has a partner, or none",
        ),
        Supported(
            "WHERE [NOT] EXISTS (SELECT … FROM … WHERE …)",
            "SELECT user_id, page FROM clicks a WHERE amount > 0 AND NOT EXISTS (SELECT 1 FROM "
            "clicks b WHERE b.user_id = a.user_id AND b.ts > a.ts "
            "AND b.ts <= a.ts + INTERVAL '1' HOUR)",
            "a semi or anti join: its WHERE is what ON would be. Between the ANDs of WHERE",
        ),
        Supported(
            "WHERE x IN (SELECT y FROM …)",
            "SELECT user_id, page FROM clicks a WHERE (user_id, page) IN (SELECT user_id, page "
            "FROM clicks b WHERE b.ts BETWEEN a.ts - INTERVAL '1' HOUR AND a.ts - INTERVAL '1' "
            "SECOND)",
            "a semi join too. NOT IN where both sides are columns that a source declares NOT NULL",
        ),
        Supported(
            "a join of windows",
            "SELECT a.window_end, a.page FROM "
            "TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) a JOIN "
            "TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) b "
            "ON a.page = b.page "
            "AND a.window_start = b.window_start AND a.window_end = b.window_end",
            "put out when the window closes; of all kinds of joins",
        ),
        Supported(
            "JOIN with EMIT CHANGES",
            "SELECT a.user_id, a.page, p.at FROM clicks a LEFT JOIN plain p ON a.user_id = p.id "
            "EMIT CHANGES WITH (state.ttl = 'unbounded')",
            "rows join whose event times are less than `state.ttl` apart. What either side takes "
            "back is taken back, and so is a row without a partner that gets one",
        ),
        Supported(
            "JOIN … USING",
            "SELECT user_id, a.page, b.page AS other FROM clicks a JOIN clicks b USING (user_id) "
            "EMIT CHANGES WITH (state.ttl = '1h')",
        ),
        Supported(
            "several joins in one query",
            "SELECT a.page, b.page AS second, c.page AS third FROM clicks a JOIN clicks b "
            "ON a.user_id = b.user_id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' MINUTE "
            "JOIN clicks c ON b.user_id = c.user_id "
            "AND c.ts BETWEEN b.ts AND b.ts + INTERVAL '1' MINUTE",
            "up to 8 in a view, from left to right",
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
            "every aggregate undoes a row of `_weight` -1 by itself. COUNT, SUM and AVG take it "
            "away, of exact numbers: of a DOUBLE they are refused there, CAST it AS DECIMAL. The "
            "others keep every value of a key with its count. So for every input with "
            "`_weight`, unless the query says `_weight` itself. Sessions and "
            "APPROX_COUNT_DISTINCT cannot be undone, and are refused",
        ),
        Supported(
            "the first n of rows that are taken back",
            "SELECT page, n FROM (SELECT page, COUNT(*) AS n FROM clicks GROUP BY page) QUALIFY "
            "ROW_NUMBER() OVER (ORDER BY n DESC) <= 10 "
            "EMIT CHANGES WITH (state.ttl = 'unbounded')",
            "the state holds every row of a key: when one is taken back, the next moves up",
        ),
    ),
    "Aggregates": AGGREGATES,
}
