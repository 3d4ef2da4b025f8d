"""The constructs of SQL that are not supported, by their names to a user.

The errors that a user reads and the page ``docs/sql.md`` (``page.py``) both come from here. Each
has an example; a test checks that every one of them is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import TokenType, exp

from laminar_dagster.config.sql.generator_refusals import GENERATORS
from laminar_dagster.config.sql.join_refusals import (
    BETWEEN_ANDS,
    JOINS,
    REFERENCES,
    SCALARS,
    SUBQUERIES,
)
from laminar_dagster.config.sql.lambdas import LAMBDAS
from laminar_dagster.config.sql.logical_clock import CLOCKS
from laminar_dagster.config.sql.refusal import Refusal

_MINUTE: Final = "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)"


# Refusals of clauses of a SELECT, by sqlglot's names.
CLAUSES: Final[Mapping[str, Refusal]] = {
    "recursive": Refusal(
        "WITH RECURSIVE",
        "",
        (TokenType.WITH,),
        "WITH RECURSIVE x AS (SELECT page FROM clicks) SELECT page FROM x",
    ),
    "order": Refusal(
        "ORDER BY",
        "order the rows when you read the sink",
        (TokenType.ORDER_BY,),
        "SELECT page FROM clicks ORDER BY page",
    ),
    "sort": Refusal(
        "SORT BY",
        "order the rows when you read the sink",
        (TokenType.SORT_BY,),
        "SELECT page FROM clicks SORT BY page",
    ),
    "cluster": Refusal(
        "CLUSTER BY",
        "leave it out; it changes no row",
        (TokenType.CLUSTER_BY,),
        "SELECT page FROM clicks CLUSTER BY page",
    ),
    "distribute": Refusal(
        "DISTRIBUTE BY",
        "leave it out; it changes no row",
        (TokenType.DISTRIBUTE_BY,),
        "SELECT page FROM clicks DISTRIBUTE BY page",
    ),
    "limit": Refusal(
        "LIMIT",
        "a stream has no first rows",
        (TokenType.LIMIT, TokenType.FETCH),
        "SELECT page FROM clicks LIMIT 3",
    ),
    "offset": Refusal(
        "OFFSET",
        "a stream has no first rows",
        (TokenType.OFFSET,),
        "SELECT page FROM clicks OFFSET 3",
    ),
    "qualify": Refusal(
        "QUALIFY of anything but ROW_NUMBER",
        "use WHERE or HAVING",
        (TokenType.QUALIFY,),
        "SELECT page FROM clicks QUALIFY page > 'a'",
    ),
    "windows": Refusal(
        "WINDOW",
        "use a window of time in GROUP BY",
        (TokenType.WINDOW,),
        "SELECT page FROM clicks WINDOW w AS (PARTITION BY page)",
    ),
    "pivots": Refusal(
        "PIVOT",
        "aggregate a CASE for each column",
        (TokenType.PIVOT, TokenType.UNPIVOT),
        "SELECT * FROM clicks PIVOT (count(user_id) FOR page IN ('a', 'b'))",
    ),
    "sample": Refusal(
        "TABLESAMPLE",
        "filter by xxhash64() of a column",
        (TokenType.TABLE_SAMPLE,),
        "SELECT page FROM clicks TABLESAMPLE (10 PERCENT)",
    ),
    "hint": Refusal(
        "a hint",
        "set it under `spark` in pipeline.yml",
        (TokenType.HINT,),
        "SELECT /*+ BROADCAST(c) */ page FROM clicks",
    ),
    "match": Refusal("MATCH_RECOGNIZE", "", (TokenType.MATCH_RECOGNIZE,)),
    "into": Refusal("INTO", "use CREATE SINK", (TokenType.INTO,)),
    "kind": Refusal("SELECT AS STRUCT", "use struct(…)", (TokenType.STRUCT,)),
    "exclude": Refusal("SELECT * EXCEPT", "list the columns", (TokenType.EXCEPT,)),
    "operation_modifiers": Refusal("a modifier of SELECT"),
    "partition": Refusal("PARTITION", "", (TokenType.PARTITION,)),
    "version": Refusal("a version of a table"),
    "when": Refusal("a version of a table"),
    "system_time": Refusal("a version of a table"),
}

# Refusals of queries without a window whose groups never close, or whose state grows for ever.
ENDLESS: Final[Mapping[str, Refusal]] = {
    "group": Refusal(
        "GROUP BY without a window",
        "add EMIT CHANGES WITH (state.ttl = '30d'), or a window: "
        "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
        (TokenType.GROUP_BY,),
        "SELECT page, COUNT(*) AS n FROM clicks GROUP BY page",
        "has no end at which it could be put out",
    ),
    "distinct": Refusal(
        "SELECT DISTINCT without EMIT CHANGES",
        "add EMIT CHANGES WITH (state.ttl = '30d')",
        (TokenType.DISTINCT,),
        "SELECT DISTINCT page FROM clicks",
        "has no end at which it could be put out",
    ),
    "rank": Refusal(
        "ROW_NUMBER without EMIT CHANGES",
        "add EMIT CHANGES WITH (state.ttl = '30d')",
        (),
        "SELECT page FROM clicks QUALIFY ROW_NUMBER() OVER (PARTITION BY page ORDER BY ts) = 1",
        "has no end at which it could be put out",
    ),
    "keys": Refusal(
        "EMIT CHANGES by key without `state.ttl`",
        "say how long a key is kept after its last event: EMIT CHANGES WITH (state.ttl = '30d'); "
        "or that it may grow: state.ttl = 'unbounded'",
        (),
        "SELECT page, COUNT(*) AS n FROM clicks GROUP BY page EMIT CHANGES",
        "would keep every key for ever",
    ),
    "clock": Refusal(
        "`state.ttl` of a query without event time",
        "add WATERMARK FOR to the source and pass the column on, or set state.ttl = 'unbounded'",
        (),
        "SELECT id, COUNT(*) AS n FROM plain GROUP BY id EMIT CHANGES WITH (state.ttl = '1d')",
        "has no clock by which a key could go",
    ),
}


_NUMBERED: Final = "SELECT *, ROW_NUMBER() OVER (PARTITION BY page ORDER BY ts) AS rn FROM clicks"

# Refusals of ROW_NUMBER.
RANKS: Final[Mapping[str, Refusal]] = {
    "limit": Refusal(
        "ROW_NUMBER without a limit",
        "say WHERE rn = 1 or rn <= n in the query around it, or QUALIFY ROW_NUMBER() … <= n",
        example=f"SELECT page FROM ({_NUMBERED}) WHERE page > 'a' "
        "EMIT CHANGES WITH (state.ttl = '1d')",
        why="would keep every row",
    ),
    "spec": Refusal(
        "ROW_NUMBER without ORDER BY, or with a frame",
        "write ROW_NUMBER() OVER (PARTITION BY … ORDER BY …)",
        example="SELECT page FROM clicks QUALIFY ROW_NUMBER() OVER (PARTITION BY page) = 1 "
        "EMIT CHANGES WITH (state.ttl = '1d')",
        why="has no first rows",
    ),
    "beside": Refusal(
        "a condition beside the limit of ROW_NUMBER in QUALIFY",
        "say it by WHERE in a query around: FROM (SELECT … QUALIFY …) WHERE …",
        example=f"{_NUMBERED} QUALIFY rn <= 2 AND page > 'a' EMIT CHANGES WITH (state.ttl = '1d')",
    ),
    "another": Refusal(
        "QUALIFY of another ROW_NUMBER than the one in SELECT",
        "write its name in QUALIFY, or leave it out of SELECT",
        example=f"{_NUMBERED} QUALIFY ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY ts) = 1 "
        "EMIT CHANGES WITH (state.ttl = '1d')",
    ),
    "groups": Refusal(
        "QUALIFY beside GROUP BY, DISTINCT or aggregates",
        "number the rows in a query around: FROM (SELECT … GROUP BY …) QUALIFY ROW_NUMBER() …",
        (TokenType.QUALIFY,),
        "SELECT page, COUNT(*) AS n FROM clicks GROUP BY page "
        "QUALIFY ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC) <= 3 "
        "EMIT CHANGES WITH (state.ttl = '1d')",
    ),
}

_SESSION: Final = "TABLE(SESSION(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
_TUMBLE: Final = "TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"

# Refusals of a window as a table function in FROM.
TABLE_WINDOWS: Final[Mapping[str, Refusal]] = {
    "group": Refusal(
        "GROUP BY without the edges of a window in FROM",
        "add window_start, window_end to GROUP BY",
        (TokenType.GROUP_BY,),
        f"SELECT page, COUNT(*) AS n FROM {_TUMBLE} GROUP BY page",
    ),
    "distinct": Refusal(
        "SELECT DISTINCT without the edges of a window in FROM",
        "add window_start, window_end to SELECT",
        (TokenType.DISTINCT,),
        f"SELECT DISTINCT page FROM {_TUMBLE}",
    ),
    "partition": Refusal(
        "SESSION in FROM whose PARTITION BY is not what GROUP BY lists",
        "write the keys in both: SESSION(TABLE t PARTITION BY (a, b), DESCRIPTOR(ts), gap) … "
        "GROUP BY a, b, window_start, window_end; without PARTITION BY, sessions are of the whole "
        "table",
        example=f"SELECT user_id, window_start, window_end, COUNT(*) AS n FROM {_SESSION} "
        "GROUP BY user_id, window_start, window_end",
    ),
    "where": Refusal(
        "WHERE over a SESSION in FROM",
        "choose the rows before: WITH chosen AS (SELECT … WHERE …) … SESSION(TABLE chosen …)",
        (TokenType.WHERE,),
        f"SELECT window_end, COUNT(*) AS n FROM {_SESSION} WHERE amount > 0 "
        "GROUP BY window_start, window_end",
    ),
}

GROUPINGS: Final[Mapping[str, Refusal]] = {
    "grouping_sets": Refusal(
        "GROUPING SETS",
        "list the columns",
        (TokenType.GROUPING_SETS,),
        f"SELECT count(*) AS n FROM clicks {_MINUTE}, GROUPING SETS (page)",
    ),
    "groupingsets": Refusal("GROUPING SETS", "list the columns", (TokenType.GROUPING_SETS,)),
    "cube": Refusal(
        "CUBE",
        "list the columns",
        (TokenType.CUBE,),
        f"SELECT count(*) AS n FROM clicks {_MINUTE}, CUBE(page)",
    ),
    "rollup": Refusal(
        "ROLLUP",
        "list the columns",
        (TokenType.ROLLUP,),
        f"SELECT count(*) AS n FROM clicks {_MINUTE}, ROLLUP(page)",
    ),
    "totals": Refusal("WITH TOTALS", "list the columns", (TokenType.WITH,)),
    "all": Refusal(
        "GROUP BY ALL",
        "list the columns",
        (TokenType.ALL,),
        "SELECT page, count(*) AS n FROM clicks GROUP BY ALL",
    ),
}

SET_OPERATIONS: Final[Mapping[str, Refusal]] = {
    "intersect": Refusal(
        "INTERSECT",
        "UNION ALL is",
        example="SELECT page FROM clicks INTERSECT SELECT page FROM clicks",
    ),
    "except": Refusal(
        "EXCEPT",
        "UNION ALL is",
        example="SELECT page FROM clicks EXCEPT SELECT page FROM clicks",
    ),
    "distinct": Refusal(
        "UNION without ALL",
        "write UNION ALL",
        example="SELECT page FROM clicks UNION SELECT page FROM clicks",
    ),
    "by_name": Refusal(
        "UNION BY NAME",
        "list the columns",
        example="SELECT page FROM clicks UNION ALL BY NAME SELECT page FROM clicks",
    ),
}

_CALL_ORDER: Final = Refusal("ORDER BY inside a function")
_PARAMETER: Final = Refusal(
    "a parameter",
    "write the value; ${NAME} works in WITH (…) alone",
    example="SELECT :name AS a FROM clicks",
)

# Refusals in expressions, by the kind of node.
EXPRESSIONS: Final[Mapping[type[exp.Expr], Refusal]] = {
    exp.Cube: Refusal("CUBE", "list the columns"),
    exp.Rollup: Refusal("ROLLUP", "list the columns"),
    exp.GroupingSets: Refusal("GROUPING SETS", "list the columns"),
    exp.Window: Refusal(
        "OVER of anything but one ROW_NUMBER",
        "use GROUP BY TUMBLE(…) or HOP(…)",
        example="SELECT rank() OVER (ORDER BY ts) AS place FROM clicks",
    ),
    exp.Select: SCALARS["place"],
    exp.Subquery: SCALARS["place"],
    exp.Union: SCALARS["shape"],
    exp.Exists: Refusal(
        "EXISTS (SELECT …) under OR or CASE, or outside WHERE",
        BETWEEN_ANDS,
        example="SELECT EXISTS (SELECT 1 FROM pages p WHERE p.page = a.page) AS x FROM clicks a",
    ),
    exp.Distinct: Refusal(
        "DISTINCT inside this aggregate",
        "COUNT, SUM, ARRAY_AGG and STRING_AGG take it",
        example=f"SELECT avg(DISTINCT amount) AS n FROM clicks {_MINUTE}",
    ),
    exp.WithinGroup: Refusal(
        "WITHIN GROUP of anything but STRING_AGG and percentiles",
        "the others need no order",
        example=f"SELECT mode() WITHIN GROUP (ORDER BY page) AS n FROM clicks {_MINUTE}",
    ),
    exp.IgnoreNulls: Refusal("IGNORE NULLS"),
    exp.RespectNulls: Refusal("RESPECT NULLS"),
    exp.Order: _CALL_ORDER,
    exp.Ordered: _CALL_ORDER,
    exp.Limit: Refusal("LIMIT inside a function"),
    exp.Star: Refusal(
        "* outside COUNT(*) and SELECT *",
        "list the columns",
        example="SELECT struct(*) AS s FROM clicks",
    ),
    exp.Placeholder: _PARAMETER,
    exp.Parameter: _PARAMETER,
    exp.SessionParameter: Refusal("a parameter", "write the value"),
    exp.Any: Refusal(
        "ANY",
        "write a LIKE ANY ('…', '…'), or any other condition with OR; the aggregate is BOOL_OR",
        example="SELECT page FROM clicks WHERE user_id = ANY (1, 2)",
    ),
    exp.All: Refusal("ALL", "write the conditions with AND"),
    exp.AtTimeZone: Refusal(
        "AT TIME ZONE",
        "use from_utc_timestamp(ts, 'zone')",
        example="SELECT ts AT TIME ZONE 'UTC' AS t FROM clicks",
    ),
    exp.PropertyEQ: Refusal(":="),
    exp.JSONExtract: Refusal(
        "extraction by : or ->",
        "use get_json_object(column, '$.path')",
        example="SELECT page -> 'a' AS a FROM clicks",
    ),
}


def refusals() -> tuple[Refusal, ...]:
    """Every refusal once, in the order in which a query is written."""
    beside = (CLAUSES, GENERATORS, JOINS, REFERENCES, SUBQUERIES, SCALARS, ENDLESS, RANKS)
    every = (*beside, TABLE_WINDOWS, GROUPINGS, SET_OPERATIONS, EXPRESSIONS, LAMBDAS, CLOCKS)
    named = {each.name: each for table in every for each in reversed([*table.values()])}
    order = dict.fromkeys(each.name for table in every for each in table.values())
    return tuple(named[name] for name in order)
