"""What a deduplication does not do: rank in vain, and write what has not changed."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from laminar_dagster.spark.keyed_rows import WEIGHT
from tests.unit.spark.keyed_operator import Operator, shape_of_ranks


def records(keys: int, rows: int = 20_000) -> pa.Table:
    chance = random.Random(1)
    return pa.table(
        {
            "_k0": pa.array([f"k{chance.randrange(keys)}" for _ in range(rows)]),
            "_o0": pa.array([chance.randrange(100) for _ in range(rows)], pa.int64()),
            "_p0": pa.array(range(rows), pa.int64()),
            WEIGHT: pa.array([1] * rows, pa.int8()),
        }
    )


@pytest.mark.parametrize(("keys", "limit"), [(10, 1), (1_000, 3), (9_000, 1)])
def test_rows_of_few_keys_are_ranked_where_they_are_read(keys: int, limit: int) -> None:
    shape = shape_of_ranks(limit, None, descending=False)
    kept = shape.first_rows(records(keys), shape.columns)
    assert kept.num_rows <= keys * limit
    assert len(set(kept.column("_k0").to_pylist())) > keys * 0.8


@pytest.mark.parametrize(("keys", "limit"), [(200_000, 1), (10_000, 3)])
@pytest.mark.parametrize("weighed", [False, True])
def test_rows_of_many_keys_go_on_as_they_are(keys: int, limit: int, weighed: bool) -> None:
    shape = shape_of_ranks(limit, None, descending=False, weighed=weighed)
    given = records(keys)
    made = shape.first_rows(given, shape.columns)
    assert made.column("_p0").to_pylist() == given.column("_p0").to_pylist()
    names = set(shape.schema.names) - {"_hash"}
    assert names <= set(made.column_names)


def test_keys_that_come_again_and_change_nothing_are_not_written() -> None:
    operator = Operator(shape_of_ranks(1, None, descending=False))
    operator.run([(1, "a", 5, 1), (1, "b", 5, 1)], 0)
    before = operator.files
    assert operator.run([(2, "a", 6, 1), (3, "b", 7, 1)], 0) == []
    assert operator.files == before
    told = operator.run([(4, "a", 2, 1), (5, "b", 9, 1)], 0)
    assert [(row["_k0"], row["_o0"], row[WEIGHT]) for row in told] == [("a", 5, -1), ("a", 2, 1)]
    assert len(operator.files) == len(before) + 1
    assert operator.run([(6, "a", 2, 1)], 0) == []
    assert [row["_o0"] for row in operator.run([(7, "b", 1, 1)], 0)] == [5, 1]


def test_keys_with_one_hash_are_written_together() -> None:
    operator = Operator(shape_of_ranks(1, None, descending=False), hashes=1)
    operator.run([(1, "a", 5, 1), (1, "b", 5, 1)], 0)
    operator.run([(2, "a", 4, 1)], 0)
    assert operator.run([(3, "b", 6, 1)], 0) == []
    assert [row["_o0"] for row in operator.run([(3, "b", 1, 1)], 0)] == [5, 1]
