"""Tables on servers say which keys they hold, so that rows with one key are refused in time."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.ports import HeldKeys, Searchable, Sink
from tests.integration.sinks.databases.epochs import commit, sink_at
from tests.integration.sinks.databases.place import DatabasePlace
from tests.unit.sinks.staging import staged

NOON = datetime(2026, 1, 1, 12, 0, 0, 1, UTC)
VALUES = {
    "int": pa.array([1, 2, 3], pa.int32()),
    "text": pa.array(["a", "A", "a "]),
    "day": pa.array([date(2026, 1, each) for each in (1, 2, 3)]),
    "time": pa.array([NOON.replace(second=each) for each in (1, 2, 3)], pa.timestamp("us", "UTC")),
    "money": pa.array([Decimal("1.10"), Decimal("1.20"), Decimal("2.10")], pa.decimal128(10, 2)),
}


def held(sink: Sink, rows: pa.Table, key: tuple[str, ...]) -> HeldKeys:
    assert isinstance(sink, Searchable)
    return sink.held_keys(rows.schema, rows.select(key))


@pytest.mark.parametrize("kind", VALUES)
def test_the_keys_of_rows_that_were_committed(every_way: DatabasePlace, kind: str) -> None:
    rows = pa.table({"k": VALUES[kind], "n": pa.array([1, 2, 3]), "v": pa.array(["a", "b", "c"])})
    key = ("k", "n")
    sink = sink_at(every_way, mode="upsert", key=key, renamed={"n": "number"})
    assert held(sink, rows, key) == HeldKeys(0, "")
    commit(sink, 1, rows.slice(0, 1))
    found = held(sink, rows, key)
    assert found.count == 1
    assert found.example.endswith(", n=1")
    commit(sink, 2, rows.slice(1))
    assert held(sink, rows, key).count == 3
    others = rows.set_column(1, "n", pa.array([2, 3, 4]))
    assert held(sink, others, key) == HeldKeys(0, "")
    assert every_way.query("SELECT count(*) FROM t") == [(3,)]


def test_nothing_is_changed_by_the_question(place: DatabasePlace) -> None:
    sink = sink_at(place, mode="upsert", key=("k",))
    commit(sink, 1, pa.table({"k": [1, 2], "_weight": pa.array([1, 1], pa.int8())}))
    commit(sink, 2, pa.table({"k": [1], "_weight": pa.array([-1], pa.int8())}))
    wider = pa.table({"k": [1, 2, 3], "more": ["a", "b", "c"]})
    for _ in range(2):
        assert held(sink, wider, ("k",)) == HeldKeys(1, "k=2")
    assert place.query("SELECT * FROM t") == [(2,)]
    sink.commit(EpochNumber(3), staged(wider.slice(2)))
    assert place.query("SELECT k, more FROM t ORDER BY k") == [(2, None), (3, "c")]


def test_a_table_that_is_not_there_holds_nothing(place: DatabasePlace) -> None:
    sink, rows = sink_at(place, mode="upsert", key=("k",)), pa.table({"k": [1]})
    assert held(sink, rows, ("k",)) == HeldKeys(0, "")
    assert place.relations() == []


def test_a_table_that_does_not_take_the_view(place: DatabasePlace) -> None:
    sink = sink_at(place, mode="upsert", key=("k",))
    commit(sink, 1, pa.table({"k": [1]}))
    with pytest.raises(InvalidConfig):
        held(sink, pa.table({"k": ["x"]}), ("k",))
