"""What a JOIN says: which side is which, what is equal, how far apart times may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from laminar_dagster.config.definition import define
from laminar_dagster.config.lineage import InputColumn, column_lineage
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.config.operators import stateful_operators
from laminar_dagster.config.relations import Join, Select
from laminar_dagster.core.deployment import compare_definitions
from tests.unit.config.folders import load, mistakes

SOURCES = """\
CREATE SOURCE TABLE orders (id BIGINT, who STRING, amount DOUBLE, ts TIMESTAMP,
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH (connector = 'file', path = 'orders');
CREATE SOURCE TABLE payments (order_id BIGINT, who STRING, paid DOUBLE, ts TIMESTAMP,
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH (connector = 'file', path = 'payments');
CREATE SOURCE TABLE plain (id BIGINT, who STRING) WITH (connector = 'file', path = 'plain');
CREATE VIEW totals AS SELECT who, COUNT(*) AS n FROM orders GROUP BY who
EMIT CHANGES WITH (state.ttl = '1d');
"""
SECOND = 1_000_000
HOUR = 3600 * SECOND
PAIRS = "SELECT o.id, p.paid FROM orders o JOIN payments p ON o.id = p.order_id"
CHANGES = "EMIT CHANGES WITH (state.ttl = '1h')"
FOREVER = "EMIT CHANGES WITH (state.ttl = 'unbounded')"
BY_MINUTE = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
WINDOWS = (
    f"FROM {BY_MINUTE.format('orders')} l JOIN {BY_MINUTE.format('payments')} r"
    " ON l.id = r.order_id AND l.window_start = r.window_start AND l.window_end = r.window_end"
)


def model_of(folder: Path, sql: str) -> PipelineModel:
    return load(folder, {"sources.sql": SOURCES, "models/m.sql": sql})


def join_in(folder: Path, sql: str) -> Join:
    view = next(each for each in model_of(folder, sql).views if each.name == "m")
    return next(query for _, query in stateful_operators(view) if isinstance(query, Join))


def wrong(folder: Path, sql: str) -> list[str]:
    return mistakes(folder, {"sources.sql": SOURCES, "models/m.sql": sql})


@pytest.mark.parametrize(
    ("condition", "bounds"),
    [
        ("p.ts BETWEEN o.ts AND o.ts + INTERVAL '1' HOUR", (0, HOUR)),
        ("p.ts BETWEEN o.ts - INTERVAL '5' SECOND AND o.ts", (-5 * SECOND, 0)),
        ("p.ts >= o.ts AND p.ts < o.ts + INTERVAL '1' HOUR", (0, HOUR - 1)),
        ("o.ts > p.ts AND o.ts - INTERVAL '1' SECOND <= p.ts", (-SECOND, -1)),
        ("(p.ts - INTERVAL '2' SECOND) > o.ts AND p.ts < o.ts + INTERVAL '1' HOUR", None),
        ("p.ts = o.ts", (0, 0)),
        ("p.ts = o.ts + INTERVAL '1' SECOND", (SECOND, SECOND)),
    ],
)
def test_an_interval_is_how_far_the_right_is_from_the_left(
    tmp_path: Path, condition: str, bounds: tuple[int, int] | None
) -> None:
    join = join_in(tmp_path, f"{PAIRS} AND {condition}")
    assert join.bounds == (bounds or (2 * SECOND + 1, HOUR - 1))
    assert (join.emits, join.left.time, join.right.time) == ("once", "ts", "ts")
    assert (join.left.keys, join.right.keys) == (("id",), ("order_id",))


def test_on_is_taken_apart(tmp_path: Path) -> None:
    sql = (
        "SELECT o.id FROM orders o JOIN payments p ON lower(p.who) = o.who AND p.paid > o.amount"
        " AND p.ts = o.ts AND (o.amount > 1 AND p.paid < 5) AND o.amount + p.paid > 3"
    )
    join = join_in(tmp_path, sql)
    assert (join.left.keys, join.right.keys) == (("who",), ("lower(who)",))
    assert (join.left.operands, join.comparisons, join.right.operands) == (
        ("amount",),
        ("<",),
        ("paid",),
    )
    assert (join.left.where, join.right.where) == ("amount > 1", "paid < 5")
    assert join.condition == "`left.amount` + `right.paid` > 3"
    assert [each.name for each in join.left.columns] == ["left.amount", "left.id"]
    assert [each.name for each in join.right.columns] == ["right.paid"]


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        (
            "(o.id = p.order_id) AND (p.ts BETWEEN (o.ts) AND (o.ts + (INTERVAL '1' HOUR)))",
            "o.id = p.order_id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL '1' HOUR",
        ),
        (
            "((o.id) = ((p.order_id)) AND ((p.ts) = (o.ts))) AND ((p.paid) > (o.amount))",
            "o.id = p.order_id AND p.ts = o.ts AND p.paid > o.amount",
        ),
        (
            "(o.id = p.order_id) AND p.ts = o.ts AND (o.amount > 1 OR o.who = 'x')"
            " AND (o.amount + p.paid > 3) AND (o.amount = 1 OR p.paid = 2)",
            "(o.amount > 1 OR o.who = 'x') AND (o.amount + p.paid > 3)"
            " AND (o.amount = 1 OR p.paid = 2) AND o.id = p.order_id AND p.ts = o.ts",
        ),
    ],
)
def test_parentheses_around_parts_of_on_say_nothing(
    tmp_path: Path, written: str, plain: str
) -> None:
    sql = "SELECT o.id, p.paid FROM orders o JOIN payments p ON"
    one, other = (
        join_in(tmp_path / name, f"{sql} {condition}")
        for name, condition in (("one", written), ("other", plain))
    )
    assert one == other


def test_parentheses_around_the_edges_of_windows_say_nothing(tmp_path: Path) -> None:
    edge = "l.window_end = r.window_end"
    plain = join_in(tmp_path / "plain", f"SELECT l.id {WINDOWS}")
    written = f"SELECT l.id {WINDOWS}".replace(edge, "((l.window_end) = (r.window_end))")
    assert join_in(tmp_path / "written", written) == plain


def test_a_time_to_live_is_an_interval_to_both_sides(tmp_path: Path) -> None:
    join = join_in(tmp_path, f"{PAIRS} {CHANGES}")
    assert (join.emits, join.bounds) == ("changes", (1 - HOUR, HOUR - 1))
    assert join.waits == (HOUR - 1, HOUR - 1)
    later = join_in(tmp_path / "later", f"{PAIRS} AND p.ts >= o.ts {CHANGES}")
    assert later.bounds == (0, HOUR - 1)
    for_ever = join_in(tmp_path / "ever", f"{PAIRS} AND p.ts >= o.ts {FOREVER}")
    assert (for_ever.bounds, for_ever.comparisons) == (None, ("<=",))


def test_rows_that_change_are_weighed(tmp_path: Path) -> None:
    sql = f"SELECT t.who, t.n, x.id FROM totals t LEFT JOIN plain x USING (who) {FOREVER}"
    join = join_in(tmp_path, sql)
    (view,) = [each for each in model_of(tmp_path, sql).views if each.name == "m"]
    assert (join.left.weight, join.right.weight, join.kind) == ("_weight", None, "left")
    assert view.columns == ("who", "n", "id", "_weight")


def test_three_joins_wait_for_each_other(tmp_path: Path) -> None:
    within = "BETWEEN o.ts AND o.ts + INTERVAL '1' HOUR"
    sql = (
        f"SELECT o.*, p.paid, q.paid AS again FROM orders o JOIN payments p ON o.id = p.order_id"
        f" AND p.ts {within} JOIN payments q ON o.id = q.order_id AND q.ts {within}"
    )
    outer = join_in(tmp_path, sql)
    inner = outer.left.source
    assert isinstance(inner, Join)
    assert (inner.waits, outer.left.lag_micros) == ((HOUR, 0), HOUR)
    assert outer.left.time == "`left.ts`"
    names = [each.name for each in outer.left.columns]
    assert names == [
        f"left.{each}" for each in ("left.amount", "left.id", "left.ts", "left.who", "right.paid")
    ]


def test_a_chain_goes_by_event_time_that_nobody_selects(tmp_path: Path) -> None:
    sql = "SELECT who, q.paid FROM orders o JOIN payments p USING (who) JOIN payments q USING (who)"
    outer = join_in(tmp_path / "ttl", f"{sql} {CHANGES}")
    inner = outer.left.source
    assert isinstance(inner, Join)
    assert (outer.left.time, outer.right.time) == ("`left.ts`", "ts")
    assert [each.name for each in inner.left.columns] == ["left.ts", "left.who"]
    # What the outer one keeps is no more than what is asked for.
    assert [each.name for each in outer.left.columns] == ["left.left.who"]
    for_ever = join_in(tmp_path / "ever", f"{sql} {FOREVER}").left.source
    assert isinstance(for_ever, Join)
    assert [each.name for each in for_ever.left.columns] == ["left.who"]


def test_windows_are_joined_by_their_edges(tmp_path: Path) -> None:
    join = join_in(tmp_path, f"SELECT l.window_end, r.paid {WINDOWS}")
    assert (join.emits, join.bounds, join.left.keys) == ("close", None, ("id",))
    assert join.left.window == join.right.window


def test_lineage_goes_through_both_sides(tmp_path: Path) -> None:
    sql = "SELECT o.amount + p.paid AS sum, o.ts FROM orders o JOIN payments p USING (who)"
    sql = f"{sql} {CHANGES}"
    found = column_lineage(model_of(tmp_path, sql))["m"]
    assert found["sum"] == (InputColumn("orders", "amount"), InputColumn("payments", "paid"))
    assert found["_weight"] == ()


def test_columns_that_nobody_asks_for_are_not_kept(tmp_path: Path) -> None:
    sql = f"SELECT o.* FROM orders o SEMI JOIN payments p ON o.id = p.order_id {CHANGES}"
    view = next(each for each in model_of(tmp_path, sql).views if each.name == "m")
    assert isinstance(view.query, Select) and isinstance(view.query.source, Join)
    assert view.query.source.right.columns == ()
    assert view.columns == ("id", "who", "amount", "ts", "_weight")


WRONG = [
    (
        f"SELECT ts FROM orders o JOIN payments p ON o.id = p.order_id {CHANGES}",
        "1:8: `ts` may be a column of several inputs (write o.ts or p.ts)",
    ),
    (
        f"SELECT x.id FROM orders o JOIN payments p ON o.id = p.order_id {CHANGES}",
        "1:8: there is no `x` here (did you mean `o.id`?)",
    ),
    (
        f"SELECT p.nothing FROM orders o JOIN payments p ON o.id = p.order_id {CHANGES}",
        "1:8: the join has no column `p.nothing`",
    ),
    (
        f"SELECT p.paid FROM orders o SEMI JOIN payments p ON o.id = p.order_id {CHANGES}",
        "1:8: the join has no column `p.paid`",
    ),
    (
        f"SELECT id FROM orders JOIN orders ON id = id {CHANGES}",
        "1:23: two inputs are called `orders`",
    ),
    (
        f"SELECT o.id FROM orders o JOIN payments p USING (id) {CHANGES}",
        "1:27: USING: `payments` has no column `id`",
    ),
    (
        f"SELECT * FROM orders o JOIN payments p ON o.id = p.order_id {CHANGES}",
        "1:1: two columns are called `who`",
    ),
    (
        f"SELECT o.id FROM orders o JOIN plain p ON o.id = p.id {CHANGES}",
        "1:74: `state.ttl` of a join without event time on both sides",
    ),
    (f"{PAIRS} AND p.ts = o.ts {FOREVER}", "1:88: view `m` has no groups that could change"),
    (
        "SELECT o.who, COUNT(*) AS n FROM orders o JOIN payments p ON o.id = p.order_id AND"
        " p.ts BETWEEN o.ts AND o.ts + INTERVAL '1' HOUR GROUP BY TUMBLE(o.ts, INTERVAL '1' HOUR),"
        " o.who",
        "1:147: `ts` of the join waited for a partner",
    ),
    (
        f"SELECT l.id {WINDOWS} AND l.window_end > l.ts",
        "1:252: ON takes the edges of windows as equal only",
    ),
]


@pytest.mark.parametrize(("sql", "expected"), WRONG)
def test_what_is_wrong_with_a_join_is_told(tmp_path: Path, sql: str, expected: str) -> None:
    found = wrong(tmp_path, sql)
    assert found[0].startswith(f"models/m.sql:{expected}"), found


APPENDS = "CREATE SINK s FROM m WITH (connector = 'sqlite', path = 'x.db')"


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        (PAIRS.replace("JOIN", "LEFT JOIN"), "a row of the LEFT JOIN that has no partner goes"),
        (PAIRS.replace("JOIN", "FULL JOIN"), "a row of the FULL JOIN that has no partner goes"),
        (
            "SELECT o.id FROM orders o ANTI JOIN payments p ON o.id = p.order_id",
            "a row of the ANTI JOIN that has no partner goes",
        ),
        (
            "SELECT o.id, t.n FROM orders o JOIN (SELECT order_id, COUNT(*) AS n FROM payments"
            " GROUP BY order_id) t ON o.id = t.order_id",
            "goes",
        ),
    ],
)
def test_a_sink_that_appends_cannot_take_back_what_a_join_takes_back(
    tmp_path: Path, sql: str, why: str
) -> None:
    files = {"sources.sql": SOURCES, "models/m.sql": f"{sql} {FOREVER}", "sinks.sql": APPENDS}
    (found,) = mistakes(tmp_path, files)
    assert "view `m` takes rows back, and sink `s` appends: " in found
    assert why in found


@pytest.mark.parametrize(
    "sql",
    [
        PAIRS,
        "SELECT o.id FROM orders o SEMI JOIN payments p ON o.id = p.order_id",
        "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM payments p WHERE o.id = p.order_id)",
        "SELECT o.id, q.id AS other FROM (SELECT a.id FROM orders a JOIN payments p"
        " ON a.id = p.order_id) o JOIN orders q ON o.id = q.id",
    ],
)
def test_an_inner_or_semi_join_of_what_only_grows_is_appended(tmp_path: Path, sql: str) -> None:
    files = {"sources.sql": SOURCES, "models/m.sql": f"{sql} {FOREVER}", "sinks.sql": APPENDS}
    (sink,) = load(tmp_path, files).sinks
    assert not sink.counts_rows


WITHIN = "AND p.ts BETWEEN o.ts AND o.ts + INTERVAL '1' HOUR"


@pytest.mark.parametrize(
    ("sql", "verdict"),
    [
        (f"{PAIRS} {WITHIN} WHERE paid > 1", "keep"),
        (
            "SELECT x.id, y.paid FROM orders x JOIN payments y ON x.id = y.order_id"
            " AND y.ts BETWEEN x.ts AND x.ts + INTERVAL '1' HOUR",
            "keep",
        ),
        (f"{PAIRS.replace(', p.paid', '')} {WITHIN}", "migrate"),
        (f"{PAIRS.replace('p.paid', 'p.who, paid')} {WITHIN}", "rebuild"),
        (f"{PAIRS} {WITHIN.replace('1', '2')}", "rebuild"),
        (f"{PAIRS.replace('JOIN', 'LEFT JOIN')} {WITHIN}", "rebuild"),
        (f"{PAIRS} {WITHIN} AND p.who = 'x'", "rebuild"),
    ],
)
def test_what_becomes_of_the_state_of_a_changed_join(
    tmp_path: Path, sql: str, verdict: str
) -> None:
    old = define(model_of(tmp_path / "old", f"{PAIRS} {WITHIN}"))
    new = define(model_of(tmp_path / "new", sql))
    (change,) = [each for each in compare_definitions(old, new) if each.operator_id == "m"]
    assert change.verdict == verdict, change
