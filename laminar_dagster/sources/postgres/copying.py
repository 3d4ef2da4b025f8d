"""Copies tables as an exported snapshot shows them, by blocks, over several connections.

COPY writes values as pgoutput does, with the output functions of their types, so a row of the
snapshot is decoded like the same row in the stream.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.csv
from psycopg import sql

from laminar_dagster.clients.postgres.server import Connection
from laminar_dagster.core.ids import FileName
from laminar_dagster.core.ports import SnapshotDraft, SnapshotKeeper
from laminar_dagster.core.snapshot import SnapshotFile
from laminar_dagster.sources.changes import columns as added
from laminar_dagster.sources.changes.snapshot_files import file_bytes
from laminar_dagster.sources.decoded import BadRecord
from laminar_dagster.sources.formats.columns import BadRows
from laminar_dagster.sources.postgres.copy_out import copy_out
from laminar_dagster.sources.postgres.tables import Table
from laminar_dagster.sources.postgres.values import converted

_JOIN: Final = sql.SQL("SET TRANSACTION SNAPSHOT {}")
# FORCE_QUOTE tells an empty text from a null.
_COPY: Final = sql.SQL(
    "COPY (SELECT {columns} FROM {table}{blocks}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)"
)
_BLOCKS: Final = sql.SQL(" WHERE ctid >= {first}::tid")
_UNTIL: Final = sql.SQL(" AND ctid < {last}::tid")
# A part ends when it is this many times longer than planned.
_LONGER: Final = 4
# And in any case before a column of it exceeds 2 GiB, the limit of Arrow's string offsets. The row
# that crosses this limit may add up to 1 GiB, the most that PostgreSQL allows a row.
_MOST_BYTES: Final = 2**30


@dataclass(frozen=True, slots=True)
class Piece:
    """Some blocks of a table, copied into one file, or several if they turn out to be large.

    The last piece of a table has no end.
    """

    table: Table
    number: int
    first: int | None = None
    last: int | None = None

    def file_name(self, part: int) -> FileName:
        """The name of a part's file: by number, since names of tables may contain anything."""
        more = f"-{part:06d}" if part else ""
        return FileName(f"rows-{self.number:06d}{more}.arrow")


def pieces_of(tables: Sequence[Table], file_bytes: int) -> list[Piece]:
    """Split tables into pieces of about a size."""
    pieces: list[Piece] = []
    for table in tables:
        step = max(1, file_bytes // table.block_bytes)
        if table.is_partitioned or table.blocks <= step:
            pieces.append(Piece(table, len(pieces)))
            continue
        for first in range(0, table.blocks, step):
            last = first + step
            pieces.append(Piece(table, len(pieces), first, last if last < table.blocks else None))
    return pieces


@dataclass(frozen=True, slots=True)
class TableCopier:
    """Copies the pieces of tables.

    Attributes:
        schema: The columns that the source emits.
        position: The position at which the stream begins, as text.
        snapshot: The name of the exported snapshot.
        file_bytes: About how many bytes of a table go into one file.
    """

    schema: pa.Schema
    position: str
    snapshot: str
    keeper: SnapshotKeeper
    draft: SnapshotDraft
    file_bytes: int

    def copy(
        self, pieces: Sequence[Piece], sessions: Sequence[Connection]
    ) -> tuple[SnapshotFile, ...]:
        """Copy pieces, one over each connection at a time, and return their files in order.

        Args:
            pieces: The pieces of all tables.
            sessions: In transactions that hold locks on the tables, and have run no query yet.
        """
        count = len(sessions)
        shares = [pieces[number::count] for number in range(count)]
        with ThreadPoolExecutor(count, thread_name_prefix="snapshot") as pool:
            found = [*pool.map(self._copy_some, sessions, shares)]
        files = {number: kept for each in found for number, kept in each}
        return tuple(file for piece in pieces for file in files[piece.number])

    def _copy_some(
        self, connection: Connection, pieces: Sequence[Piece]
    ) -> list[tuple[int, list[SnapshotFile]]]:
        """Copy pieces one after the other, over one connection that sees the snapshot."""
        connection.execute(_JOIN.format(sql.Literal(self.snapshot)))
        most = min(_MOST_BYTES, _LONGER * self.file_bytes)
        found = []
        for piece in pieces:
            rows = copy_out(connection, self._statement(piece))
            parts = enumerate(in_parts(rows, most))
            found.append((piece.number, [self._keep(piece, part, data) for part, data in parts]))
        # Do not commit: until all are done, the lock keeps rows from moving to other blocks.
        return found

    def _statement(self, piece: Piece) -> sql.Composed:
        blocks: sql.Composable = sql.SQL("")
        if piece.first is not None:
            blocks = _BLOCKS.format(first=sql.Literal(f"({piece.first},0)"))
            if piece.last is not None:
                blocks += _UNTIL.format(last=sql.Literal(f"({piece.last},0)"))
        names = [*self._columns(piece.table)]
        return _COPY.format(
            columns=sql.SQL(", ").join(map(sql.Identifier, names)),
            table=piece.table.own_rows,
            blocks=blocks,
        )

    def _columns(self, table: Table) -> Iterator[str]:
        return (each.name for each in added.declared(self.schema) if each.name in table.columns)

    def _keep(self, piece: Piece, part: int, data: bytes) -> SnapshotFile:
        names = [*self._columns(piece.table)]
        texts = parsed_texts(data, names)
        rows, bad, places = self._rows(piece.table, texts)
        name = piece.file_name(part)
        return self.keeper.write(self.draft, name, texts.num_rows, file_bytes(rows, bad, places))

    def _rows(
        self, table: Table, texts: pa.Table
    ) -> tuple[pa.RecordBatch, list[BadRecord], list[int]]:
        """The good rows of a piece, the bad ones, and the places of the bad ones."""
        count = texts.num_rows
        reasons: BadRows = {}
        found: dict[str, pa.Array] = {
            added.WEIGHT: pa.repeat(pa.scalar(1, pa.int8()), count),
            added.OP: pa.repeat(pa.scalar("r"), count),
            added.TABLE: pa.repeat(pa.scalar(table.name), count),
            added.POSITION: pa.repeat(pa.scalar(self.position), count),
        }
        for each in added.declared(self.schema):
            if each.name not in table.columns:
                continue
            column = texts.column(each.name).combine_chunks()
            found[each.name], wrong = converted(column, each.type)
            for row, reason in wrong.items():
                reasons.setdefault(row, f"`{each.name}`: {reason}")
            if not each.nullable:
                is_null = found[each.name].is_null().to_numpy(zero_copy_only=False)
                for row in np.flatnonzero(is_null).tolist():
                    reasons.setdefault(row, f"`{each.name}` must not be null")
        columns = [found.get(each.name, pa.nulls(count, each.type)) for each in self.schema]
        fields = [pa.field(each.name, each.type) for each in self.schema]
        rows = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
        places = sorted(reasons)
        bad = []
        for place in places:
            raw = json.dumps(texts.slice(place, 1).to_pylist()[0], ensure_ascii=False)
            bad.append(BadRecord(place, raw.encode(), reasons[place]))
        if places:
            keep = np.ones(count, np.bool_)
            keep[places] = False
            rows = rows.filter(pa.array(keep))
        return rows, bad, places


def in_parts(rows: Iterable[bytes], most: int) -> Iterator[bytes]:
    """Join rows of a COPY into parts of about ``most`` bytes; one empty part if there are no rows.

    The size of a piece is only estimated by its blocks: its rows may be longer than others, and
    stored compressed.
    """
    taken: list[bytes] = []
    size = 0
    is_first = True
    for row in rows:
        taken.append(row)
        size += len(row)
        if size >= most:
            yield b"".join(taken)
            taken, size, is_first = [], 0, False
    if taken or is_first:
        yield b"".join(taken)


def parsed_texts(data: bytes, names: list[str]) -> pa.Table:
    """Parse the output of a COPY with quoted values into texts, one column each."""
    types = dict.fromkeys(names, pa.string())
    if not data:
        return pa.schema(types.items()).empty_table()
    table = pa.csv.read_csv(
        pa.BufferReader(data),
        # A single block: a row may be longer than any smaller one.
        pa.csv.ReadOptions(column_names=names, block_size=len(data) + 1, use_threads=False),
        pa.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        pa.csv.ConvertOptions(
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return table
