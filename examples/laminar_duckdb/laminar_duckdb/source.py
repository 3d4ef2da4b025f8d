"""A table in a DuckDB database, read in the order of a column that grows."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.config.max_ahead import MAX_AHEAD
from laminar_dagster.config.model import SourceTable
from laminar_dagster.core.errors import (
    InvalidConfig,
    RetentionExpired,
    SeekFailed,
    SourceReplaced,
    SourceUnavailable,
)
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.offsets import CustomIdentity, CustomPosition, SourcePosition, SourceRange
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Admission
from laminar_dagster.sources.decoded import BadRecord, PlacedChunk, chunk_of
from laminar_dagster.sources.formats.arrow_types import arrow_schema
from laminar_dagster.sources.option_values import Known, Mistakes, duration, read_values
from laminar_duckdb.database import PATIENCE, columns_of, connected, has_table, quote

_TYPE: Final = "duckdb"
_WIDTH: Final = 8
# Rows of a split, and of a chunk, by their numbers: the same on every machine.
_SPLIT: Final = 65_536
_CHUNK: Final = 8_192
_OPTIONS: Final[Known] = {
    "path": ("path", str),
    "table": ("table", str),
    "sequence": ("sequence", str),
    "lock_timeout": ("patience", lambda text: duration(text).total_seconds()),
}


def position_of(number: int) -> CustomPosition:
    """The position before the row of a number. Big-endian: positions sort as their bytes do."""
    return CustomPosition(source_type=_TYPE, position_bytes=number.to_bytes(_WIDTH, "big"))


def number_of(source_id: str, position: SourcePosition) -> int:
    """The number of the next row to read.

    Raises:
        SeekFailed: The position belongs to another kind of source.
    """
    if not isinstance(position, CustomPosition) or position.source_type != _TYPE:
        raise SeekFailed(source_id, f"{type(position).__name__} is no row of a DuckDB table")
    return int.from_bytes(position.position_bytes, "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class DuckdbTable:
    """Where rows are, and how long to wait for them. Pickles.

    Attributes:
        sequence: The column whose numbers order the rows.
    """

    source_id: SourceId
    path: Path
    table: str
    sequence: str
    schema: pa.Schema
    patience: float = PATIENCE

    @contextmanager
    def opened(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection that can only read.

        Raises:
            SourceUnavailable: It cannot be opened, or read, now.
        """
        try:
            with connected(self.path, self.patience, read_only=True) as connection:
                if not has_table(connection, self.table):
                    raise SourceUnavailable(self.source_id, f"there is no table {self.table}")
                yield connection
        except duckdb.Error as error:
            raise SourceUnavailable(self.source_id, str(error)) from error

    def select(self, what: str, then: str = "") -> str:
        """A query of the table."""
        return f"SELECT {what} FROM {quote(self.table)} {then}"


class DuckdbSource:
    """Implements ``Source`` for a table to which rows are only added, each with a larger number."""

    def __init__(self, table: DuckdbTable) -> None:
        """Describe the source. Nothing is opened."""
        self._table = table

    @classmethod
    def from_table(cls, table: SourceTable, project: Path) -> DuckdbSource:
        """Build the source that a ``CREATE SOURCE TABLE`` describes.

        Options: ``path``, ``table`` (the source's own name by default), ``sequence``,
        ``lock_timeout``.

        Raises:
            InvalidConfig: Lists every mistake.
        """
        where = str(table.place)
        mistakes = Mistakes(where)
        # The engine reads this one, for every source.
        values = read_values(table.options, _OPTIONS, mistakes, (MAX_AHEAD,))
        for name in ("path", "sequence"):
            if name not in values:
                mistakes.add(f"`{name}` is missing")
        mistakes.raise_if_any()
        try:
            schema = arrow_schema(table.columns)
        except ValueError as error:
            raise InvalidConfig(where, str(error)) from None
        path = Path(os.path.abspath(project / values.pop("path")))
        values.setdefault("table", str(table.source_id))
        return cls(DuckdbTable(source_id=table.source_id, path=path, schema=schema, **values))

    @property
    def source_id(self) -> SourceId:
        """The source's name within the pipeline."""
        return self._table.source_id

    @property
    def address(self) -> str:
        """The database's file, and the table: as a sink of the same table calls it."""
        return f"duckdb://{self._table.path}/{self._table.table}"

    def plan(
        self,
        previous: SourcePlan | None,
        start: tuple[SourcePosition, ...],
        limits: Admission,
        clock: datetime,
    ) -> SourcePlan:
        """See ``Source.plan``. The only partition is never idle."""
        with self._table.opened() as connection:
            self._require_columns(connection)
            identity = self._identity(connection)
            self._require_same(previous.identity if previous else None, identity)
            begin = number_of(self.source_id, start[0]) if start else 0
            self._require_row_before(connection, begin)
            end = self._admitted(connection, begin, limits)
        return SourcePlan(
            source_id=self.source_id,
            identity=identity,
            ranges=(SourceRange(start=position_of(begin), end=position_of(end)),),
        )

    def verify(self, plan: SourcePlan) -> None:
        """See ``Source.verify``."""
        with self._table.opened() as connection:
            self._require_same(plan.identity, self._identity(connection))
            for part in plan.ranges:
                self._require_row_before(connection, number_of(self.source_id, part.start))
                self._require_row_before(connection, number_of(self.source_id, part.end))

    def identity(self) -> CustomIdentity:
        """The first row, which stays as long as the table does; nothing of an empty table."""
        with self._table.opened() as connection:
            return self._identity(connection)

    def splits(self, part: SourceRange) -> tuple[SourceRange, ...]:
        """Cut at round numbers, whatever rows there are."""
        begin, end = (number_of(self.source_id, each) for each in (part.start, part.end))
        cuts = [begin, *range((begin // _SPLIT + 1) * _SPLIT, end, _SPLIT), end]
        return tuple(
            SourceRange(start=position_of(one), end=position_of(two))
            for one, two in pairwise(cuts)
            if one < two
        )

    def reader(self) -> DuckdbReader:
        """See ``Source.reader``."""
        return DuckdbReader(self._table)

    def check_seek(self, position: SourcePosition) -> None:
        """See ``Source.check_seek``."""
        with self._table.opened() as connection:
            self._require_row_before(connection, number_of(self.source_id, position))

    def acknowledge(self, positions: tuple[SourcePosition, ...]) -> None:
        """Nothing: the table keeps its rows."""

    # --- what the table holds -----------------------------------------------------------------

    def _identity(self, connection: duckdb.DuckDBPyConnection) -> CustomIdentity:
        sequence = quote(self._table.sequence)
        order = f"ORDER BY {sequence} LIMIT 1"
        row = connection.execute(self._table.select("*", order)).fetchone()
        digest = hashlib.sha256(repr(row).encode()).hexdigest() if row else ""
        return CustomIdentity(source_type=_TYPE, identity=digest)

    def _require_same(self, pinned: object, found: CustomIdentity) -> None:
        # A table that was empty may have been filled since.
        if isinstance(pinned, CustomIdentity) and pinned.identity and pinned != found:
            raise SourceReplaced(
                self.source_id, f"first row {pinned.identity[:12]}", found.identity[:12] or "no row"
            )

    def _require_columns(self, connection: duckdb.DuckDBPyConnection) -> None:
        found = columns_of(connection, self._table.select("*", "LIMIT 0"))
        where = f"source {self.source_id}"
        if found.get(self._table.sequence) != "BIGINT":
            problem = f"`sequence` names `{self._table.sequence}`, which is no BIGINT column"
            raise InvalidConfig(where, problem, f"columns: {', '.join(found)}")
        for field in self._table.schema:
            if field.name not in found:
                problem = f"the table has no column `{field.name}`"
                raise InvalidConfig(where, problem, f"columns: {', '.join(found)}")
        empty = connection.execute(self._table.select("*", "LIMIT 0")).to_arrow_table()
        for field in self._table.schema:
            if not _holds(field.type, empty.schema.field(field.name).type):
                problem = f"`{field.name}` is {found[field.name]}, which {field.type} may not hold"
                raise InvalidConfig(where, problem, "declare it as the table has it")

    def _require_row_before(self, connection: duckdb.DuckDBPyConnection, number: int) -> None:
        """Where reading ended, the last row read is the one before, and has to be there."""
        sequence = quote(self._table.sequence)
        query = self._table.select(f"count(*) FILTER ({sequence} = ?), min({sequence})")
        found = connection.execute(query, [number - 1]).fetchone()
        if number and found and not found[0]:
            earliest = "nothing" if found[1] is None else f"row {found[1]}"
            raise RetentionExpired(self.source_id, f"row {number - 1}", earliest)

    def _admitted(
        self, connection: duckdb.DuckDBPyConnection, begin: int, limits: Admission
    ) -> int:
        """The end of a range that takes at least one row, if there is one."""
        sequence = quote(self._table.sequence)
        size = f"sum(strlen(CAST(t AS VARCHAR))) OVER (ORDER BY {sequence})"
        rows = (
            f"SELECT {sequence} AS n, row_number() OVER (ORDER BY {sequence}) AS r, {size} AS s"
            f" FROM {quote(self._table.table)} t WHERE {sequence} >= ?"
        )
        query = (
            f"SELECT max(n) FROM ({rows}) WHERE r = 1"
            " OR (r <= coalesce(?, r) AND s <= coalesce(?, s))"
        )
        given = [begin, limits.max_records, limits.max_bytes]
        last = connection.execute(query, given).fetchone()
        return begin if last is None or last[0] is None else int(last[0]) + 1


@dataclass(frozen=True, slots=True)
class DuckdbReader:
    """Reads rows on an executor. Pickles; opens the file for each split."""

    table: DuckdbTable

    def read(self, split: SourceRange) -> Iterator[PlacedChunk]:
        """All rows of the range, in order. Chunks are cut by rows, of a table that only grows.

        Raises:
            SourceUnavailable: The file cannot be read now.
        """
        begin, end = (number_of(self.table.source_id, each) for each in (split.start, split.end))
        sequence = quote(self.table.sequence)
        names = ", ".join(map(quote, self.table.schema.names))
        having = f"WHERE {sequence} >= ? AND {sequence} < ? ORDER BY {sequence}"
        query = self.table.select(f"{sequence} AS _number, {names}", having)
        with self.table.opened() as connection:
            rows = connection.execute(query, [begin, end]).to_arrow_table()
        for first in range(0, rows.num_rows, _CHUNK):
            yield self._chunk(rows.slice(first, _CHUNK))

    def _chunk(self, found: pa.Table) -> PlacedChunk:
        """The rows with the declared types. A row that lacks a NOT NULL column is a bad record."""
        numbers, rows = found.column("_number"), found.drop_columns(["_number"])
        required = [field.name for field in self.table.schema if not field.nullable]
        is_good = pa.repeat(pa.scalar(True), rows.num_rows)
        for name in required:
            is_good = pc.and_(is_good, rows.column(name).is_valid())
        texts = {
            number: json.dumps(row, default=str).encode()
            for number, row in zip(numbers.to_pylist(), rows.to_pylist(), strict=True)
        }

        def bad_at(reasons: Mapping[int, str]) -> list[BadRecord]:
            return [BadRecord(number, texts[number], why) for number, why in reasons.items()]

        bad = {
            number: f"a column is null, and declared NOT NULL: {', '.join(required)}"
            for number in numbers.filter(pc.invert(is_good)).to_pylist()
        }
        return chunk_of(
            self.table.table,
            _batch(rows.filter(is_good), self.table.schema),
            numbers.filter(is_good).combine_chunks().cast(pa.int64()),
            bad_at(bad),
            sum(map(len, texts.values())),
            bad_at=bad_at,
        )


def _holds(declared: pa.DataType, found: pa.DataType) -> bool:
    """Whether a declared type holds every value of a column's type."""
    both = (declared, found)
    if all(map(pa.types.is_signed_integer, both)) or all(map(pa.types.is_floating, both)):
        return bool(found.bit_width <= declared.bit_width)
    if pa.types.is_timestamp(declared) and pa.types.is_timestamp(found):
        # A TIMESTAMP of DuckDB has no zone: it is taken for UTC.
        return bool(found.unit == "us" and (declared.tz or not found.tz))
    return bool(found == declared)


def _batch(rows: pa.Table, schema: pa.Schema) -> Any:
    columns = [rows.column(field.name).cast(field.type).combine_chunks() for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
