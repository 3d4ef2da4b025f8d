"""Two states beside each other, of whatever kind they are."""

from __future__ import annotations

import pyarrow as pa

from laminar_dagster.core.ids import OperatorId
from laminar_dagster.runtime.state_reader import OperatorState, compare_states


def state(keys: tuple[str, ...], rows: pa.Table) -> OperatorState:
    values = tuple(name for name in rows.column_names if name not in keys)
    return OperatorState(OperatorId("o"), keys, values, rows)


def test_a_group_without_keys_is_one_row() -> None:
    before, after = (state((), pa.table({"count(*)": [count]})) for count in (3, 5))
    assert compare_states(before, after).to_pylist() == [
        {"change": "changed", "count(*) before": 3, "count(*) after": 5}
    ]
    assert compare_states(after, after).num_rows == 0


def test_lists_are_compared_as_a_whole() -> None:
    kind = pa.list_(pa.int64())
    before = state(("k",), pa.table({"k": ["a", "b"], "x": pa.array([[1], [1, 2]], kind)}))
    after = state(("k",), pa.table({"k": ["a", "b"], "x": pa.array([[1], [1, 3]], kind)}))
    assert compare_states(before, after).to_pylist() == [
        {"k": "b", "change": "changed", "x before": [1, 2], "x after": [1, 3]}
    ]
