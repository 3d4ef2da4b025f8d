"""The join with a reference table, against every pair looked at one by one."""

from __future__ import annotations

import hashlib
import json
from typing import Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.core.ids import FileName
from laminar_dagster.core.snapshot import SnapshotFile
from laminar_dagster.spark.arrow_files import file_bytes
from laminar_dagster.spark.columns import CONTROL, KEEP, PART
from laminar_dagster.spark.partial_step import control_rows
from laminar_dagster.spark.reference_step import CAN_MATCH, PinnedTable, ReferenceStep
from laminar_dagster.testing.memory_store import MemoryStore

Kind = Literal["inner", "left", "semi", "anti"]
KINDS: tuple[Kind, ...] = ("inner", "left", "semi", "anti")
TABLE = pa.schema([("a", pa.int32()), ("b", pa.string()), ("name", pa.string())])
INPUT = pa.schema(
    [
        (PART, pa.int64()),
        (CONTROL, pa.string()),
        (KEEP, pa.bool_()),
        ("left.id", pa.int64()),
        ("_j0", pa.int64()),
        ("_j1", pa.string()),
        (CAN_MATCH, pa.bool_()),
    ]
)
OUT = pa.schema([*[INPUT.field(number) for number in range(4)], ("right.name", pa.string())])

Row = tuple[int | None, str | None, bool, bool]
Partner = tuple[int | None, str | None, str]
numbers = st.none() | st.integers(0, 3)
letters = st.none() | st.sampled_from("xy")
rows = st.lists(st.tuples(numbers, letters, st.booleans(), st.booleans()), max_size=12)
partners = st.lists(st.tuples(numbers, letters, st.sampled_from("pqr")), max_size=6)


def pinned(*files: list[Partner], damage: bool = False) -> PinnedTable:
    store = MemoryStore()
    found = []
    for number, held in enumerate(files):
        columns = [list(each) for each in zip(*held, strict=True)] if held else [[], [], []]
        rows = pa.table(columns, schema=TABLE).add_column(
            1, "unused", pa.array([0.5] * len(held), pa.float64())
        )
        data = file_bytes(rows)
        key = f"references/t/{number}"
        store.put(key, data[:-1] + b"?" if damage else data)
        digest = hashlib.sha256(data).hexdigest()
        name = FileName(f"{number}.arrow")
        file = SnapshotFile(name=name, rows=len(held), size_bytes=len(data), sha256=digest)
        found.append((key, file))
    return PinnedTable(TABLE, tuple(found), store)


def step(kind: Kind, table: PinnedTable, operator: str | None = "v.reference") -> ReferenceStep:
    found = (("name", "right.name"),) if kind in ("inner", "left") else ()
    schema = OUT if found else pa.schema([OUT.field(number) for number in range(4)])
    kinds = (pa.int64(), pa.string())
    return ReferenceStep(operator, kind, table, ("a", "b"), kinds, found, schema)


def batch(held: list[Row]) -> pa.RecordBatch:
    count = len(held)
    columns = [
        [7] * count,
        [None] * count,
        [each[2] for each in held],
        list(range(count)),
        [each[0] for each in held],
        [each[1] for each in held],
        [each[3] for each in held],
    ]
    arrays = [pa.array(each, kind) for each, kind in zip(columns, INPUT.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=INPUT)


def expected(kind: Kind, held: list[Row], table: list[Partner]) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for place, (a, b, keep, can) in enumerate(held):
        names = [
            name
            for other_a, other_b, name in table
            if keep and can and None not in (a, b) and (a, b) == (other_a, other_b)
        ]
        if kind == "inner" or (kind == "left" and names):
            found += [(place, name) for name in names]
        elif keep and (kind == "left" or bool(names) == (kind == "semi")):
            found.append((place, None) if kind == "left" else (place,))
    return found


@pytest.mark.parametrize("kind", KINDS)
@given(held=rows, table=partners, cut=st.integers(0, 6))
def test_rows_get_their_partners_in_order(
    kind: Kind, held: list[Row], table: list[Partner], cut: int
) -> None:
    given_step = step(kind, pinned(table[:cut], table[cut:]))
    out = pa.Table.from_batches([*given_step(iter([batch(held)]))], given_step.schema)
    reports = [json.loads(each) for each in out.column(CONTROL).drop_null().to_pylist()]
    live = out.filter(pa.compute.is_null(out.column(CONTROL))).drop_columns([PART, CONTROL, KEEP])
    wanted = expected(kind, held, table)
    assert [tuple(each.values()) for each in live.to_pylist()] == wanted
    counted = sum(each["processed"] for each in reports), sum(each["filtered"] for each in reports)
    staying = len({each[0] for each in wanted})
    assert counted == ((staying, len(held) - staying) if held else (0, 0))


def test_reports_pass_and_rows_that_are_no_records_are_not_counted() -> None:
    given_step = step("inner", pinned([(1, "x", "p")]), operator=None)
    incoming = [control_rows(["told"], 7, INPUT), batch([(1, "x", True, True)])]
    out = pa.Table.from_batches([*given_step(iter(incoming))])
    assert out.column(CONTROL).to_pylist() == ["told", None]
    assert out.column("right.name").to_pylist() == [None, "p"]


def test_a_damaged_table_is_reported_by_name() -> None:
    (told,) = step("left", pinned([(1, "x", "p")], damage=True))(iter([batch([])]))
    assert json.loads(told.column(CONTROL)[0].as_py())["kind"] == "checksum_mismatch"
