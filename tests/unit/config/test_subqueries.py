"""EXISTS and IN of WHERE are the semi and anti joins that say the same, or are refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from laminar_dagster.config.relations import PythonKeyed, PythonRows, Query
from tests.unit.config.folders import load, mistakes

SOURCES = """\
CREATE SOURCE TABLE orders (id BIGINT NOT NULL, who STRING, amount DOUBLE, ts TIMESTAMP,
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH (connector = 'file', path = 'orders');
CREATE SOURCE TABLE payments (order_id BIGINT NOT NULL, who STRING, paid DOUBLE, ts TIMESTAMP,
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH (connector = 'file', path = 'payments');
CREATE REFERENCE TABLE people (who STRING, age INT, PRIMARY KEY (who))
    WITH (connector = 'file', path = 'people.csv', format = 'csv');
CREATE VIEW named AS SELECT id AS number, who, ts FROM orders WHERE who IS NOT NULL;
CREATE VIEW totals AS SELECT who, COUNT(*) AS n FROM orders GROUP BY who
EMIT CHANGES WITH (state.ttl = 'unbounded');
"""
CHANGES = "EMIT CHANGES WITH (state.ttl = '1h')"
WITHIN = "p.ts BETWEEN o.ts AND o.ts + INTERVAL '1' HOUR"
PAID = f"SELECT 1 FROM payments p WHERE p.order_id = o.id AND {WITHIN}"


def query_of(folder: Path, sql: str) -> Query | PythonRows | PythonKeyed:
    model = load(folder, {"sources.sql": SOURCES, "models/m.sql": sql})
    return next(each.query for each in model.views if each.name == "m")


def wrong(folder: Path, sql: str) -> list[str]:
    return mistakes(folder, {"sources.sql": SOURCES, "models/m.sql": sql})


@pytest.mark.parametrize(
    ("subquery", "join"),
    [
        (
            f"SELECT * FROM orders o WHERE EXISTS ({PAID})",
            f"SELECT * FROM orders o SEMI JOIN payments p ON p.order_id = o.id AND {WITHIN}",
        ),
        (
            f"SELECT id FROM orders o WHERE NOT EXISTS ({PAID} AND paid > o.amount AND paid < 9)",
            "SELECT id FROM orders o ANTI JOIN payments p ON p.order_id = o.id"
            f" AND {WITHIN} AND paid > o.amount AND paid < 9",
        ),
        (
            # A name of both is one of the subquery inside it, and of the query around outside.
            "SELECT ts FROM orders o WHERE who IN (SELECT who FROM payments p"
            f" WHERE {WITHIN} AND who > 'b')",
            "SELECT ts FROM orders o SEMI JOIN payments p ON o.who = p.who"
            f" AND {WITHIN} AND p.who > 'b'",
        ),
        (
            "SELECT id FROM orders o WHERE (id, lower(who)) IN"
            f" (SELECT DISTINCT order_id, who AS w FROM payments p) {CHANGES}",
            "SELECT id FROM orders o SEMI JOIN payments p ON id = order_id"
            f" AND lower(o.who) = p.who {CHANGES}",
        ),
        (
            "SELECT id FROM orders o WHERE ts IN (SELECT ts FROM payments p WHERE p.who = o.who)",
            "SELECT id FROM orders o SEMI JOIN payments p ON o.ts = p.ts AND p.who = o.who",
        ),
        (
            "SELECT id FROM orders WHERE who IN (SELECT who FROM people)",
            "SELECT id FROM orders o SEMI JOIN people p ON o.who = p.who",
        ),
        (
            "SELECT id FROM orders o WHERE NOT (EXISTS"
            " (SELECT p.age FROM people p WHERE p.who = lower(o.who) AND o.amount > 1))",
            "SELECT id FROM orders o ANTI JOIN people p ON p.who = lower(o.who) AND o.amount > 1",
        ),
        (
            f"SELECT id FROM orders o WHERE id NOT IN (SELECT order_id FROM payments p"
            f" WHERE {WITHIN})",
            f"SELECT id FROM orders o ANTI JOIN payments p ON id = order_id AND {WITHIN}",
        ),
        (
            "SELECT who FROM named WHERE number NOT IN (SELECT order_id FROM payments p"
            " WHERE p.ts BETWEEN named.ts AND named.ts + INTERVAL '1' HOUR)",
            "SELECT named.who FROM named ANTI JOIN payments p ON number = order_id"
            " AND p.ts BETWEEN named.ts AND named.ts + INTERVAL '1' HOUR",
        ),
        (
            "SELECT id FROM orders o WHERE who IN (SELECT who FROM totals WHERE n > 3)"
            " EMIT CHANGES WITH (state.ttl = 'unbounded')",
            "SELECT id FROM orders o SEMI JOIN totals t ON o.who = t.who AND n > 3"
            " EMIT CHANGES WITH (state.ttl = 'unbounded')",
        ),
        (
            # The subquery's own names hide those around it.
            "SELECT orders.id FROM orders WHERE id IN"
            f" (SELECT orders.id FROM orders WHERE orders.amount > 5) {CHANGES}",
            "SELECT o.id FROM orders o SEMI JOIN orders p"
            f" ON o.id = p.id AND p.amount > 5 {CHANGES}",
        ),
        (
            # The rest of WHERE stays, whichever side it stands on.
            "SELECT id FROM orders o WHERE amount > 1 AND (who IN (SELECT who FROM people) AND"
            f" NOT EXISTS ({PAID})) AND (id = 3 OR who <> 'x')",
            "SELECT id FROM orders o SEMI JOIN people q ON o.who = q.who"
            f" ANTI JOIN payments p ON p.order_id = o.id AND {WITHIN}"
            " WHERE (amount > 1) AND ((id = 3 OR who <> 'x'))",
        ),
        (
            # Parentheses say nothing.
            "SELECT id FROM orders o WHERE (EXISTS (SELECT 1 FROM payments p"
            f" WHERE (p.order_id = (o.id)) AND ({WITHIN})))"
            " AND ((who)) IN (SELECT (who) FROM people)",
            f"SELECT id FROM orders o SEMI JOIN payments p ON p.order_id = o.id AND {WITHIN}"
            " SEMI JOIN people q ON o.who = q.who",
        ),
        (
            "SELECT id FROM orders o WHERE (id) NOT IN (SELECT (order_id) FROM payments p"
            f" WHERE ({WITHIN}))",
            f"SELECT id FROM orders o ANTI JOIN payments p ON id = order_id AND {WITHIN}",
        ),
        (
            "SELECT p.who, COUNT(*) AS n FROM orders o JOIN people p USING (who) WHERE o.who IN"
            " (SELECT who FROM people q) GROUP BY p.who, TUMBLE(o.ts, INTERVAL '1' MINUTE)",
            "SELECT p.who, COUNT(*) AS n FROM orders o JOIN people p USING (who)"
            " SEMI JOIN people q ON o.who = q.who"
            " GROUP BY p.who, TUMBLE(o.ts, INTERVAL '1' MINUTE)",
        ),
    ],
)
def test_a_subquery_is_the_join_that_says_the_same(
    tmp_path: Path, subquery: str, join: str
) -> None:
    assert query_of(tmp_path / "one", subquery) == query_of(tmp_path / "two", join)


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM people)", "1:39: EXISTS of a sub"),
        (
            "SELECT id FROM orders WHERE who IN (SELECT who FROM people) OR id = 1",
            "1:29: IN (SELECT …) under OR or CASE",
        ),
        (
            "SELECT id FROM orders o WHERE id = 1 OR NOT EXISTS (SELECT 1 FROM people)",
            "1:45: EXISTS (SELECT …) under OR or CASE",
        ),
        ("SELECT who IN (SELECT who FROM people) AS x FROM orders", "1:8: IN (SELECT …) under OR"),
        ("SELECT id FROM orders WHERE id = (SELECT 1)", "1:34: a scalar subquery is not"),
        (
            "SELECT id FROM orders WHERE who NOT IN (SELECT who FROM people)",
            "1:48: NOT IN (SELECT …) where either side may be NULL",
        ),
        (
            "SELECT id FROM orders o WHERE id NOT IN (SELECT order_id + 1 FROM payments p)",
            "NOT IN (SELECT …) where either side may be NULL",
        ),
        (
            "SELECT id FROM orders WHERE who IN (SELECT who FROM people LIMIT 1)",
            "EXISTS or IN of more than SELECT",
        ),
        (
            "SELECT id FROM orders WHERE who IN (SELECT who FROM people UNION ALL SELECT 'a')",
            "EXISTS or IN of more than SELECT",
        ),
        ("SELECT id FROM orders WHERE who IN (SELECT * FROM people)", "IN whose subquery selects"),
        (
            "SELECT id FROM orders WHERE (who, id) IN (SELECT who FROM people)",
            "IN whose subquery selects other than",
        ),
        (
            "SELECT id FROM orders o WHERE who IN (SELECT o.who FROM people)",
            "IN that compares nothing of the query around",
        ),
        ("SELECT id FROM orders WHERE 'a' IN (SELECT who FROM people)", "IN that compares nothing"),
        (
            "SELECT id FROM orders WHERE id IN (SELECT order_id FROM payments)",
            "a join of streams without an interval would keep every row for ever",
        ),
        (
            "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM payments p"
            f" WHERE p.paid > o.amount AND {WITHIN})",
            "a join without an equality of both sides",
        ),
        (
            "SELECT id FROM orders o WHERE EXISTS (SELECT COUNT(*) FROM people p"
            " WHERE p.who = o.who)",
            "1:46: COUNT cannot be used in a subquery here",
        ),
        (
            "SELECT id FROM orders o WHERE EXISTS (SELECT nobody FROM people p WHERE p.who = who)",
            "1:46: the join has no column `nobody`",
        ),
        ("SELECT id FROM orders WHERE who IN (SELECT nobody FROM people)", "no column `nobody`"),
        ("SELECT id FROM orders WHERE nobody IN (SELECT who FROM people)", "no column `nobody`"),
        ("SELECT id FROM orders WHERE who IN (SELECT who FROM nothing)", "no source or view"),
        (
            "SELECT age FROM orders WHERE who IN (SELECT who FROM people)",
            "the join has no column `age`",
        ),
        (
            "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM people p"
            " WHERE p.who = o.who AND p.age > 20)",
            "a condition on a reference table in ON beside equalities",
        ),
        (
            "SELECT n FROM totals WHERE _weight = 1 AND who IN (SELECT who FROM people)",
            "`_weight` beside a subquery in WHERE could be that of the row",
        ),
        (
            "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.id"
            f" AND {WITHIN} AND p.who IN (SELECT who FROM people))",
            "IN (SELECT …) under OR or CASE, or outside WHERE",
        ),
        (
            "SELECT id FROM orders WHERE " + " AND ".join(["who IN (SELECT who FROM people)"] * 9),
            "more than 8 joins in one view",
        ),
    ],
)
def test_what_is_no_join_is_refused_by_name(tmp_path: Path, sql: str, problem: str) -> None:
    found = wrong(tmp_path, sql)
    assert any(problem in each for each in found), found
