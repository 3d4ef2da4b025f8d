"""Writes the rows of a reference table to files: checked, sorted and split by size.

The same rows give the same bytes, in whatever order they were read: so a table that was rewritten
with the same rows needs no second copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.config.fingerprint import declaration_of
from laminar_dagster.config.model import ReferenceTable
from laminar_dagster.core.errors import InvalidConfig, ReferenceUnfit
from laminar_dagster.core.ids import ReferenceId
from laminar_dagster.sources.formats.arrow_types import arrow_schema

# The size of a file: few enough files for a plan to name them all, each small enough for memory.
_FILE_BYTES: Final = 64 * 1024**2
_CHUNK_ROWS: Final = 65_536
# Not compressed: executors map the files into memory.
_WRITING: Final = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V5)


@dataclass(frozen=True, slots=True)
class TableShape:
    """The declaration of a reference table.

    Attributes:
        schema: The declared columns.
        key: The columns that identify a row; empty without PRIMARY KEY.
        declaration: SHA-256 of all that decides which rows and columns are read.
        max_bytes: A larger table is refused.
    """

    reference_id: ReferenceId
    schema: pa.Schema
    key: tuple[str, ...]
    declaration: str
    max_bytes: int

    @classmethod
    def of(cls, table: ReferenceTable, max_bytes: int) -> TableShape:
        """The shape that a ``CREATE REFERENCE TABLE`` declares.

        Raises:
            InvalidConfig: A column's type is not supported.
        """
        try:
            schema = arrow_schema(table.columns)
        except ValueError as error:
            where = str(table.place)
            raise InvalidConfig(where, f"reference table {table.reference_id}: {error}") from None
        return cls(table.reference_id, schema, table.key, declaration_of(table), max_bytes)

    def unfit(self, problem: str) -> ReferenceUnfit:
        """The error for a table that does not match its declaration."""
        return ReferenceUnfit(self.reference_id, problem)

    def require_room(self, size_bytes: int) -> None:
        """Refuse a table that is larger than ``max_bytes``.

        Raises:
            ReferenceUnfit: The table is too large.
        """
        if size_bytes > self.max_bytes:
            problem = f"it has more than {self.max_bytes} bytes"
            raise self.unfit(f"{problem}; raise `max.bytes` if every executor has room for it")

    def files_of(self, rows: pa.Table) -> tuple[tuple[int, bytes], ...]:
        """Write rows of the declared columns; return the number of rows and the bytes of each file.

        Raises:
            ReferenceUnfit: Two rows have the same key, a value is missing, or it is too large.
        """
        self.require_room(rows.nbytes)
        for each in self.schema:
            missing = rows.column(each.name).null_count
            if missing and not each.nullable:
                raise self.unfit(f"`{each.name}` must not be null, and is in {missing} rows")
        # Sorted only so that the same set of rows always gives the same bytes.
        ordered = rows.sort_by([(name, "ascending") for name in self._order()]).combine_chunks()
        self._require_each_key_once(ordered)
        plain = pa.schema([pa.field(each.name, each.type) for each in self.schema])
        return tuple(self._cut(ordered.cast(plain)))

    def _order(self) -> list[str]:
        if self.key:
            return [*self.key]
        return [each.name for each in self.schema if not pa.types.is_nested(each.type)]

    def _require_each_key_once(self, rows: pa.Table) -> None:
        count = rows.num_rows
        if not self.key or count < 2:
            return
        columns = [rows.column(name) for name in self.key]
        repeated = reduce(
            pc.and_, (pc.equal(each.slice(1), each.slice(0, count - 1)) for each in columns)
        )
        place = pc.index(repeated, True).as_py()
        if place >= 0:
            found = pc.sum(repeated).as_py()
            first = rows.select([*self.key]).slice(place, 1).to_pylist()[0]
            shown = ", ".join(f"{name} = {str(value)[:80]!r}" for name, value in first.items())
            more = f", and {found - 1} more like it" if found > 1 else ""
            raise self.unfit(f"its PRIMARY KEY is not one: two rows have {shown}{more}")

    def _cut(self, rows: pa.Table) -> Iterator[tuple[int, bytes]]:
        pieces = max(1, -(-rows.nbytes // _FILE_BYTES))
        step = max(1, -(-rows.num_rows // pieces))
        for start in range(0, max(1, rows.num_rows), step):
            piece = rows.slice(start, step)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_file(sink, piece.schema, options=_WRITING) as writer:
                writer.write_table(piece, max_chunksize=_CHUNK_ROWS)
            yield piece.num_rows, sink.getvalue().to_pybytes()
