"""The plug-in for DuckDB keeps the published contracts, as its author would run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
from laminar_duckdb.database import connected, has_table
from laminar_duckdb.sink import DuckdbSink
from laminar_duckdb.source import DuckdbSource, DuckdbTable

from laminar_dagster.core.errors import (
    InvalidConfig,
    LaminarError,
    RetentionExpired,
    SinkUnavailable,
)
from laminar_dagster.core.ids import EpochNumber, PipelineName, SinkId, SourceId
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Admission, ArrowSchema, DecodedChunk, HeldKeys, Sink, Source
from laminar_dagster.testing.sink_contract import Mode, Row, SinkContract, SinkPlace, StagedRow
from laminar_dagster.testing.sink_keys import Key, KeyContract, KeyKind, KeyPlace
from laminar_dagster.testing.source_contract import CLOCK, SourceContract, SourceStream
from tests.unit.sinks.key_values import NO_KEYS, as_view_has
from tests.unit.sinks.staging import COLUMNS, SINK, encode, staged

pytestmark = pytest.mark.slow

PIPELINE = PipelineName("clicks")
PATIENCE = 10.0


@dataclass(frozen=True)
class DuckdbPlace:
    """A database file with one table for each sink, or the one table of keyed rows."""

    path: Path

    def open(self, sink_id: SinkId, mode: Mode) -> Sink:
        key = ("key",) if mode == "upsert" else ()
        table = f"rows of {sink_id}"
        return DuckdbSink(
            sink_id, PIPELINE, self.path, table, mode=mode, key=key, patience=PATIENCE
        )

    def read(self, sink_id: SinkId) -> list[Row]:
        if not self.path.exists():
            return []
        with connected(self.path, 60) as connection:
            if not has_table(connection, f"rows of {sink_id}"):
                return []
            return connection.execute(f'SELECT key, value FROM "rows of {sink_id}"').fetchall()

    def encode(self, rows: Sequence[StagedRow], weights: Sequence[int] | None) -> bytes:
        return encode(rows, weights)

    def columns(self) -> ArrowSchema:
        return COLUMNS

    def open_keyed(self, key: tuple[str, ...]) -> Sink:
        return DuckdbSink(SINK, PIPELINE, self.path, "t", mode="upsert", key=key)

    def read_keyed(self, kind: KeyKind) -> list[tuple[Key, str]]:
        if not self.path.exists():
            return []
        columns = ", ".join([*kind.columns, "value"])
        with connected(self.path, 60) as connection:
            if not has_table(connection, "t"):
                return []
            found = connection.execute(f"SELECT {columns} FROM t").to_arrow_table()
        rows = [tuple(row.values()) for row in found.to_pylist()]
        return [(as_view_has(kind, row[:-1]), row[-1]) for row in rows]


class TestSink(SinkContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> SinkPlace:
        return DuckdbPlace(tmp_path / "out.duckdb")


class TestKeys(KeyContract):
    refused: ClassVar[Mapping[str, str]] = {**NO_KEYS, "interval": "does not compare well"}

    @pytest.fixture
    def key_place(self, tmp_path: Path) -> KeyPlace:
        return DuckdbPlace(tmp_path / "out.duckdb")


class DuckdbStream:
    """A table of numbers. Another one of the same size has other numbers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.replace()
        self.count = 0

    def open(self) -> Source:
        schema = pa.schema([pa.field("n", pa.int64())])
        return DuckdbSource(
            DuckdbTable(
                source_id=SourceId("s"), path=self.path, table="t", sequence="id", schema=schema
            )
        )

    def append(self, numbers: Sequence[int]) -> None:
        self.run(*((self.count + place, n) for place, n in enumerate(numbers)))
        self.count += len(numbers)

    def run(self, *rows: tuple[int, int]) -> None:
        with connected(self.path, 60) as connection:
            connection.executemany("INSERT INTO t VALUES (?, ?)", [list(row) for row in rows])

    def begin_record(self, number: int) -> bool:
        return False

    def end_record(self) -> None:
        raise AssertionError("no record was begun")

    def replace(self) -> None:
        with connected(self.path, 60) as connection:
            connection.execute("CREATE OR REPLACE TABLE t (id BIGINT, n BIGINT)")
        if hasattr(self, "count"):
            self.run(*((place, -place - 1) for place in range(self.count)))

    def numbers(self, chunk: DecodedChunk) -> list[int]:
        found: list[int] = chunk.rows.column("n").to_pylist()
        return found


class TestSource(SourceContract):
    @pytest.fixture
    def stream(self, tmp_path: Path) -> SourceStream:
        return DuckdbStream(tmp_path / "in.duckdb")


# --- what the contracts leave to the adapter ------------------------------------------------------


def plan(source: Source, previous: SourcePlan | None = None) -> SourcePlan:
    start = tuple(part.end for part in previous.ranges) if previous else ()
    return source.plan(previous, start, Admission(), CLOCK)


def test_a_row_that_is_gone_is_noticed(tmp_path: Path) -> None:
    stream = DuckdbStream(tmp_path / "in.duckdb")
    stream.append(range(5))
    source = stream.open()
    first = plan(source)
    with connected(stream.path, 60) as connection:
        connection.execute("DELETE FROM t WHERE id = 4")
    with pytest.raises(RetentionExpired):
        plan(source, first)
    with pytest.raises(RetentionExpired):
        source.verify(first)


@pytest.mark.parametrize(
    ("columns", "sequence", "problem"),
    [
        ([pa.field("m", pa.int64())], "id", "has no column `m`"),
        ([pa.field("n", pa.int32())], "id", "`n` is BIGINT"),
        ([pa.field("n", pa.int64())], "m", "no BIGINT column"),
    ],
)
def test_a_table_that_is_not_as_declared_is_refused(
    tmp_path: Path, columns: list[pa.Field], sequence: str, problem: str
) -> None:
    stream = DuckdbStream(tmp_path / "in.duckdb")
    table = DuckdbTable(
        source_id=SourceId("s"),
        path=stream.path,
        table="t",
        sequence=sequence,
        schema=pa.schema(columns),
    )
    with pytest.raises(InvalidConfig, match=problem):
        plan(DuckdbSource(table))


def test_a_null_that_may_not_be_is_a_bad_record(tmp_path: Path) -> None:
    stream = DuckdbStream(tmp_path / "in.duckdb")
    with connected(stream.path, 60) as connection:
        connection.execute("INSERT INTO t VALUES (0, 7), (1, NULL), (2, 9)")
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    table = DuckdbTable(
        source_id=SourceId("s"), path=stream.path, table="t", sequence="id", schema=schema
    )
    source = DuckdbSource(table)
    (part,) = plan(source).ranges
    (chunk,) = source.reader().read(part)
    assert chunk.rows.column("n").to_pylist() == [7, 9]
    assert chunk.bad.column("position").to_pylist() == [1]
    assert chunk.bad.column("raw").to_pylist() == [b'{"n": null}']


def test_a_view_with_other_columns_than_the_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.duckdb"
    with connected(path, 60) as connection:
        connection.execute("CREATE TABLE t (key BIGINT, other TEXT)")
    sink = DuckdbSink(SINK, PIPELINE, path, "T")
    with pytest.raises(InvalidConfig, match="other columns than the view: `other`, `value`"):
        sink.check(COLUMNS)


def test_several_rows_of_a_key_are_found(tmp_path: Path) -> None:
    path = tmp_path / "out.duckdb"
    with connected(path, 60) as connection:
        connection.execute("CREATE TABLE t AS FROM (VALUES (1, 'a'), (1, 'b'), (2, 'c')) v(key, v)")
    sink = DuckdbSink(SINK, PIPELINE, path, "t", mode="upsert", key=("key",))
    assert sink.repeated_keys() == HeldKeys(1, "key=1")
    assert DuckdbSink(SINK, PIPELINE, path, "t").repeated_keys() == HeldKeys(0, "")


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    sink = DuckdbSink(SINK, PIPELINE, tmp_path / "file" / "out.duckdb", "t")
    with pytest.raises(SinkUnavailable):
        sink.commit(EpochNumber(1), staged(pa.table({"key": [1], "value": ["a"]})))


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "out.duckdb"
    path.write_bytes(b"not a database" * 999)
    sink = DuckdbSink(SINK, PIPELINE, path, "t")
    with pytest.raises(LaminarError):
        sink.ledger()
    rows = pa.table({"key": [1], "value": ["a"]})
    with pytest.raises(LaminarError):
        sink.commit(EpochNumber(1), staged(rows))
