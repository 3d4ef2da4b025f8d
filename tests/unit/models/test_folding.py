"""Keyed operators under random cuts, against a loop over the same events in plain Python."""

from __future__ import annotations

import dataclasses
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from laminar_dagster.core.errors import ModelFailed
from laminar_dagster.models import TIMESTAMP, Step, keyed_operator, operator_of
from laminar_dagster.testing.models import assert_same_under_any_cut, run_operator

START = datetime(2026, 1, 1, tzinfo=UTC)
GAP = timedelta(seconds=4)
TTL = timedelta(seconds=9)
ROWS = pa.schema([("user", pa.string()), ("at", TIMESTAMP), ("n", pa.int64())])


@keyed_operator(
    reads="clicks",
    keys=["user"],
    event_time="at",
    state={"clicks": pa.int64(), "total": pa.int64(), "last": pa.int64()},
    columns={"what": pa.string(), "clicks": pa.int64(), "total": pa.int64()},
    ttl="unbounded",
)
class Visits:
    """Tells every seventh click of a visit, and the visit when its user is silent."""

    def on_rows(self, rows: pa.Table, state: pa.Table) -> Step:
        clicks = pc.add(pc.fill_null(state["clicks"], 0), 1)
        total = pc.add(pc.fill_null(state["total"], 0), pc.fill_null(rows["n"], 0))
        told = pa.array(["many"] * rows.num_rows)
        return Step(
            # The last one tells in which order rows of one time come.
            state={"clicks": clicks, "total": total, "last": rows["n"]},
            timer=pc.add(rows["at"], pa.scalar(GAP)),
            rows={"what": told, "clicks": clicks, "total": total},
            emits=pc.equal(clicks, 7),
        )

    def on_timers(self, timers: pa.Table, state: pa.Table) -> Step:
        nothing = pa.nulls(timers.num_rows, pa.int64())
        return Step(
            state={"clicks": nothing, "total": nothing, "last": nothing},
            rows={
                "what": pa.array(["visit"] * timers.num_rows),
                "clicks": state["clicks"],
                "total": pc.add(state["total"], pc.fill_null(state["last"], 1000)),
            },
        )


def visits(rows: list[dict[str, Any]], until: datetime) -> list[tuple[Any, ...]]:
    """The same in a loop: what is put out, by user."""
    found = []
    for user in sorted({each["user"] for each in rows}, key=lambda name: (name is None, name)):
        mine = [each for each in rows if each["user"] == user and each["at"] < until]
        mine.sort(key=lambda each: (each["at"], each["n"] is None, each["n"]))
        clicks = total = 0
        last = None
        timer: datetime | None = None
        for each in [*mine, None]:
            due = until if each is None else each["at"]
            if timer is not None and timer <= due:
                total += 1000 if last is None else last
                found.append((user, timer, "visit", clicks, total))
                clicks = total = 0
                last = timer = None
            if each is not None:
                clicks, total, last = clicks + 1, total + (each["n"] or 0), each["n"]
                timer = each["at"] + GAP
                if clicks == 7:
                    found.append((user, each["at"], "many", clicks, total))
    return found


def by_user(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Rows of several epochs; of one user in the order in which they were put out."""
    return [tuple(row.values()) for row in rows.sort_by("user").to_pylist()]


def random_rows(chance: random.Random, count: int) -> list[dict[str, Any]]:
    return [
        {
            "user": chance.choice(["ann", "bob", "cem", None]),
            "at": START + timedelta(seconds=place // 3 - chance.randint(0, 5)),
            "n": chance.choice([None, *range(5)]),
        }
        for place in range(count)
    ]


def on_time(rows: list[dict[str, Any]], delay: timedelta) -> list[dict[str, Any]]:
    found, newest = [], None
    for each in rows:
        if newest is None or each["at"] >= newest - delay:
            found.append(each)
        newest = each["at"] if newest is None else max(newest, each["at"])
    return found


@pytest.mark.parametrize("seed", range(5))
def test_visits_are_those_of_a_plain_loop_under_any_cut(seed: int) -> None:
    chance = random.Random(seed)
    rows = random_rows(chance, 120)
    delay, until = timedelta(seconds=3), START + timedelta(seconds=39)
    table = pa.Table.from_pylist(rows, ROWS)
    run = run_operator(Visits, table, delay=delay, until=until)
    expected = visits(on_time(rows, delay), until)
    assert len(expected) > 5
    assert by_user(run.rows) == expected
    assert_same_under_any_cut(Visits, table, delay=delay, until=until, cuts=12, seed=seed)


@keyed_operator(
    reads="clicks",
    keys=["user"],
    event_time="at",
    takes=["n"],
    state={"seen": pa.int64()},
    columns={"seen": pa.int64()},
    ttl=TTL,
)
class Counts:
    def on_rows(self, rows: pa.Table, state: pa.Table) -> Step:
        seen = pc.add(pc.fill_null(state["seen"], 0), 1)
        return Step(state={"seen": seen}, rows={"seen": seen})


@pytest.mark.parametrize("seed", range(4))
def test_a_silent_key_is_forgotten_under_any_cut(seed: int) -> None:
    chance = random.Random(seed)
    rows: list[dict[str, Any]] = []
    second = 0
    for _ in range(60):
        second += chance.choice([0, 1, 2, 8, 9, 10])
        at = START + timedelta(seconds=second)
        rows.append({"user": chance.choice(["ann", "bob"]), "at": at, "n": 1})
    table = pa.Table.from_pylist(rows, ROWS)
    until = rows[-1]["at"] + timedelta(seconds=chance.randint(1, 12))
    expected: list[tuple[str, datetime, int]] = []
    last: dict[str, tuple[datetime, int]] = {}
    for each in rows:
        at, seen = last.get(each["user"], (START - TTL, 0))
        seen = 1 if each["at"] >= at + TTL else seen + 1
        last[each["user"]] = each["at"], seen
        expected.append((each["user"], each["at"], seen))
    run = run_operator(Counts, table, until=until)
    assert by_user(run.rows) == sorted(expected)
    kept = {user: seen for user, (at, seen) in last.items() if at + TTL > until}
    assert {row["user"]: row["seen"] for row in run.state.to_pylist()} == kept
    assert_same_under_any_cut(Counts, table, until=until, cuts=12, seed=seed)


def test_a_row_waits_until_the_watermark_has_passed_it() -> None:
    rows = pa.Table.from_pylist([{"user": "ann", "at": START, "n": 1}], ROWS)
    assert run_operator(Counts, rows).waiting.num_rows == 1
    assert run_operator(Counts, rows, until=START).rows.num_rows == 0
    run = run_operator(Counts, rows, until=START + timedelta(microseconds=1))
    assert (run.rows.num_rows, run.waiting.num_rows) == (1, 0)


def test_keys_of_every_type_are_told_apart() -> None:
    counts = operator_of(Counts)
    assert counts is not None
    operator = dataclasses.replace(counts, keys=("a", "b", "c", "d"), takes=())
    values: list[list[Any]] = [
        [None, True, False, True],
        [float("nan"), 0.0, None, 0.0],
        [b"x", None, b"", None],
        ["", "x", None, "x"],
    ]
    kinds = [pa.bool_(), pa.float64(), pa.binary(), pa.string()]
    rows = pa.table(
        {
            **{
                name: pa.array(each, kind)
                for name, each, kind in zip("abcd", values, kinds, strict=True)
            },
            "at": pa.array([START] * 4, TIMESTAMP),
        }
    )
    run = run_operator(operator, rows, until=START + timedelta(seconds=1))
    assert sorted(row["seen"] for row in run.rows.to_pylist()) == [1, 1, 1, 2]


def declared(**handlers: Any) -> Any:
    return keyed_operator(
        reads="clicks",
        keys=["user"],
        event_time="at",
        state={"seen": pa.int64()},
        columns={"seen": pa.int64()},
        ttl="unbounded",
    )(type("Made", (), handlers))


def on_rows_setting(timer: timedelta) -> Any:
    def on_rows(self: object, rows: pa.Table, state: pa.Table) -> Step:
        return Step(state={"seen": rows["n"]}, timer=pc.add(rows["at"], pa.scalar(timer)))

    return on_rows


def test_a_timer_in_the_past_fires_at_once() -> None:
    def on_timers(self: object, timers: pa.Table, state: pa.Table) -> Step:
        return Step(rows={"seen": state["seen"]})

    operator = declared(on_rows=on_rows_setting(-timedelta(days=1)), on_timers=on_timers)
    rows = pa.Table.from_pylist([{"user": "ann", "at": START, "n": 5}], ROWS)
    run = run_operator(operator, rows, until=START + timedelta(seconds=1))
    assert run.rows.to_pylist() == [{"user": "ann", "at": START, "seen": 5}]


def nothing_later(self: object, timers: pa.Table, state: pa.Table) -> Step:
    return Step(timer=timers["at"])


@pytest.mark.parametrize(
    ("handlers", "problem"),
    [
        ({"on_rows": on_rows_setting(GAP)}, "has no `on_timers"),
        ({"on_rows": on_rows_setting(GAP), "on_timers": nothing_later}, "would fire for ever"),
        ({"on_rows": lambda self, rows, state: None}, "gave a NoneType in place of a Step"),
        (
            {"on_rows": lambda self, rows, state: Step(state={"seen": rows["user"]})},
            "`state` of its Step: `seen` is string, and is declared as int64",
        ),
        (
            {"on_rows": lambda self, rows, state: Step(rows={"seen": rows["n"], "x": rows["n"]})},
            "a column `x`, which it does not declare",
        ),
        (
            {"on_rows": lambda self, rows, state: Step(rows={"seen": rows["n"][:1]})},
            "has 1 rows for 2 keys",
        ),
        (
            {
                "on_rows": lambda self, rows, state: Step(
                    state={"seen": pc.cumulative_sum(rows["n"])}
                )
            },
            "it has to treat each row by itself",
        ),
        ({"on_rows": lambda self, rows, state: rows["nobody"]}, "KeyError"),
    ],
)
def test_what_an_operator_does_wrong_is_told(handlers: dict[str, Any], problem: str) -> None:
    rows = pa.Table.from_pylist(
        [{"user": "ann", "at": START, "n": 5}, {"user": "bob", "at": START, "n": 5}], ROWS
    )
    with pytest.raises(ModelFailed) as caught:
        run_operator(declared(**handlers), rows, until=START + timedelta(minutes=1))
    assert problem in str(caught.value)
    assert __file__ in caught.value.where
