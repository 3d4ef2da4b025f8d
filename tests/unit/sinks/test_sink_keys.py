"""Sinks on files and in memory put rows of every kind of key as a dictionary does."""

from __future__ import annotations

import sqlite3
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import ClassVar

import pytest
from deltalake import DeltaTable

from laminar_dagster.core.ids import PipelineName
from laminar_dagster.core.ports import Sink
from laminar_dagster.sinks.delta.sink import DeltaSink
from laminar_dagster.sinks.sqlite.sink import SqliteSink
from laminar_dagster.testing.key_kinds import KEY_KINDS
from laminar_dagster.testing.memory_upsert import MemoryKeyPlace, MemoryRows
from laminar_dagster.testing.sink_keys import Key, KeyContract, KeyKind, KeyPlace
from tests.unit.sinks.key_values import NO_KEYS, as_view_has
from tests.unit.sinks.staging import SINK

PIPELINE = PipelineName("clicks")


@dataclass(frozen=True)
class SqliteKeyPlace:
    """A table of a database file."""

    path: Path

    def open_keyed(self, key: tuple[str, ...]) -> Sink:
        return SqliteSink(SINK, PIPELINE, self.path, "t", mode="upsert", key=key)

    def read_keyed(self, kind: KeyKind) -> list[tuple[Key, str]]:
        if not self.path.exists():
            return []
        columns = ", ".join([*kind.columns, "value"])
        with closing(sqlite3.connect(self.path)) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 't'").fetchone():
                return []
            rows = connection.execute(f"SELECT {columns} FROM t").fetchall()
        return [(as_view_has(kind, row[:-1]), row[-1]) for row in rows]


@dataclass(frozen=True)
class DeltaKeyPlace:
    """A Delta table."""

    folder: Path

    def open_keyed(self, key: tuple[str, ...]) -> Sink:
        return DeltaSink(SINK, PIPELINE, self.folder, mode="upsert", key=key)

    def read_keyed(self, kind: KeyKind) -> list[tuple[Key, str]]:
        if not DeltaTable.is_deltatable(str(self.folder)):
            return []
        rows = DeltaTable(str(self.folder)).to_pyarrow_table()
        keys = zip(*(rows.column(name).to_pylist() for name in kind.columns), strict=True)
        return [*zip(keys, rows.column("value").to_pylist(), strict=True)]


# Numbers of more digits than SQLite has an exact form for.
INEXACT = [
    *(f"decimal({digits},0)" for digits in (19, 20, 28, 29, 37, 38)),
    *("decimal(16,8)", "decimal(17,1)", "decimal(18,6)", "decimal(18,18)", "decimal(19,18)"),
    *("decimal(20,10)", "decimal(30,30)", "decimal(38,1)", "decimal(38,19)", "decimal(38,37)"),
    *("decimal(38,38)", "text and decimal", "two decimals"),
]


class TestSqliteKeys(KeyContract):
    refused: ClassVar[Mapping[str, str]] = {
        **NO_KEYS,
        **dict.fromkeys(INEXACT, "more than 15 significant digits"),
    }

    @pytest.fixture
    def key_place(self, tmp_path: Path) -> KeyPlace:
        return SqliteKeyPlace(tmp_path / "warehouse.db")


class TestDeltaKeys(KeyContract):
    refused: ClassVar[Mapping[str, str]] = {
        **NO_KEYS,
        **{f"uint{bits}": f"of type uint{bits}, which Delta cannot hold" for bits in (8, 16, 32)},
        "time": "of type time64.us., which Delta cannot hold",
        "interval": "of type duration.us., which Delta cannot hold",
    }

    @pytest.fixture
    def key_place(self, tmp_path: Path) -> KeyPlace:
        return DeltaKeyPlace(tmp_path / "table")


class TestMemoryKeys(KeyContract):
    refused = NO_KEYS

    @pytest.fixture
    def key_place(self) -> KeyPlace:
        return MemoryKeyPlace()


def test_at_least_forty_kinds_of_key_are_tried_on_every_sink() -> None:
    taken = {*KEY_KINDS} - {*NO_KEYS}
    for contract in (TestSqliteKeys, TestDeltaKeys, TestMemoryKeys):
        assert len(taken - {*contract.refused}) >= 40


def test_the_contract_finds_a_sink_that_puts_a_row_beside_another() -> None:
    """Of one key and one value: as a dictionary they would be the same."""
    place = MemoryKeyPlace(MemoryRows())

    class Twice(MemoryKeyPlace):
        def read_keyed(self, kind: KeyKind) -> list[tuple[Key, str]]:
            return 2 * place.read_keyed(kind)

    with pytest.raises(AssertionError):
        TestMemoryKeys().test_rows_by_key_are_those_of_a_dictionary(Twice(place.table), "date")


def _milliseconds(key: Key) -> object:
    (moment,) = key
    assert isinstance(moment, datetime)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


@pytest.mark.parametrize(
    ("name", "same_as"),
    [
        ("decimal(17,0)", lambda key: float(key[0])),
        ("decimal(38,38)", lambda key: float(key[0])),
        ("decimal(9,2)", lambda key: int(key[0])),
        ("int64", lambda key: float(key[0])),
        ("text", lambda key: key[0].casefold()),
        ("text with spaces", lambda key: key[0].rstrip()),
        ("text of 32 and more", lambda key: key[0][:32]),
        ("text of digits", lambda key: int(key[0], 0) if key[0] in ("1", "0x1") else key[0]),
        ("text beyond ASCII", lambda key: unicodedata.normalize("NFC", key[0])),
        ("binary", lambda key: key[0].rstrip(b"\0")),
        ("timestamp", _milliseconds),
        ("two texts", "".join),
        ("two texts", ",".join),
        ("every fixed width", lambda key: key[:-1]),
    ],
)
def test_the_contract_finds_a_sink_that_takes_keys_for_each_other(
    name: str, same_as: Callable[[Key], object]
) -> None:
    place = MemoryKeyPlace(MemoryRows(same_as))
    with pytest.raises(AssertionError):
        TestMemoryKeys().test_rows_by_key_are_those_of_a_dictionary(place, name)


def test_the_contract_finds_a_sink_that_takes_what_it_should_refuse() -> None:
    contract = TestMemoryKeys()
    contract.refused = {"date": "of type date"}  # type: ignore[misc]
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        contract.test_rows_by_key_are_those_of_a_dictionary(MemoryKeyPlace(), "date")
