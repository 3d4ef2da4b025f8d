"""Rows by key in a Delta table, whatever its log says of its files."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from laminar_dagster.core.errors import InvalidConfig, ServiceFailed, WriteFailed
from laminar_dagster.core.ids import EpochNumber, PipelineName
from laminar_dagster.core.ports import HeldKeys, Unconstrained
from laminar_dagster.sinks.delta.bounds import bounds_of
from laminar_dagster.sinks.delta.sink import DeltaSink
from tests.unit.sinks.staging import SINK, staged

MOMENT = datetime(2026, 1, 1, 12, 0, 0, 1, tzinfo=UTC)
# Of each, no two are the same once a writer has rounded them.
CLOSE: dict[str, pa.Array] = {
    "decimal": pa.array([Decimal(2**53 + each) for each in (0, 1, 2)], pa.decimal128(20, 0)),
    "fraction": pa.array(
        [Decimal(f"0.{'9' * 37}{each}") for each in (7, 8, 9)], pa.decimal128(38, 38)
    ),
    "text": pa.array(["x" * 99 + end for end in "abc"]),
    "binary": pa.array([b"\xff" * 99 + end for end in (b"\x00", b"\x01", b"\xff")]),
    "timestamp": pa.array(
        [MOMENT + timedelta(microseconds=each) for each in (0, 1, 998)], pa.timestamp("us", "UTC")
    ),
    "timestamp_ntz": pa.array(
        [datetime(2026, 1, 1, microsecond=each) for each in (1, 2, 999)],  # noqa: DTZ001
        pa.timestamp("us"),
    ),
    "date": pa.array([date(2026, 1, each) for each in (1, 2, 3)]),
    "int64": pa.array([2**53 + each for each in (0, 1, 2)]),
    "boolean": pa.array([True, False]),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "table"


def sink_at(folder: Path, *key: str) -> DeltaSink:
    return DeltaSink(SINK, PipelineName("clicks"), folder, mode="upsert", key=key or ("k",))


def put(sink: DeltaSink, epoch: int, keys: pa.Array, value: str) -> None:
    rows = pa.table({"k": keys, "v": [value] * len(keys)})
    sink.commit(EpochNumber(epoch), staged(rows))


def rows_of(folder: Path) -> list[tuple[Any, str]]:
    rows = DeltaTable(str(folder)).to_pyarrow_table()
    return sorted(zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True))


def files_of_others(folder: Path, keys: pa.Array, **options: Any) -> None:
    """A table that somebody else has made, with a file for each key."""
    for each in range(len(keys)):
        row = pa.table({"k": keys.slice(each, 1), "v": ["theirs"]})
        write_deltalake(str(folder), row, mode="append", **options)


def tell_of_files(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Have the log tell otherwise of the files, as other writers do."""
    for entry in (folder / "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in entry.read_text().splitlines()]
        for line in lines:
            if "add" in line:
                change(line["add"])
        entry.write_text("\n".join(json.dumps(line) for line in lines) + "\n")


def told_nothing(add: dict[str, Any]) -> None:
    add.pop("stats")


def told_rounded(add: dict[str, Any]) -> None:
    """As the format allows: texts are cut off, timestamps have milliseconds, numbers are floats."""
    stats = json.loads(add["stats"])
    for bounds in (stats["minValues"], stats["maxValues"]):
        for name, value in bounds.items():
            if isinstance(value, str) and value.startswith("x"):
                bounds[name] = value[:32]
            if isinstance(value, float):
                bounds[name] = float(f"{value:.6g}")
    # The largest text of a file, cut off and raised, as writers that know of it do.
    if str(stats["maxValues"].get("k")).startswith("xx"):
        stats["maxValues"]["k"] += "\U0010ffff"
    add["stats"] = json.dumps(stats)


# --- keys that are next to each other -------------------------------------------------------------


@pytest.mark.parametrize("told", [None, told_nothing, told_rounded])
@pytest.mark.parametrize("kind", CLOSE)
def test_files_of_others_are_found_by_key(
    folder: Path, kind: str, told: Callable[[dict[str, Any]], None] | None
) -> None:
    """Whatever was made of the bounds of their columns."""
    keys = CLOSE[kind]
    files_of_others(folder, keys)
    if told:
        tell_of_files(folder, told)
    sink = sink_at(folder)
    for each in range(len(keys)):
        one = pa.table({"k": keys.slice(each, 1)})
        schema = pa.schema([one.schema.field("k"), pa.field("v", pa.string())])
        assert sink.held_keys(schema, one).count == 1
        put(sink, each + 1, keys.slice(each, 1), "ours")
    assert rows_of(folder) == sorted((key, "ours") for key in keys.to_pylist())
    gone = pa.table({"k": keys, "v": ["x"] * len(keys), "_weight": [-1] * len(keys)})
    sink.commit(EpochNumber(len(keys) + 1), staged(gone))
    assert rows_of(folder) == []


@pytest.mark.parametrize("kind", CLOSE)
def test_a_checkpoint_of_the_log_changes_nothing(folder: Path, kind: str) -> None:
    """The statistics are in a file of Parquet then, rounded otherwise."""
    keys = CLOSE[kind]
    sink = sink_at(folder)
    for each in range(len(keys)):
        put(sink, each + 1, keys.slice(each, 1), "old")
    DeltaTable(str(folder)).create_checkpoint()
    for each in range(len(keys)):
        put(sink, len(keys) + each + 1, keys.slice(each, 1), "new")
    assert rows_of(folder) == sorted((key, "new") for key in keys.to_pylist())


# --- bounds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("far", "near"),
    [
        (pa.array([1]), pa.array([1000])),
        (pa.array([date(2020, 1, 1)]), pa.array([date(2026, 1, 1)])),
        (pa.array([MOMENT - timedelta(days=1)]), pa.array([MOMENT])),
        (pa.array([1], pa.timestamp("us")), pa.array([10**9], pa.timestamp("us"))),
    ],
)
def test_files_without_a_key_of_the_epoch_are_not_read(
    folder: Path, far: pa.Array, near: pa.Array
) -> None:
    """Or a merge would take longer with every epoch before it."""
    sink = sink_at(folder)
    put(sink, 1, far, "far")
    for file in folder.glob("*.parquet"):
        file.unlink()
    put(sink, 2, near, "near")
    put(sink, 3, near, "again")
    schema = pa.schema([pa.field("k", near.type), pa.field("v", pa.string())])
    assert sink.held_keys(schema, pa.table({"k": near})).count == 1


def test_types_whose_statistics_are_rounded_have_no_bounds() -> None:
    bounded = {kind for kind, keys in CLOSE.items() if bounds_of(pa.table({"k": keys}))}
    assert bounded == {"int64", "date", "timestamp", "timestamp_ntz"}


@pytest.mark.parametrize("moment", [-(2**62), 2**62])
def test_a_moment_beyond_every_calendar_has_no_bounds(moment: int) -> None:
    assert bounds_of(pa.table({"k": pa.array([0, moment], pa.timestamp("us"))})) == []


# --- partitioned tables ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["decimal", "text", "timestamp", "date", "int64", "boolean"])
def test_a_table_may_be_partitioned_by_its_key(folder: Path, kind: str) -> None:
    files_of_others(folder, CLOSE[kind], partition_by=["k"])
    put(sink_at(folder), 1, CLOSE[kind], "ours")
    assert rows_of(folder) == sorted((key, "ours") for key in CLOSE[kind].to_pylist())


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        (pa.array(["a"]), pa.array(["a", ""]), "1 values are empty texts, which become nulls"),
        (
            pa.array([Decimal("1.50")]),
            pa.array([Decimal("1.50"), Decimal("-1.05")]),
            "1 values are negative, which its client cannot write",
        ),
    ],
)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_value_that_a_partition_does_not_keep_is_refused(
    folder: Path, good: pa.Array, bad: pa.Array, said: str, mode: Any
) -> None:
    """Before the epoch is prepared, and by the commit."""
    files_of_others(folder, good, partition_by=["k"])
    key = ("k",) if mode == "upsert" else ()
    sink = DeltaSink(SINK, PipelineName("clicks"), folder, mode=mode, key=key)
    rows = pa.table({"k": bad, "v": ["ours"] * len(bad)})
    with pytest.raises(InvalidConfig, match=said):
        sink.check(rows.schema, staged(rows))
    with pytest.raises(WriteFailed, match=said):
        sink.commit(EpochNumber(1), staged(rows))
    assert [value for _, value in rows_of(folder)] == ["theirs"]
    sink.commit(EpochNumber(1), staged(rows.slice(0, 1)))


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_partition_of_bytes_is_refused(folder: Path, mode: Any) -> None:
    keys = pa.array([b"a"])
    files_of_others(folder, keys, partition_by=["k"])
    key = ("v",) if mode == "upsert" else ()
    sink = DeltaSink(SINK, PipelineName("clicks"), folder, mode=mode, key=key)
    rows = pa.table({"k": keys, "v": ["ours"]})
    with pytest.raises(InvalidConfig, match="partitioned by `k`, which is binary"):
        sink.check(rows.schema)
    with pytest.raises(WriteFailed, match="partitioned by `k`, which is binary"):
        sink.commit(EpochNumber(1), staged(rows))


# --- several rows of one key ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", CLOSE)
def test_keys_with_several_rows_are_found(folder: Path, kind: str) -> None:
    """As version 0.1 left them, and as others may write them."""
    keys = CLOSE[kind]
    sink = sink_at(folder)
    assert isinstance(sink, Unconstrained)
    assert sink.repeated_keys() == HeldKeys(0, "")
    put(sink, 1, keys, "ours")
    assert sink.repeated_keys() == HeldKeys(0, "")
    write_deltalake(str(folder), pa.table({"k": keys[-1:], "v": ["twice"]}), mode="append")
    repeated = sink.repeated_keys()
    assert repeated.count == 1
    # A long one is cut off.
    assert repeated.example[:60] == f"k={keys[-1].as_py()!r}"[:60]
    write_deltalake(str(folder), pa.table({"k": keys, "v": ["more"] * len(keys)}), mode="append")
    assert sink.repeated_keys().count == len(keys)


def test_a_key_of_several_columns_has_one_row(folder: Path) -> None:
    sink = sink_at(folder, "k", "odd name.x")
    rows = pa.table({"k": [1, 1, 2], "odd name.x": ["a", "b", "a"]})
    sink.commit(EpochNumber(1), staged(rows))
    assert sink.repeated_keys() == HeldKeys(0, "")
    write_deltalake(str(folder), rows.slice(1, 1), mode="append")
    assert sink.repeated_keys() == HeldKeys(1, "k=1, odd name.x='b'")


def test_an_appending_sink_has_no_keys_to_repeat(folder: Path) -> None:
    rows = pa.table({"k": [1, 1]})
    sink = DeltaSink(SINK, PipelineName("clicks"), folder)
    sink.commit(EpochNumber(1), staged(rows))
    assert sink.repeated_keys() == HeldKeys(0, "")
    assert sink_at(folder, "other").repeated_keys() == HeldKeys(0, "")


def test_a_table_whose_files_are_gone_is_no_service_that_is_away(folder: Path) -> None:
    sink = sink_at(folder)
    put(sink, 1, pa.array([1]), "ours")
    for file in folder.glob("*.parquet"):
        file.unlink()
    with pytest.raises(ServiceFailed):
        sink.repeated_keys()


# --- values that no table takes -------------------------------------------------------------------


ODD = pa.array([b"ok", b"\xff\xfe"]).view(pa.string())


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (ODD, "column `v` has values that are no UTF-8 text"),
        (pa.StructArray.from_arrays([ODD], ["part"]), "column `v` has values that are no UTF-8"),
        (pa.ListArray.from_arrays([0, 1, 2], ODD), "column `v` has values that are no UTF-8 text"),
        (pa.array([1000, 1], pa.timestamp("ns")), "a value of column `v` does not fit"),
    ],
)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_value_that_no_table_takes_is_refused_before_the_epoch_is_prepared(
    folder: Path, values: pa.Array, said: str, mode: Any
) -> None:
    """And by the commit: a file with such a text could not be merged with any more."""
    sink = DeltaSink(
        SINK, PipelineName("clicks"), folder, mode=mode, key=("k",) if mode == "upsert" else ()
    )
    rows = pa.table({"k": [1, 2], "v": values})
    sink.check(rows.schema, staged(rows.slice(0, 1)))
    with pytest.raises(InvalidConfig, match=said):
        sink.check(rows.schema, staged(rows.slice(0, 1), rows.slice(1)))
    with pytest.raises(WriteFailed, match=said):
        sink.commit(EpochNumber(1), staged(rows))
    assert sink.ledger() is None


def test_a_key_that_is_no_text_is_refused(folder: Path) -> None:
    rows = pa.table({"k": ODD})
    with pytest.raises(InvalidConfig, match="column `k` has values that are no UTF-8 text"):
        sink_at(folder).check(rows.schema, staged(rows))
    with pytest.raises(WriteFailed, match="column `k` has values that are no UTF-8 text"):
        sink_at(folder).commit(EpochNumber(1), staged(rows))
