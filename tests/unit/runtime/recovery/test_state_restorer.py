"""State files of Arrow: taken back in order, checked, merged for people."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from laminar_dagster.core.errors import RestoreFailed
from laminar_dagster.core.ids import OperatorId, PartitionId
from laminar_dagster.core.manifest import OperatorSnapshotEntry
from laminar_dagster.runtime.recovery.state_restorer import ArrowState, OpaqueState, restorer_of
from laminar_dagster.spark.aggregates import PartialColumn
from laminar_dagster.spark.arrow_files import file_bytes, file_table
from laminar_dagster.spark.columns import END
from laminar_dagster.spark.state_shape import KeyColumn, StateShape

CLICKS = OperatorId("clicks")
NULL = PartitionId(0)


def shape(operator: str = "clicks", kind: pa.DataType | None = None) -> StateShape:
    column = PartialColumn("_a0", None, "count", "sum", kind or pa.int64())
    return StateShape(OperatorId(operator), (KeyColumn("_k0", "page", pa.string()),), (column,))


def file(*rows: tuple[int, str, int], like: StateShape | None = None) -> bytes:
    ends, keys, counts = zip(*rows, strict=True)
    made = like or shape()
    return file_bytes(pa.table([ends, keys, counts], names=[END, "_k0", "_a0"]).cast(made.schema))


def test_what_restores_follows_from_how_state_is_kept() -> None:
    entry = OperatorSnapshotEntry(
        operator_id=CLICKS, operator_type="w", state_backend="arrow", partitions=()
    )
    assert isinstance(restorer_of(entry), ArrowState)
    other = OperatorSnapshotEntry(
        operator_id=CLICKS, operator_type="w", state_backend="json", partitions=()
    )
    assert isinstance(restorer_of(other), OpaqueState)


def test_files_are_counted() -> None:
    state = ArrowState(CLICKS)
    state.restore(NULL, file((60, "a", 1), (60, "b", 2)))
    state.apply_delta(NULL, file((60, "a", 5)))
    assert state.complete(NULL) == 3
    # A partition that is begun again forgets what it had.
    state.restore(NULL, file((60, "a", 1)))
    assert state.complete(NULL) == 1


def test_files_are_merged_into_a_folder(tmp_path: Path) -> None:
    state = ArrowState(CLICKS, tmp_path)
    state.restore(NULL, file((60, "a", 1), (60, "b", 2)))
    state.apply_delta(NULL, file((60, "a", 5), (120, "a", 7)))
    state.apply_delta(NULL, file((60, "b", -2)))
    assert state.complete(NULL) == 3
    merged = file_table((tmp_path / "clicks" / "0.arrow").read_bytes())
    assert merged.to_pylist() == [
        {END: 60, "_k0": "a", "_a0": 6},
        {END: 60, "_k0": "b", "_a0": 0},
        {END: 120, "_k0": "a", "_a0": 7},
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"ARROW1 and no more",
        file_bytes(pa.table({"a": [1]})),
        file((60, "a", 1), like=shape("orders")),
    ],
    ids=["empty", "cut off", "no state", "of another operator"],
)
def test_whole_bytes_that_are_no_state(data: bytes) -> None:
    state = ArrowState(CLICKS)
    with pytest.raises(RestoreFailed, match="clicks, partition 0"):
        state.restore(NULL, data)


def test_files_that_do_not_fit_together(tmp_path: Path) -> None:
    for into in (None, tmp_path):
        state = ArrowState(CLICKS, into)
        state.restore(NULL, file((60, "a", 1)))
        other = shape(kind=pa.list_(pa.int64()))
        table = pa.table([[60], ["a"], [[1]]], names=[END, "_k0", "_a0"]).cast(other.schema)
        state.apply_delta(NULL, file_bytes(table))
        with pytest.raises(RestoreFailed):
            state.complete(NULL)
