"""Parquet files: taken whole, read row group by row group.

A row group belongs to the split that holds its first byte, so a file can be split at any byte.
Columns are matched by name; others are ignored, missing ones are null. A column may be stored in
a type that fits into the declared one without loss, such as INT in BIGINT; otherwise the whole
file is one bad record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from laminar_dagster.sources.decoded import BadRecord
from laminar_dagster.sources.file.directory import OpenFile
from laminar_dagster.sources.formats.records import MAX_REASON

ROWS_AT_ONCE: Final = 65_536
MAGIC: Final = b"PAR1"
_ENDS: Final = 2 * len(MAGIC) + 4


@dataclass(frozen=True, slots=True)
class ParquetPiece:
    """Some rows of a Parquet file."""

    rows: pa.RecordBatch
    positions: pa.Int64Array
    bad: list[BadRecord]
    size_bytes: int

    def bad_at(self, reasons: Mapping[int, str]) -> list[BadRecord]:
        """The bad records of the rows at some positions, in order."""
        places = np.searchsorted(self.positions.to_numpy(), sorted(reasons)).tolist()
        return [
            BadRecord(position, _raw(self.rows, place), reasons[position])
            for place, position in zip(places, sorted(reasons), strict=True)
        ]


def is_complete(file: OpenFile) -> bool:
    """Whether a file ends with a Parquet footer, so that nobody is still writing it."""
    if file.size < _ENDS or file.read(file.size - len(MAGIC), len(MAGIC)) != MAGIC:
        return False
    footer = int.from_bytes(file.read(file.size - 8, 4), "little")
    return footer + _ENDS <= file.size


def row_count(file: OpenFile) -> int:
    """How many rows the file's footer states; 0 if it cannot be read."""
    try:
        with _opened(file) as parquet:
            return int(parquet.metadata.num_rows)
    except _UNREADABLE:
        return 0


def row_group_starts(file: OpenFile) -> list[int]:
    """Where each row group begins, in bytes; none if the file cannot be read."""
    try:
        with _opened(file) as parquet:
            return [_group_start(parquet.metadata, n) for n in range(parquet.num_row_groups)]
    except _UNREADABLE:
        return []


def read_rows(file: OpenFile, start: int, end: int, schema: pa.Schema) -> Iterator[ParquetPiece]:
    """The rows of the row groups that begin within [start, end) of a file."""
    nothing = pa.RecordBatch.from_arrays([pa.array([], e.type) for e in schema], schema=schema)
    none = pa.array([], pa.int64())
    try:
        with _opened(file) as parquet:
            metadata = parquet.metadata
            problem = _problem_with(parquet.schema_arrow, schema)
            groups = range(parquet.num_row_groups)
            begins = [_group_start(metadata, group) for group in groups]
            sizes = [metadata.row_group(group).num_rows for group in groups]
            if problem:
                # Report once for the file: only the split at the file's beginning does.
                bad = [BadRecord(0, b"", problem)] if start == 0 else []
                yield ParquetPiece(nothing, none, bad, end - start)
                return
            first = 0
            for group, begin, size in zip(groups, begins, sizes, strict=True):
                if start <= begin < end:
                    yield from _read_group(parquet, group, first, schema)
                first += size
    except _UNREADABLE as error:
        bad = [BadRecord(0, b"", _reason(error))] if start == 0 else []
        yield ParquetPiece(nothing, none, bad, end - start)


def _read_group(parquet: Any, group: int, first: int, schema: pa.Schema) -> Iterator[ParquetPiece]:
    names = [each.name for each in schema if each.name in parquet.schema_arrow.names]
    info = parquet.metadata.row_group(group)
    size = info.total_byte_size
    nothing = pa.RecordBatch.from_arrays([pa.array([], e.type) for e in schema], schema=schema)
    try:
        table = parquet.read_row_group(group, columns=names, use_threads=False)
        columns = [
            _cast(table.column(each.name), each.type)
            if each.name in names
            else pa.nulls(info.num_rows, each.type)
            for each in schema
        ]
        whole = pa.RecordBatch.from_arrays(columns, names=schema.names)
        whole.validate(full=True)
    except _UNREADABLE as error:
        # The rows cannot be decoded one by one: the whole row group is one bad record.
        text = f"row group {group} of {info.num_rows} rows: {_reason(error)}"[:MAX_REASON]
        yield ParquetPiece(nothing, pa.array([], pa.int64()), [BadRecord(first, b"", text)], size)
        return
    for place in range(0, max(1, whole.num_rows), ROWS_AT_ONCE):
        part = whole.slice(place, ROWS_AT_ONCE)
        share = size if place + ROWS_AT_ONCE >= whole.num_rows else 0
        yield _checked(part, first + place, schema, share)


def _checked(part: pa.RecordBatch, first: int, schema: pa.Schema, size: int) -> ParquetPiece:
    keep = np.ones(part.num_rows, np.bool_)
    bad: list[BadRecord] = []
    for each in schema:
        column = part.column(each.name)
        if each.nullable or not column.null_count:
            continue
        for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            if keep[row]:
                reason = f"`{each.name}` must not be null"
                bad.append(BadRecord(first + row, _raw(part, row), reason))
            keep[row] = False
    bad.sort(key=lambda one: one.position)
    rows = part if not bad else part.filter(pa.array(keep))
    rows = pa.RecordBatch.from_arrays(rows.columns, schema=schema)
    positions = pa.array(np.flatnonzero(keep).astype(np.int64) + first)
    return ParquetPiece(rows, positions, bad, size)


def _raw(rows: pa.RecordBatch, row: int) -> bytes:
    """The row as JSON: a Parquet row has no bytes of its own."""
    return json.dumps(rows.slice(row, 1).to_pylist()[0], default=str).encode()


def _problem_with(found: pa.Schema, declared: pa.Schema) -> str:
    for each in declared:
        if found.names.count(each.name) > 1:
            return f"column `{each.name}` stands in the file twice"
        if each.name in found.names:
            have = found.field(each.name).type
            if not _fits(have, each.type):
                return f"column `{each.name}` is {have} in the file, {each.type} is declared"
        elif not each.nullable:
            return f"column `{each.name}` is not in the file, and must not be null"
    return ""


def _fits(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether every value of type ``have`` can be stored in type ``want``."""
    types = pa.types
    if have == want or types.is_null(have):
        return True
    if types.is_dictionary(have):
        return _fits(have.value_type, want)
    if types.is_integer(have) and types.is_integer(want):
        grow = types.is_unsigned_integer(have)
        return bool(types.is_signed_integer(want) and have.bit_width + grow <= want.bit_width)
    if types.is_integer(have) and types.is_float64(want):
        return bool(have.bit_width <= 32)
    if types.is_floating(have) and types.is_floating(want):
        return bool(have.bit_width <= want.bit_width)
    if types.is_decimal(have) and types.is_decimal(want):
        whole = have.precision - have.scale <= want.precision - want.scale
        return bool(have.scale <= want.scale and whole)
    if types.is_large_string(have) or types.is_string_view(have):
        return bool(types.is_string(want))
    if types.is_large_binary(have) or types.is_fixed_size_binary(have):
        return bool(types.is_binary(want))
    if types.is_timestamp(have) and types.is_timestamp(want):
        return (have.tz is None) == (want.tz is None)
    if types.is_date(have) and types.is_date(want):
        return True
    if _is_list(have) and types.is_list(want):
        return _fits(have.value_type, want.value_type)
    if types.is_map(have) and types.is_map(want):
        return _fits(have.key_type, want.key_type) and _fits(have.item_type, want.item_type)
    if types.is_struct(have) and types.is_struct(want):
        return [e.name for e in have] == [e.name for e in want] and all(
            _fits(one.type, two.type) for one, two in zip(have, want, strict=True)
        )
    return False


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(column.type):
        # Nanoseconds are truncated to microseconds, as Spark does.
        column = column.cast(kind, safe=column.type.unit != "ns")
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], whole.type)
    return whole if whole.type == kind else whole.cast(kind)


def _group_start(metadata: Any, group: int) -> int:
    """The smallest page offset of a row group; its own ``file_offset`` is not always written."""
    info = metadata.row_group(group)
    starts = [0]
    if info.num_columns:
        column = info.column(0)
        pages = [column.data_page_offset, column.dictionary_page_offset or column.data_page_offset]
        starts = [page for page in pages if page and page > 0] or [0]
    return int(min(starts))


@contextmanager
def _opened(file: OpenFile) -> Iterator[Any]:
    """Open the file through its descriptor, so that the file read is the one that was checked."""
    with (
        pa.PythonFile(_Seekable(file), mode="r") as stream,
        pyarrow.parquet.ParquetFile(stream) as parquet,
    ):
        yield parquet


class _Seekable:
    """An ``OpenFile`` with the interface of a Python file, for Arrow."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self._place = 0
        self.closed = False

    def read(self, count: int = -1) -> bytes:
        left = max(0, self._file.size - self._place)
        count = left if count < 0 else min(count, left)
        data = self._file.read(self._place, count)
        self._place += len(data)
        return data

    def seek(self, place: int, whence: int = 0) -> int:
        base = (0, self._place, self._file.size)[whence]
        self._place = base + place
        return self._place

    def tell(self) -> int:
        return self._place

    def size(self) -> int:
        return self._file.size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


_UNREADABLE: Final = (pa.ArrowException, ValueError, OSError)


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:MAX_REASON]
