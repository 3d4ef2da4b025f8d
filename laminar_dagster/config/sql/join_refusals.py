"""Refusals of unsupported joins, and of subqueries that are read as joins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from laminar_dagster.config.sql.refusal import Refusal

_PAIRS: Final = "SELECT a.page FROM clicks a"
_WITHIN: Final = "b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' HOUR"
_BY_MINUTE: Final = "TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
BETWEEN_ANDS: Final = (
    "it stands in WHERE, alone or between ANDs; elsewhere LEFT JOIN the table, and ask whether its "
    "key IS NULL"
)

# Refusals of JOIN.
JOINS: Final[Mapping[str, Refusal]] = {
    "endless": Refusal(
        "a join of streams without an interval",
        "say how far apart their times may be: AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' HOUR; "
        "or how long a row waits for others: EMIT CHANGES WITH (state.ttl = '1d')",
        example=f"{_PAIRS} JOIN clicks b ON a.user_id = b.user_id",
        why="would keep every row for ever",
    ),
    "half": Refusal(
        "a join whose interval has one end",
        "give both: b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' HOUR",
        example=f"{_PAIRS} JOIN clicks b ON a.user_id = b.user_id AND b.ts >= a.ts",
        why="would keep every row for ever",
    ),
    "ttl": Refusal(
        "a join with EMIT CHANGES without `state.ttl`",
        "say how far apart the times of two rows may be: EMIT CHANGES WITH (state.ttl = '1d'); "
        "or that every row is kept: state.ttl = 'unbounded'",
        example=f"{_PAIRS} JOIN plain b ON a.user_id = b.id EMIT CHANGES",
        why="would keep every row for ever",
    ),
    "clock": Refusal(
        "`state.ttl` of a join without event time on both sides",
        "add WATERMARK FOR to the source and pass the column on, or set state.ttl = 'unbounded'",
        example=f"{_PAIRS} JOIN plain b ON a.user_id = b.id EMIT CHANGES WITH (state.ttl = '1d')",
        why="has no clock by which a row could go",
    ),
    "keys": Refusal(
        "a join without an equality of both sides",
        "add one to ON, or to WHERE of a subquery, such as a.id = b.id",
        example=f"{_PAIRS} JOIN clicks b ON {_WITHIN}",
        why="would compare every row with every other",
    ),
    "cross": Refusal(
        "CROSS JOIN",
        "use JOIN … ON with an equality of both sides",
        example=f"{_PAIRS} CROSS JOIN clicks b",
        why="would compare every row with every other",
    ),
    "natural": Refusal(
        "NATURAL JOIN",
        "name the columns: USING (id)",
        example=f"{_PAIRS} NATURAL JOIN clicks b",
    ),
    "asof": Refusal("ASOF JOIN", "use JOIN with an interval"),
    "right_semi": Refusal(
        "RIGHT SEMI or RIGHT ANTI JOIN",
        "write the inputs the other way round, with LEFT",
        example=f"{_PAIRS} RIGHT ANTI JOIN clicks b ON a.user_id = b.user_id AND {_WITHIN}",
    ),
    "condition": Refusal(
        "this condition in ON of an outer, semi or anti join",
        "each part of it is over one side, or compares something of the left with something of "
        "the right; use WHERE for others",
        example=f"{_PAIRS} LEFT JOIN clicks b ON a.user_id = b.user_id AND {_WITHIN} "
        "AND a.amount + b.amount > 3",
    ),
    "null_safe": Refusal(
        "<=> in ON",
        "use =, or coalesce(…) on both sides",
        example=f"{_PAIRS} JOIN clicks b ON a.user_id <=> b.user_id AND {_WITHIN}",
    ),
    "one_window": Refusal(
        "a join of a window with a stream",
        "put both sides into windows of the same kind: TABLE(TUMBLE(TABLE …))",
        example=f"SELECT a.page FROM {_BY_MINUTE} a JOIN clicks b ON a.user_id = b.user_id",
    ),
    "other_window": Refusal(
        "a join of windows that differ",
        "both have the same function, lengths and offset",
        example=f"SELECT a.page FROM {_BY_MINUTE} a JOIN "
        "TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '2' MINUTE)) b "
        "ON a.user_id = b.user_id AND a.window_start = b.window_start "
        "AND a.window_end = b.window_end",
    ),
    "session": Refusal(
        "SESSION in a join",
        "join by an interval",
        example="SELECT a.page FROM TABLE(SESSION(TABLE clicks, DESCRIPTOR(ts), "
        "INTERVAL '1' MINUTE)) a JOIN TABLE(SESSION(TABLE clicks, DESCRIPTOR(ts), "
        "INTERVAL '1' MINUTE)) b ON a.user_id = b.user_id",
    ),
    "edges": Refusal(
        "a join of windows whose edges are not equal",
        "add AND a.window_start = b.window_start AND a.window_end = b.window_end",
        example=f"SELECT a.page FROM {_BY_MINUTE} a JOIN {_BY_MINUTE} b ON a.user_id = b.user_id",
    ),
    "weight": Refusal(
        "a window join of rows that are taken back",
        "join by an interval, or with EMIT CHANGES",
    ),
    "many": Refusal("more than 8 joins in one view", "split it into views"),
}

_PRICED: Final = "SELECT a.page FROM clicks a"

# Refusals of a JOIN with a reference table.
REFERENCES: Final[Mapping[str, Refusal]] = {
    "alone": Refusal(
        "a reference table that is not joined with a stream",
        "read a source or a view, and JOIN the table",
        example="SELECT page FROM pages",
        why="brings no rows of its own",
    ),
    "first": Refusal(
        "a reference table before the JOIN",
        "write the stream first: FROM stream JOIN table",
        example="SELECT a.page FROM pages p JOIN clicks a ON a.page = p.page",
        why="brings no rows of its own",
    ),
    "both": Refusal(
        "a join of two reference tables",
        "join a stream with each of them",
        example="SELECT p.page FROM pages p JOIN pages q ON p.page = q.page",
        why="brings no rows of its own",
    ),
    "right": Refusal(
        "RIGHT JOIN with a reference table",
        "use LEFT JOIN or JOIN",
        example=f"{_PRICED} RIGHT JOIN pages p ON a.page = p.page",
        why="would put out what has no partner with every epoch anew",
    ),
    "full": Refusal(
        "FULL JOIN with a reference table",
        "use LEFT JOIN or JOIN",
        example=f"{_PRICED} FULL JOIN pages p ON a.page = p.page",
        why="would put out what has no partner with every epoch anew",
    ),
    "window": Refusal(
        "a window function in FROM beside a reference table",
        "join first, and group what comes out: GROUP BY TUMBLE(a.ts, …)",
        example=f"SELECT a.page FROM {_BY_MINUTE} a JOIN pages p ON a.page = p.page",
    ),
    "keys": Refusal(
        "a join with a reference table without an equality",
        "add one to ON, such as a.page = p.page",
        example=f"{_PRICED} JOIN pages p ON a.amount > 1",
        why="would give every row every partner",
    ),
    "condition": Refusal(
        "a condition on a reference table in ON beside equalities",
        "use WHERE after a JOIN; or keep the others out of the table",
        example=f"{_PRICED} LEFT JOIN pages p ON a.page = p.page AND p.weight > 1",
    ),
    "expression": Refusal(
        "an expression over a reference table in ON",
        "compare a column of it: make the expression one of its columns",
        example=f"{_PRICED} JOIN pages p ON a.page = upper(p.page)",
    ),
    "twice": Refusal(
        "a column of a reference table that has to be equal to two things",
        "compare it once, and the two with each other in WHERE",
        example=f"{_PRICED} JOIN pages p ON a.page = p.page AND a.device.os = p.page",
    ),
    "weight": Refusal(
        "a join of rows that are taken back with a reference table that may change",
        "set 'refresh.interval' = 'never' for the table; or join the rows that came alone: FROM "
        "(SELECT … WHERE _weight = 1); or accept it, with on_retraction = 'join_current'",
        example="SELECT a.page, a.n, p.title, a._weight FROM (SELECT page, COUNT(*) AS n "
        "FROM clicks GROUP BY page) a JOIN pages p ON a.page = p.page "
        "EMIT CHANGES WITH (state.ttl = 'unbounded')",
        why="would take back other rows than were put out",
    ),
}

# Refusals of EXISTS and IN with a subquery.
SUBQUERIES: Final[Mapping[str, Refusal]] = {
    "in": Refusal(
        "IN (SELECT …) under OR or CASE, or outside WHERE",
        BETWEEN_ANDS,
        example="SELECT page FROM clicks WHERE amount > 1 OR page IN (SELECT page FROM pages)",
    ),
    "alone": Refusal(
        "EXISTS of a subquery without WHERE",
        "compare something of it with something of the query around: WHERE p.page = a.page",
        example="SELECT page FROM clicks a WHERE EXISTS (SELECT 1 FROM pages)",
        why="would compare every row with every other",
    ),
    "shape": Refusal(
        "EXISTS or IN of more than SELECT … FROM one table WHERE …",
        "put the rest into FROM: EXISTS (SELECT 1 FROM (SELECT …) q WHERE q.id = a.id)",
        example="SELECT page FROM clicks WHERE user_id IN (SELECT id FROM plain GROUP BY id)",
    ),
    "width": Refusal(
        "IN whose subquery selects other than it compares",
        "name one column for each: x IN (SELECT y FROM …), (a, b) IN (SELECT c, d FROM …)",
        example="SELECT user_id FROM clicks a WHERE a.page IN (SELECT * FROM pages)",
        why="has nothing to compare with",
    ),
    "sides": Refusal(
        "IN that compares nothing of the query around with something of the subquery",
        "write a.x IN (SELECT b.y FROM …)",
        example="SELECT page FROM clicks WHERE page IN (SELECT 'a' FROM pages)",
        why="is no join",
    ),
    "not_in": Refusal(
        "NOT IN (SELECT …) where either side may be NULL",
        "use NOT EXISTS (SELECT 1 FROM … b WHERE b.y = a.x), for which NULL is equal to nothing; "
        "or declare both columns NOT NULL",
        example="SELECT page FROM clicks WHERE page NOT IN (SELECT page FROM pages)",
        why="would let no row through as soon as the subquery has a NULL",
    ),
    "weight": Refusal(
        "`_weight` beside a subquery in WHERE",
        "choose rows by it in a query in FROM: FROM (SELECT * FROM … WHERE _weight = 1)",
        why="could be that of the row, or of its having a partner",
    ),
}

# Refusals of a scalar subquery.
SCALARS: Final[Mapping[str, Refusal]] = {
    "shape": Refusal(
        "a scalar subquery",
        "write (SELECT max(x) FROM table WHERE …), or JOIN a view that computes it",
        example="SELECT page FROM clicks WHERE amount > (SELECT max(weight) FROM pages LIMIT 1)",
        why="is not supported unless it is one aggregate of one reference table",
    ),
    "stream": Refusal(
        "a scalar subquery over a source or view",
        "JOIN a view that computes it, or keep the value in a reference table",
        example="SELECT page FROM clicks WHERE user_id = (SELECT max(id) FROM plain)",
        why="has no value before the stream has ended",
    ),
    "correlated": Refusal(
        "a scalar subquery that looks at the row around it",
        "LEFT JOIN the table ON an equality",
        example="SELECT page, (SELECT max(weight) FROM pages p WHERE p.page = a.page) AS w "
        "FROM clicks a",
    ),
    "rows": Refusal(
        "a scalar subquery of more than aggregates",
        "take MAX(…) or the like of its columns, or JOIN the table",
        example="SELECT page FROM clicks WHERE page = (SELECT title FROM pages)",
        why="may have several rows",
    ),
    "aggregate": Refusal(
        "this aggregate in a scalar subquery",
        "it takes COUNT, COUNT_IF, SUM, AVG, MIN, MAX, MEDIAN, BOOL_AND and BOOL_OR",
        example="SELECT page FROM clicks WHERE page = (SELECT any_value(title) FROM pages)",
    ),
    "place": Refusal(
        "a scalar subquery outside WHERE, and SELECT of rows",
        "compare with it in WHERE, or select it in a query around: FROM (SELECT … GROUP BY …)",
        example="SELECT page, window_end, COUNT(*) AS n FROM clicks "
        "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), page "
        "HAVING COUNT(*) > (SELECT max(weight) FROM pages)",
    ),
}
