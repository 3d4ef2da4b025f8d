"""Sinks on files say which keys they hold."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from laminar_dagster.core.errors import InvalidConfig, ServiceFailed
from laminar_dagster.core.ids import EpochNumber, PipelineName
from laminar_dagster.core.ports import HeldKeys, Searchable, Sink
from laminar_dagster.sinks.delta.sink import DeltaSink
from laminar_dagster.sinks.sqlite.sink import SqliteSink
from tests.unit.sinks.staging import SINK, staged

PIPELINE = PipelineName("clicks")
NOON = datetime(2026, 1, 1, 12, 0, 0, 1, UTC)
VALUES = {
    "int": pa.array([1, 2, 3], pa.int32()),
    "text": pa.array(["a", "A", "a "]),
    "dictionary": pa.array(["x", "y", "z"]).dictionary_encode(),
    "day": pa.array([date(2026, 1, each) for each in (1, 2, 3)]),
    "time": pa.array([NOON.replace(second=each) for each in (1, 2, 3)], pa.timestamp("us", "UTC")),
    "money": pa.array([Decimal("1.10"), Decimal("1.20"), Decimal("2.10")], pa.decimal128(10, 2)),
    "digits": pa.array(
        [Decimal(9007199254740993), Decimal(9007199254740992), Decimal(-1)], pa.decimal128(20, 0)
    ),
    "most_digits": pa.array([Decimal(10) ** 37 * each for each in (9, 8, 7)], pa.decimal128(38, 0)),
    "fine": pa.array([Decimal("1e-20"), Decimal("2e-20"), Decimal("1e17")], pa.decimal128(38, 20)),
    "long_text": pa.array([f"{'x' * 90}{each}" for each in "cba"]),
    "flag_and_more": pa.array([True, False, True]),
}


@pytest.fixture(params=["sqlite", "delta"])
def system(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def sink_at(system: str, folder: Path, *key: str) -> Sink:
    if system == "sqlite":
        return SqliteSink(SINK, PIPELINE, folder / "x.db", "t", mode="upsert", key=key)
    return DeltaSink(SINK, PIPELINE, folder / "t", mode="upsert", key=key)


def held(sink: Sink, rows: pa.Table, key: tuple[str, ...]) -> HeldKeys:
    assert isinstance(sink, Searchable)
    return sink.held_keys(rows.schema, rows.select(key))


@pytest.mark.parametrize("kind", VALUES)
def test_the_keys_of_rows_that_were_committed(system: str, tmp_path: Path, kind: str) -> None:
    values = VALUES[kind]
    rows = pa.table({"k": values, "n": pa.array([1, 2, 3]), "v": pa.array(["a", "b", "c"])})
    sink = sink_at(system, tmp_path, "k", "n")
    assert held(sink, rows, ("k", "n")) == HeldKeys(0, "")
    assert not [*tmp_path.iterdir()]
    sink.commit(EpochNumber(1), staged(rows.slice(0, 1)))
    found = held(sink, rows, ("k", "n"))
    shown = pa.array(values)[0].as_py()
    assert found.count == 1
    assert found.example.endswith(", n=1")
    assert kind not in ("int", "text") or found.example == f"k={shown!r}, n=1"
    sink.commit(EpochNumber(2), staged(rows.slice(1)))
    assert held(sink, rows, ("k", "n")).count == 3
    others = rows.set_column(1, "n", pa.array([2, 3, 4]))
    assert held(sink, others, ("k", "n")) == HeldKeys(0, "")
    assert held(sink, rows.slice(0, 0), ("k", "n")).count == 0


def test_what_was_taken_back_is_not_held(system: str, tmp_path: Path) -> None:
    sink = sink_at(system, tmp_path, "k")
    rows = pa.table({"k": [1, 2], "_weight": pa.array([1, 1], pa.int8())})
    sink.commit(EpochNumber(1), staged(rows))
    gone = pa.table({"k": [1], "_weight": pa.array([-1], pa.int8())})
    sink.commit(EpochNumber(2), staged(gone))
    assert held(sink, rows, ("k",)) == HeldKeys(1, "k=2")


def test_many_keys_in_many_files(system: str, tmp_path: Path) -> None:
    """More than one statement takes, and files of which some are left out."""
    sink = sink_at(system, tmp_path, "k", "d")
    days = pa.array([date(2026, 1, 1 + each % 28) for each in range(9000)])
    numbers = pa.array(range(9000), pa.int64())
    rows = pa.table({"k": numbers, "d": days})
    for epoch in range(3):
        sink.commit(EpochNumber(epoch + 1), staged(rows.slice(epoch * 3000, 2999)))
    assert held(sink, rows, ("k", "d")).count == 3 * 2999
    assert held(sink, rows.slice(2999, 1), ("k", "d")) == HeldKeys(0, "")
    last = held(sink, rows.slice(8998), ("k", "d"))
    assert last.count == 1
    assert last.example.startswith("k=8998, ")


def test_a_table_that_does_not_take_the_view(system: str, tmp_path: Path) -> None:
    sink = sink_at(system, tmp_path, "k")
    sink.commit(EpochNumber(1), staged(pa.table({"k": [1], "v": ["a"]})))
    with pytest.raises(InvalidConfig):
        held(sink, pa.table({"k": ["x"], "v": ["a"]}), ("k",))


def test_a_table_that_cannot_be_read(system: str, tmp_path: Path) -> None:
    sink = sink_at(system, tmp_path, "k")
    rows = pa.table({"k": [1]})
    sink.commit(EpochNumber(1), staged(rows))
    if system == "sqlite":
        (tmp_path / "x.db").write_bytes(b"nothing that a database would be" * 99)
        for each in tmp_path.glob("x.db-*"):
            each.unlink()
    else:
        for each in (tmp_path / "t").glob("*.parquet"):
            each.unlink()
    with pytest.raises(ServiceFailed):
        held(sink, rows, ("k",))
