"""Lists, structs and maps of a view that go to a Delta table which is there already."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from laminar_dagster.core.errors import InvalidConfig, WriteFailed
from tests.unit.sinks.test_delta_sink import commit, rows_of, sink_at


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "table"


def struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct([*fields.items()])


@pytest.mark.parametrize(
    ("there", "comes", "value", "problem"),
    [
        (struct(x=pa.int64()), struct(x=pa.float64()), {"x": 1.5}, "`b.x`"),
        (struct(x=pa.int64()), struct(x=pa.string()), {"x": "1"}, "`b.x`"),
        (
            struct(x=pa.decimal128(10, 1)),
            struct(x=pa.decimal128(10, 3)),
            {"x": Decimal("1.123")},
            "`b.x`",
        ),
        (
            struct(x=pa.int64()),
            struct(x=pa.int64(), z=pa.int64()),
            {"x": 1, "z": 2},
            "has the fields `x`, `z`, the Delta table's has the fields `x`",
        ),
        (struct(x=pa.int64(), z=pa.int64()), struct(x=pa.int64()), {"x": 1}, "has the fields `x`,"),
        (struct(x=pa.int64()), struct(y=pa.int64()), {"y": 1}, "has the fields `y`,"),
        # The client takes it for another field, and commits null.
        (struct(x=pa.int64()), struct(X=pa.int64()), {"X": 1}, "has the fields `X`,"),
        (pa.list_(pa.string()), pa.list_(pa.int64()), [7], "`b.element`"),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), [7], "`b.element`"),
        (
            pa.map_(pa.string(), pa.int64()),
            pa.map_(pa.string(), pa.float64()),
            [("a", 1.5)],
            "`b.value`",
        ),
        (
            pa.map_(pa.string(), pa.int64()),
            pa.map_(pa.int64(), pa.int64()),
            [(1, 1)],
            "`b.key`",
        ),
        (
            pa.list_(struct(x=pa.int64())),
            pa.list_(struct(x=pa.float64())),
            [{"x": 1.5}],
            "`b.element.x`",
        ),
        (
            struct(m=pa.map_(pa.string(), pa.list_(pa.int64()))),
            struct(m=pa.map_(pa.string(), pa.list_(pa.float64()))),
            {"m": [("a", [1.5])]},
            "`b.m.value.element`",
        ),
        (struct(x=pa.int64()), pa.list_(pa.int64()), [1], "`b`"),
        (pa.string(), pa.list_(pa.string()), ["a"], "`b`"),
        (pa.list_(pa.string()), pa.string(), "a", "`b`"),
    ],
    ids=lambda given: str(given) if isinstance(given, pa.DataType) else "",
)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_what_is_inside_is_not_changed_either(
    folder: Path, there: pa.DataType, comes: pa.DataType, value: Any, problem: str, mode: str
) -> None:
    sink = sink_at(folder, mode=mode, key=("k",) if mode == "upsert" else ())
    commit(sink, 1, pa.table({"k": [1], "b": pa.nulls(1, there)}))
    changed = pa.table({"k": [2], "b": pa.array([value], comes)})
    with pytest.raises(InvalidConfig, match=problem):
        sink.check(changed.schema)
    with pytest.raises(WriteFailed, match=problem):
        commit(sink, 2, changed)
    assert sink.ledger() == 1
    assert rows_of(folder) == [{"k": 1, "b": None}]


REQUIRED = pa.struct([pa.field("x", pa.int64(), nullable=False), pa.field("y", pa.string())])


@pytest.mark.parametrize(
    ("there", "comes", "value"),
    [
        (struct(x=pa.int64()), struct(x=pa.int32()), {"x": 7}),
        (
            struct(x=pa.int64(), y=pa.string()),
            struct(y=pa.string(), x=pa.int8()),
            {"y": "a", "x": 7},
        ),
        (REQUIRED, struct(y=pa.large_string(), x=pa.int64()), {"y": "a", "x": 7}),
        (pa.list_(pa.float64()), pa.large_list(pa.float32()), [1.5, None]),
        (pa.list_(pa.int64()), pa.list_(pa.int32(), 2), [1, None]),
        (
            pa.list_(pa.field("element", pa.int64(), nullable=False)),
            pa.list_(pa.int32()),
            [1, 2],
        ),
        (
            pa.map_(pa.int64(), pa.decimal128(20, 2)),
            pa.map_(pa.int32(), pa.decimal128(10, 2)),
            [(1, Decimal("1.50"))],
        ),
        (
            pa.list_(struct(x=pa.int64(), m=pa.map_(pa.string(), pa.int64()))),
            pa.list_(struct(m=pa.map_(pa.string(), pa.int16()), x=pa.int32())),
            [{"m": [("a", 1)], "x": 7}, None],
        ),
    ],
    ids=lambda given: str(given) if isinstance(given, pa.DataType) else "",
)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_what_is_inside_may_be_narrower_and_in_another_order(
    folder: Path, there: pa.DataType, comes: pa.DataType, value: Any, mode: str
) -> None:
    empty = pa.table({"k": pa.array([], pa.int64()), "b": pa.array([], there)})
    write_deltalake(str(folder), empty)
    sink = sink_at(folder, mode=mode, key=("k",) if mode == "upsert" else ())
    rows = pa.table({"k": [1, 2], "b": pa.array([value, None], comes)})
    sink.check(rows.schema)
    commit(sink, 1, rows)
    assert sorted(rows_of(folder), key=lambda row: row["k"]) == rows.to_pylist()


@pytest.mark.parametrize(
    ("there", "comes", "value"),
    [
        (REQUIRED, struct(x=pa.int64(), y=pa.string()), {"x": None, "y": "a"}),
        (
            pa.list_(pa.field("element", pa.int64(), nullable=False)),
            pa.list_(pa.int64()),
            [1, None],
        ),
        (
            pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)),
            pa.map_(pa.string(), pa.int64()),
            [("a", None)],
        ),
    ],
    ids=["struct", "list", "map"],
)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_what_the_table_requires_inside_is_required(
    folder: Path, there: pa.DataType, comes: pa.DataType, value: Any, mode: str
) -> None:
    empty = pa.table({"k": pa.array([], pa.int64()), "b": pa.array([], there)})
    write_deltalake(str(folder), empty)
    sink = sink_at(folder, mode=mode, key=("k",) if mode == "upsert" else ())
    with pytest.raises(WriteFailed):
        commit(sink, 1, pa.table({"k": [1], "b": pa.array([value], comes)}))
    assert sink.ledger() is None
    assert rows_of(folder) == []
