"""In which order sinks are given what a view puts out."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from laminar_dagster.config.contract_rules import ContractRules
from laminar_dagster.core import layout
from laminar_dagster.core.ids import CheckpointId, SinkId
from laminar_dagster.sinks.changes import split
from laminar_dagster.spark.arrow_files import file_table
from laminar_dagster.spark.columns import CONTROL, KEEP, PART
from laminar_dagster.spark.keyed_rows import WEIGHT
from laminar_dagster.spark.reports import sort_out
from laminar_dagster.spark.staging import REPORT, StageStep
from laminar_dagster.testing.memory_store import MemoryStore

ATTEMPT = CheckpointId.from_parts(1, 1)
SINK = SinkId("table")


def staged(rows: list[tuple[int, int, str, int]], *, takes_back_first: bool) -> pa.Table:
    """Rows of part, id, value and weight as a sink reads them, file by file."""
    store = MemoryStore()
    step = StageStep("view", (SINK,), False, takes_back_first, ContractRules(), ATTEMPT, store)
    parts, ids, values, weights = zip(*rows, strict=True)
    batch = pa.record_batch(
        {
            PART: pa.array(parts, pa.int64()),
            CONTROL: pa.nulls(len(rows), pa.string()),
            KEEP: pa.array([True] * len(rows)),
            "id": pa.array(ids, pa.int64()),
            "value": pa.array(values),
            WEIGHT: pa.array(weights, pa.int8()),
        }
    )
    reports = [text for out in step(iter([batch])) for text in out.column(REPORT).to_pylist()]
    assert all(not json.loads(text)["broken"] for text in reports)
    files = sort_out(reports, ATTEMPT).staged[SINK]
    found = [store.read(layout.checkpoint_key(ATTEMPT, file.path)) for file in files]
    return pa.concat_tables([file_table(data) for data in found])


MOVED = [(1, 1, "b", 1), (3, 1, "a", -1)]
MERGED = [(0, 1, "old", -1), (0, 2, "both", 1), (0, 2, "old", -1)]
COME_AND_GONE = [(0, 1, "a", 1), (0, 1, "a", -1)]


@pytest.mark.parametrize(
    ("rows", "takes_back_first", "put", "deleted"),
    [
        pytest.param(MOVED, True, [(1, "b")], [], id="a row that moved to another bucket"),
        pytest.param(MERGED, True, [(2, "both")], [1], id="a row that takes in another"),
        pytest.param(COME_AND_GONE, False, [], [1], id="changes one after the other"),
    ],
)
def test_what_takes_the_place_of_a_row_stays(
    rows: list[tuple[int, int, str, int]],
    takes_back_first: bool,
    put: list[tuple[int, str]],
    deleted: list[int],
) -> None:
    changes = split(staged(rows, takes_back_first=takes_back_first), ("id",))
    found: list[dict[str, Any]] = changes.rows.to_pylist()
    assert [(row["id"], row["value"]) for row in found] == put
    assert changes.deleted is not None
    assert changes.deleted.column("id").to_pylist() == deleted
