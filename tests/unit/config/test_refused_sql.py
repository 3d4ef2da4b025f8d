"""What a query may not hold is refused by its name, with its place and what to do instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.config.folders import mistakes, wrong_query

W = "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)"

REFUSED = [
    ("SELECT page FROM clicks JOIN plain ON a = id", "1:39: the join has no column `a`"),
    ("SELECT page FROM clicks a, plain b", "1:26: CROSS JOIN would compare every row"),
    ("SELECT DISTINCT page FROM clicks", "1:8: SELECT DISTINCT without EMIT CHANGES has no"),
    ("SELECT page FROM clicks ORDER BY page", "1:25: ORDER BY is not supported yet"),
    ("SELECT page FROM clicks LIMIT 3", "1:25: LIMIT is not supported yet"),
    (
        "SELECT rank() OVER (ORDER BY ts) AS r FROM clicks",
        "1:8: OVER of anything but",
    ),
    ("SELECT (SELECT 1) AS x FROM clicks", "1:8: a scalar subquery is not supported"),
    ("SELECT 1 AS x FROM clicks WHERE page IN (SELECT id FROM plain)", "1:33: a join of streams"),
    ("WITH clicks AS (SELECT at FROM plain) SELECT at FROM clicks", "1:6: there is already a"),
    ("WITH x (a) AS (SELECT ts FROM clicks) SELECT ts FROM x", "1:6: a list of columns is not"),
    (f"SELECT page, count(*) AS n FROM clicks {W[:8]} page", "1:40: GROUP BY without a window"),
    ("SELECT count(*) AS n FROM clicks", "1:8: COUNT cannot be used in SELECT here"),
    ("SELECT page FROM clicks UNION SELECT page FROM clicks", "1:25: UNION without ALL is not"),
    ("SELECT page FROM clicks EXCEPT SELECT page FROM clicks", "1:25: EXCEPT is not supported"),
    ("SELECT upper(explode(tags)) AS t FROM clicks", "1:14: explode(…) inside an expression"),
    ("SELECT page FROM clicks WHERE explode(tags) = 'a'", "1:31: explode(…) inside an expression"),
    (
        f"SELECT explode(tags) AS t, count(*) AS n FROM clicks {W}",
        "1:8: explode(…) inside an expression, outside SELECT, or beside groups",
    ),
    ("SELECT explode(tags) FROM clicks", "1:8: `explode(…)` needs a name (add AS and a name)"),
    (
        "SELECT explode(tags) AS t, explode(tags) AS u FROM clicks",
        "1:28: a second explode(…) in SELECT is not",
    ),
    ("SELECT page FROM clicks LATERAL VIEW json_tuple(page, 'a') t AS x", "1:38: a function that"),
    ("SELECT page FROM clicks LATERAL VIEW inline(tags) t", "1:38: inline or UNNEST whose columns"),
    (
        "SELECT page FROM clicks LATERAL VIEW explode(tagz) t AS x",
        "1:46: `clicks` has no column `tagz` (did you mean `tags`?)",
    ),
    (
        "SELECT page FROM clicks LATERAL VIEW explode(tags) clicks AS x",
        "1:38: two inputs are called `clicks`",
    ),
    ("SELECT page FROM clicks LATERAL VIEW explode(tags) t AS _x", "1:38: the name `_x` is reserv"),
    (
        "SELECT page, x FROM clicks LATERAL VIEW posexplode(tags) t AS x, x",
        "1:41: two columns are called `x`",
    ),
    (
        "SELECT page FROM clicks LATERAL VIEW explode(tags) t AS page",
        "1:8: `page` may be a column of several inputs",
    ),
    ("SELECT page FROM clicks c CROSS JOIN UNNEST(c.tags) t", "1:38: inline or UNNEST whose"),
    ("SELECT page FROM UNNEST(array(1)) AS t (x)", "1:18: UNNEST in FROM is not supported"),
    (
        "SELECT x FROM clicks FULL JOIN UNNEST(tags) AS t (x) ON TRUE",
        "1:32: UNNEST or LATERAL in anything but",
    ),
    (
        "SELECT x FROM clicks LEFT JOIN UNNEST(tags) AS t (x) ON x > 'a'",
        "1:32: a condition in ON of UNNEST",
    ),
    ("SELECT x FROM clicks OUTER APPLY explode(tags) AS t (x)", "1:22: UNNEST or LATERAL in any"),
    ("SELECT x FROM clicks, LATERAL (SELECT 1) AS t (x)", "1:23: a function that makes several"),
    (f"SELECT count(*) AS n FROM clicks {W}, CUBE(page)", "1:76: CUBE is not supported yet"),
    (f"SELECT count(page, ts) AS n FROM clicks {W}", "1:8: COUNT takes one argument"),
    (f"SELECT avg(DISTINCT amount) AS n FROM clicks {W}", "1:21: DISTINCT inside this aggregate"),
    (f"SELECT percentile(amount, 2) AS n FROM clicks {W}", "1:8: a percentage has to be written"),
    (f"SELECT percentile(amount, amount) AS n FROM clicks {W}", "1:8: a percentage has to be"),
    (f"SELECT percentile_cont(0.5) AS n FROM clicks {W}", "1:8: PERCENTILE_CONT needs an order"),
    (
        f"SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY ts DESC) AS n FROM clicks {W}",
        "1:8: PERCENTILE_DISC goes by one expression, ascending",
    ),
    (f"SELECT listagg(page, page) AS n FROM clicks {W}", "1:8: the separator has to be written"),
    (
        f"SELECT approx_count_distinct(page, 0.0001) AS n FROM clicks {W}",
        "1:8: the relative deviation has to be written out",
    ),
    (
        f"SELECT approx_percentile(amount, 0.5, user_id) AS n FROM clicks {W}",
        "1:8: the accuracy has to be written out",
    ),
    (f"SELECT min_by(page) AS n FROM clicks {W}", "1:8: MIN_BY takes two arguments here"),
    ("SELECT first(id) AS n FROM plain EMIT CHANGES", "1:8: FIRST goes by event time, and `plain`"),
    ("SELECT lower(page) FILTER (WHERE true) AS n FROM clicks", "1:8: FILTER (WHERE …) stands"),
    (f"SELECT try_sum(amount) AS n FROM clicks {W}", "1:8: the aggregate try_sum() is not"),
    ("SELECT page FROM clicks EMIT CHANGES", "1:25: view `m` has no groups that could change"),
    ("SELECT page FROM clicks EMIT FINAL", "1:30: EMIT FINAL is not supported yet"),
    ("SELECT page FROM clicks TABLESAMPLE (10 PERCENT)", "1:25: TABLESAMPLE is not supported"),
    ("SELECT /*+ BROADCAST(c) */ page FROM clicks", "1:8: a hint is not supported yet"),
    ("SELECT struct(*) AS s FROM clicks", "1:15: * outside COUNT(*) and SELECT * is not"),
    ("SELECT page FROM range(3)", "1:18: RANGE in FROM is not supported"),
    ("SELECT page FROM db.clicks", "1:18: a table's name has one part"),
    ("SELECT system.builtin.rand() AS r FROM clicks", "1:23: `rand` is called with a qualifier"),
    ("SELECT :x AS a FROM clicks", "1:8: a parameter is not supported yet"),
    ("SELECT ${x} AS a FROM clicks", "1:8: `$` cannot stand in a query"),
    ("SELECT window(ts, '1 minute') AS w FROM clicks", "1:8: window() is not supported"),
    ("VALUES (1)", "1:1: VALUES is not supported as a query"),
    ("SELECT 1 AS x", "1:1: the query has no FROM"),
    ("INSERT INTO x SELECT 1", "1:1: a statement cannot begin with `INSERT`"),
]


@pytest.mark.parametrize(("sql", "expected"), REFUSED)
def test_what_is_not_supported_is_refused_by_name(tmp_path: Path, sql: str, expected: str) -> None:
    (found,) = wrong_query(tmp_path, sql)
    assert found.startswith(f"models/m.sql:{expected}")


WRONG = [
    ("SELECT pge FROM clicks", "1:8: `clicks` has no column `pge` (did you mean `page`?)"),
    ("SELECT c.pge FROM clicks c", "1:8: `clicks` has no column `c.pge` (did you mean `page`?)"),
    ("SELECT clicks.page FROM clicks c", "1:8: there is no `clicks` here (did you mean `c.page`?)"),
    ("SELECT x FROM clickz", "1:15: there is no source or view `clickz` (did you mean `clicks`?)"),
    (
        "SELECT lwer(page) AS p FROM clicks",
        "1:8: there is no function `lwer` (did you mean `lower`?)",
    ),
    ("SELECT page || 'x' FROM clicks", "1:8: `page || 'x'` needs a name (add AS and a name)"),
    ("SELECT page AS _x FROM clicks", "1:16: the name `_x` is reserved (begin it with a letter)"),
    (
        "SELECT ts AS window_start FROM clicks",
        "1:14: the name `window_start` is reserved (it is for the edges of a window)",
    ),
    (
        "SELECT page, Page FROM clicks",
        "1:1: two columns are called `Page` (rename one with AS)",
    ),
    (
        "SELECT page FORM clicks",
        "1:18: `clicks` cannot stand here (did you mean `FROM` in place of `FORM`?)",
    ),
    ("SELECT page FROM clicks WHERE", "1:30: the query ends too early, after `WHERE`"),
    (
        "SELECT (page FROM clicks",
        "1:14: `FROM` cannot stand here (the ( at models/m.sql:1:8 is never closed)",
    ),
    (
        "SELECT page FROM clicks\n  EMIT ON WINDOW CLOSE",
        "2:3: view `m` has no window to close "
        "(leave it out; it is for views with TUMBLE or the like)",
    ),
    (
        f"SELECT page, count(*) AS n FROM clicks {W}",
        "1:8: `page` is neither grouped by nor aggregated (add it to GROUP BY, or aggregate it)",
    ),
    (
        "SELECT count(*) AS n FROM plain GROUP BY TUMBLE(at, INTERVAL '1' MINUTE)",
        "1:49: `at` of `plain` is not event time, so its windows would never close (add `WATERMARK "
        "FOR at AS at - INTERVAL '5' SECOND` to the source, and pass the column on as it is)",
    ),
    (
        "SELECT count(*) AS n FROM clicks GROUP BY TUMBLE(page, INTERVAL '1' MINUTE)",
        "1:50: `page` of `clicks` is not event time, so its windows would never close "
        "(event time here: ts)",
    ),
    (
        "SELECT count(*) AS n FROM clicks GROUP BY TUMBLE(ts, INTERVAL '1' MONTH)",
        "1:43: TUMBLE: a MONTH has no fixed length; give it in days or shorter",
    ),
    (
        "SELECT count(*) AS n FROM clicks GROUP BY TUMBLE(ts, INTERVAL '0' SECOND)",
        "1:43: TUMBLE with a length of 0 holds nothing",
    ),
    (
        "SELECT count(*) AS n FROM clicks GROUP BY HOP(ts, INTERVAL '2' HOUR, INTERVAL '5' HOUR)",
        "1:43: the size of HOP is no multiple of its slide "
        "(for example HOP(ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE))",
    ),
    (
        f"SELECT TUMBLE_END(ts, INTERVAL '2' MINUTE) AS e FROM clicks {W}",
        "1:8: TUMBLE_END is of another window than the one in GROUP BY (write window_end)",
    ),
    (
        "SELECT sum(n) AS n FROM per_minute GROUP BY TUMBLE(window_start, INTERVAL '1' SECOND)",
        "1:52: `window_start` begins a window of INTERVAL '1' MINUTE: its rows would come too late "
        "(use the column that is its window_end, or a multiple of that length)",
    ),
    (
        "SELECT count(*) AS n FROM clicks GROUP BY SESSION(ts)",
        "1:43: SESSION is called with 1 arguments (write SESSION(time, gap INTERVAL '…'))",
    ),
    (
        "SELECT 1 AS n FROM clicks GROUP BY CUMULATE(ts, INTERVAL '7' HOUR, INTERVAL '1' DAY)",
        "1:36: the size of CUMULATE is no multiple of its step "
        "(for example CUMULATE(ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE))",
    ),
    (
        "SELECT sum(n) AS n FROM per_minute GROUP BY SESSION(window_start, INTERVAL '1' DAY)",
        "1:53: `window_start` begins a window of INTERVAL '1' MINUTE: its rows would come too late "
        "(use the column that is its window_end, or a multiple of that length)",
    ),
    (
        "SELECT page, count(*) AS n FROM clicks GROUP BY page EMIT CHANGES WITH (state.tll = '1d')",
        "1:54: EMIT CHANGES by key without `state.ttl` would keep every key for ever (say how long "
        "a key is kept after its last event: EMIT CHANGES WITH (state.ttl = '30d'); or that it may "
        "grow: state.ttl = 'unbounded')\n"
        "1:73: unknown option `state.tll` (did you mean `state.ttl`?)",
    ),
    (
        "SELECT page, count(*) AS n FROM clicks GROUP BY page EMIT CHANGES WITH (state.ttl = '1y')",
        "1:73: `state.ttl`: '1y' is not a duration such as 500ms, 30s, 15m, 1h or 7d "
        "(such as '30d', or 'unbounded')",
    ),
    (
        f"SELECT count(*) AS n FROM clicks {W} EMIT CHANGES WITH (state.ttl = '1d')",
        "1:94: `state.ttl` is for groups without a window (leave it out: a window ends by itself)",
    ),
    (
        f"SELECT count(*) AS n FROM clicks {W} EMIT ON WINDOW CLOSE WITH (state.ttl = '1d')",
        "1:102: `state.ttl` is for EMIT CHANGES (leave it out: a window ends by itself)",
    ),
    (
        f"SELECT count(*) AS n FROM clicks {W} EMIT CHANGES WITH (state.added = 'zero')",
        "1:94: `state.added` cannot be 'zero' ('null': rows that are there show NULL; "
        "'from_now': they count what is to come)",
    ),
    (
        f"SELECT count(*) AS n FROM clicks {W} EMIT CHANGES WITH (allowed.lateness = 'long')",
        "1:94: `allowed.lateness`: 'long' is not a duration such as 500ms, 30s, 15m, 1h or 7d "
        "(such as '1m')",
    ),
    (
        "SELECT page, count(*) AS n FROM clicks GROUP BY page "
        "EMIT CHANGES WITH (state.ttl = '1d', allowed.lateness = '1m')",
        "1:91: `allowed.lateness` is for windows and sessions "
        "(leave it out, or give the source's watermark more delay)",
    ),
    (
        "SELECT DISTINCT * FROM clicks EMIT CHANGES",
        "1:17: SELECT * cannot stand with DISTINCT (list the columns)",
    ),
    (
        "SELECT ts FROM (SELECT row_number() OVER (ORDER BY ts) AS ts FROM clicks "
        "UNION ALL SELECT 1 FROM plain) WHERE ts = 1 EMIT CHANGES",
        "1:24: ROW_NUMBER without a limit would keep every row (say WHERE rn = 1 or rn <= n in the "
        "query around it, or QUALIFY ROW_NUMBER() … <= n)\n"
        "1:84: this query of a UNION ALL has 1 columns, the first has 2 "
        "(each has the same columns in the same order)",
    ),
    (
        "SELECT row_number() OVER (ORDER BY ts) AS a, row_number() OVER (ORDER BY page) AS b "
        "FROM clicks QUALIFY a = 1 EMIT CHANGES",
        "1:46: OVER of anything but one ROW_NUMBER is not supported yet "
        "(use GROUP BY TUMBLE(…) or HOP(…))",
    ),
    (
        "SELECT *, row_number() OVER (ORDER BY ts) AS rn FROM clicks EMIT CHANGES",
        "1:1: ROW_NUMBER without a limit would keep every row (say WHERE rn = 1 or rn <= n in the "
        "query around it, or QUALIFY ROW_NUMBER() … <= n)",
    ),
    (
        "SELECT approx_count_distinct(n) AS n FROM (SELECT page, count(*) AS n FROM clicks "
        "GROUP BY page) EMIT CHANGES WITH (state.ttl = 'unbounded')",
        "1:8: a sketch of the query in FROM cannot undo a row that is taken back (write "
        "COUNT(DISTINCT x), which keeps every value)",
    ),
    (
        f"SELECT lower(page) AS page, count(*) AS n FROM clicks {W}, page HAVING page > 'a'",
        "1:109: `page` is both a column of the input and a column of SELECT "
        "(give the column of SELECT another name)",
    ),
    (
        f"SELECT sum(sum(amount)) AS n FROM clicks {W}",
        "1:12: an aggregate stands inside an aggregate (use a view between)",
    ),
    (
        "SELECT page FROM clicks WHERE count(*) > 1",
        "1:31: COUNT cannot be used in WHERE here (use HAVING)",
    ),
    (
        "SELECT page FROM clicks UNION ALL SELECT page, ts FROM clicks",
        "1:35: this query of a UNION ALL has 2 columns, the first has 1 "
        "(each has the same columns in the same order)",
    ),
    ("SELECT page FROM m", "1:1: views read each other in a circle: m → m (break it at one view)"),
    (
        "SELECT page FROM clicks; SELECT ts FROM clicks",
        "1:26: there is already a source, reference table or view `m` "
        "(the other is at models/m.sql:1:1)",
    ),
    ("SELECT 'abc FROM clicks", "1: a ' is never closed (close it with ')"),
]


@pytest.mark.parametrize(("sql", "expected"), WRONG)
def test_a_mistake_has_its_place_and_the_nearest_spelling(
    tmp_path: Path, sql: str, expected: str
) -> None:
    lines = [f"models/m.sql:{each}" for each in expected.split("\n")]
    assert wrong_query(tmp_path, sql) == lines


def test_all_mistakes_come_at_once_from_top_to_bottom(tmp_path: Path) -> None:
    files = {
        "pipeline.yml": "name: shop\nstore: x\nbukets: 3\n",
        "sources.sql": "CREATE SOURCE TABLE a (x BIGNT, y INT) WITH (path = 'p');\nCREATE SNK b;",
        "models/one.sql": "SELECT y, z FROM a ORDER BY y",
        "models/two.sql": "SELECT now() AS n FROM one LIMIT 3",
        "sinks.sql": "CREATE SINK s FROM tow WITH (connector = 'sqlite', user = '${NOBODY}')",
    }
    assert mistakes(tmp_path, files) == [
        "models/one.sql:1:11: `a` has no column `z` (columns: x, y)",
        "models/one.sql:1:20: ORDER BY is not supported yet "
        "(order the rows when you read the sink)",
        "models/two.sql:1:8: `now()` reads the wall clock, so view `two` is not deterministic (use "
        "event time, or epoch_time() for the epoch's logical clock; or allow it with "
        "`determinism: warn`)",
        "models/two.sql:1:28: LIMIT is not supported yet (a stream has no first rows)",
        "pipeline.yml:3: unknown key `bukets` (did you mean `buckets`?)",
        "sinks.sql:1:20: sink `s` reads from `tow`, which is no view (did you mean `two`?)",
        "sinks.sql:1:52: the environment has no NOBODY (set NOBODY)",
        "sources.sql:1:26: `BIGNT` is not a type (did you mean `BIGINT`?)",
        "sources.sql:1:40: source `a` has no `connector` (for example connector = 'file')",
        "sources.sql:2:8: `SNK` cannot be created: CREATE SOURCE TABLE, CREATE REFERENCE "
        "TABLE, CREATE MATERIALIZED VIEW "
        "or CREATE SINK (did you mean `SINK`?)",
    ]


def test_a_broken_view_is_told_once_and_not_again_where_it_is_read(tmp_path: Path) -> None:
    files = {
        "models/one.sql": "SELECT x FROM nowhere",
        "models/two.sql": "SELECT x, y FROM one WHERE z",
        "models/three.sql": "SELECT count(*) AS n FROM two GROUP BY TUMBLE(y, INTERVAL '1' HOUR)",
        "sinks.sql": "CREATE SINK s FROM three WITH (connector = 'sqlite')",
    }
    (found,) = mistakes(tmp_path, files)
    assert found.startswith("models/one.sql:1:15: there is no source or view `nowhere`")


def test_a_circle_is_named_once(tmp_path: Path) -> None:
    files = {f"models/{a}.sql": f"SELECT x FROM {b}" for a, b in ("ab", "bc", "ca", "da")}
    assert mistakes(tmp_path, files) == [
        "models/a.sql:1:1: views read each other in a circle: a → b → c → a (break it at one view)"
    ]
