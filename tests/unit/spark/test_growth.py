"""Partials that come to a state, and leave it, in any epoch: no row shows what it does not know."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_dagster.config.partials import Partial
from laminar_dagster.core.errors import RestoreFailed
from laminar_dagster.spark.aggregate_types import column_of
from laminar_dagster.spark.columns import END, SINCE
from laminar_dagster.spark.growth import Growth
from laminar_dagster.spark.keyed_shape import KeyedShape
from laminar_dagster.spark.stored_shape import stored_shape
from laminar_dagster.spark.window_assignment import WindowAssignment
from tests.unit.spark.keyed_operator import Operator, Record, shape_of_sums

LARGEST = "max(x)"
COUNT = column_of(Partial("count", "x"), ["_x0"], [pa.int64()])
VALUES = column_of(Partial("distinct", "x"), ["_x0"], [pa.int64()])
EPOCH = st.tuples(
    st.lists(
        st.tuples(st.integers(0, 40), st.sampled_from("abc"), st.integers(-9, 9), st.just(1)),
        max_size=6,
    ),
    st.integers(0, 15),
)
# With the partial, without it, and with it again.
STORIES = st.tuples(*(st.lists(EPOCH, max_size=11) for _ in range(4)))


def grown(shape: KeyedShape, generation: int) -> KeyedShape:
    """With everything that was added, in one generation."""
    added = ((LARGEST, generation), (COUNT.name, generation), (VALUES.name, generation))
    growth = Growth(generation, added, (LARGEST,))
    return replace(shape, columns=(*shape.columns, COUNT, VALUES), growth=growth)


def without(shape: KeyedShape) -> KeyedShape:
    return replace(shape, columns=shape.columns[:2])


@pytest.mark.slow
@given(STORIES, st.sampled_from([2, 2**62]))
@settings(max_examples=60)
def test_a_row_knows_what_came_since_it_began(
    story: tuple[list[tuple[list[Record], int]], ...], hashes: int
) -> None:
    """A group counts all records since the partial came, or came again."""
    full = shape_of_sums(weighed=False)
    few = without(full)
    kept = Growth(1, ((LARGEST, 1),), (LARGEST,))
    shapes = [few, grown(full, 1), replace(few, growth=kept), grown(full, 2)]
    operator = Operator(few, hashes=hashes)
    before: dict[str | None, list[Record]] = defaultdict(list)
    since: dict[str | None, list[Record]] = defaultdict(list)
    watermark = 0
    for number, (shape, epochs) in enumerate(zip(shapes, story, strict=True)):
        operator.shape = shape
        if number in (1, 3):
            for key, records in since.items():
                before[key] += records
            since.clear()
        for rows, step in epochs:
            coming = [(watermark + time, key, value, 1) for time, key, value, _ in rows]
            watermark += step
            for each in coming:
                since[each[1]].append(each)
            told = {
                row["_k0"]: row for row in operator.run(coming, watermark) if row["_weight"] > 0
            }
            for key, row in told.items():
                every = [*before[key], *since[key]]
                assert row["count(*)"] == len(every)
                if number not in (1, 3):
                    continue
                known = [each[2] for each in since[key] if each[2] is not None]
                assert row[COUNT.name] == len(known)
                assert row[VALUES.name] == sorted(set(known))
                assert (row[SINCE] >= shape.growth.generation) == (not before[key])  # type: ignore[union-attr]
                if not before[key]:
                    assert row[LARGEST] == max(known)


def test_windows_that_were_open_are_told_from_those_that_began_after() -> None:
    full = shape_of_sums("window", weighed=False)
    operator = Operator(without(full), windows=WindowAssignment(10, 10), emits="close")
    operator.run([(1, "a", 5, 1), (12, "a", 6, 1)], 0)
    operator.shape = grown(full, 1)
    rows = operator.run([(2, "a", 1, 1), (2, "b", 2, 1), (23, "a", 3, 1)], 30)
    found = {(row[END], row["_k0"]): row for row in rows}
    assert {key: row[SINCE] for key, row in found.items()} == {
        (10, "a"): 0,
        (10, "b"): 1,
        (20, "a"): 0,
        (30, "a"): 1,
    }
    assert found[20, "a"][COUNT.name] == 0
    assert found[10, "a"][COUNT.name] == 1
    assert found[30, "a"][LARGEST] == 3


def test_a_file_tells_what_was_added_to_it() -> None:
    shape = grown(shape_of_sums(weighed=False), 3)
    found = stored_shape(shape.schema)
    assert isinstance(found, KeyedShape)
    assert found.growth == replace(shape.growth, hidden=())  # type: ignore[type-var]
    assert found.schema.names == shape.schema.names
    assert found.schema.metadata == shape.schema.metadata


def test_what_nobody_added_is_still_missing() -> None:
    full = shape_of_sums(weighed=False)
    operator = Operator(without(full))
    operator.run([(1, "a", 5, 1)], 0)
    operator.shape = replace(full, growth=Growth(1, ((COUNT.name, 1),)))
    with pytest.raises(RestoreFailed, match="it holds no max"):
        operator.run([(2, "a", 5, 1)], 0)


def test_an_aggregate_is_known_when_all_it_needs_is() -> None:
    growth = Growth(4, (("sum(x)", 2), ("count(x)", 3), ("max(x)", 4)), ("sum(x)", "count(x)"))
    assert growth.is_known(["sum(x)", "count(x)"]) == f"{SINCE} >= 3"
    assert growth.is_known(["max(x)"]) is None
    assert growth.is_known(["min(x)"]) is None
