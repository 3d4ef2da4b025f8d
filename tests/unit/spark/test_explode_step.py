"""Rows that become several, without Spark: what comes out, and what is counted."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from laminar_dagster.spark.columns import CONTROL, KEEP, PART
from laminar_dagster.spark.explode_step import ITEMS, ExplodeStep

ITEM = pa.struct([("k", pa.int64()), ("v", pa.string())])
OWN = [(PART, pa.int64()), (CONTROL, pa.string()), (KEEP, pa.bool_()), ("name", pa.string())]
GIVEN = pa.schema([*OWN, (ITEMS, pa.list_(ITEM))])
MADE = pa.schema([*OWN, ("place", pa.int32()), ("item", ITEM), ("value", pa.string())])


def step(*, keeps_empty: bool, operator: str | None = "view.explode") -> ExplodeStep:
    return ExplodeStep(operator, keeps_empty, ("place",), ("item",), (("value", 1),), MADE)


def row(name: str, items: Any, *, keep: bool = True, part: int = 3) -> dict[str, Any]:
    return {PART: part, KEEP: keep, "name": name, ITEMS: items}


def exploded(
    step: ExplodeStep, *batches: list[dict[str, Any]]
) -> tuple[list[tuple[Any, ...]], list[str]]:
    given = [pa.RecordBatch.from_pylist(batch, schema=GIVEN) for batch in batches]
    found = [each for batch in step(iter(given)) for each in batch.to_pylist()]
    told = [each[CONTROL] for each in found if each[CONTROL] is not None]
    rows = [each for each in found if each[CONTROL] is None]
    assert all(each[KEEP] for each in rows)
    return [(each["name"], each["place"], each["item"], each["value"]) for each in rows], told


ROWS = [
    row("two", [{"k": 1, "v": "a"}, None]),
    row("none", []),
    {PART: 3, CONTROL: '{"source": "x"}'},
    row("null", None),
    row("dropped", None, keep=False),
    row("one", [{"k": None, "v": None}]),
]


def test_a_row_becomes_as_many_as_it_has_items() -> None:
    rows, told = exploded(step(keeps_empty=False), ROWS)
    assert rows == [
        ("two", 0, {"k": 1, "v": "a"}, "a"),
        ("two", 1, None, None),
        ("one", 0, {"k": None, "v": None}, None),
    ]
    assert told[0] == '{"source": "x"}'
    counted = {"operator": "view.explode", "part": 3, "sequence": 0, "processed": 2, "filtered": 3}
    assert json.loads(told[1]) == counted


def test_with_outer_a_row_without_items_stays() -> None:
    rows, told = exploded(step(keeps_empty=True), ROWS)
    assert [name for name, *_ in rows] == ["two", "two", "none", "null", "one"]
    assert rows[2:4] == [("none", None, None, None), ("null", None, None, None)]
    tally = json.loads(told[1])
    assert (tally["processed"], tally["filtered"]) == (4, 1)


def test_results_are_not_counted_and_a_batch_that_becomes_nothing_is_nothing() -> None:
    uncounted = step(keeps_empty=False, operator=None)
    assert exploded(uncounted, [row("none", [])], [row("gone", None, keep=False)]) == ([], [])
    assert exploded(step(keeps_empty=False), []) == ([], [])


def placed(items: list[Any] | None, keeps_empty: bool) -> list[tuple[int | None, Any]]:
    nothing: list[tuple[int | None, Any]] = [(None, None)] if keeps_empty else []
    return [*enumerate(items)] if items else nothing


@pytest.mark.parametrize("keeps_empty", [False, True])
def test_any_cut_into_batches_gives_the_same(keeps_empty: bool) -> None:
    chance = random.Random(7)

    def items() -> list[dict[str, Any] | None] | None:
        if chance.random() < 0.2:
            return None
        made = [{"k": chance.randint(0, 9), "v": chance.choice("ab")}, None]
        return [chance.choice(made) for _ in range(chance.randint(0, 4))]

    rows = [
        row(str(number), items(), keep=chance.random() < 0.8, part=number // 50)
        for number in range(200)
    ]
    expected = [
        (each["name"], place, item, item["v"] if item else None)
        for each in rows
        if each[KEEP]
        for place, item in placed(each[ITEMS], keeps_empty)
    ]
    for cut in (1, 7, 50, 200):
        batches = [rows[begin : begin + cut] for begin in range(0, 200, cut)]
        found, told = exploded(step(keeps_empty=keeps_empty), *batches)
        assert found == expected
        tallies = [json.loads(each) for each in told]
        assert len({each["sequence"] for each in tallies}) == len(batches)
        assert sum(each["processed"] + each["filtered"] for each in tallies) == 200
