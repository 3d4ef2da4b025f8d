"""Decodes JSON of plain columns with the compiled library: a fast path for most records.

It accepts only the usual spellings, with the same values as ``JsonDecoder``; the rest it leaves to
``JsonDecoder``. So the fast path changes the speed, and nothing else.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_dagster.sources.formats.records import Offsets, Records
from laminar_dagster.sources.native.library import OK, NotBuilt, native

# The values of ``kind`` in json_columns.c.
_KINDS: Final[dict[pa.DataType, tuple[int, type[np.generic]]]] = {
    pa.bool_(): (0, np.uint8),
    pa.int8(): (1, np.int8),
    pa.int16(): (2, np.int16),
    pa.int32(): (3, np.int32),
    pa.int64(): (4, np.int64),
    pa.float32(): (5, np.float32),
    pa.float64(): (6, np.float64),
    pa.string(): (7, np.int64),
    pa.timestamp("us"): (8, np.int64),
    pa.timestamp("us", tz="UTC"): (8, np.int64),
    pa.date32(): (9, np.int32),
}
_DECIMAL: Final = 10
# The most digits that fit into 64 bits.
_PRECISION: Final = 18

Flags = npt.NDArray[np.bool_]


class _Column(ctypes.Structure):
    """``struct column`` of json_columns.c."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("name_bytes", ctypes.c_int64),
        ("kind", ctypes.c_int32),
        ("precision", ctypes.c_int32),
        ("scale", ctypes.c_int32),
        ("unused", ctypes.c_int32),
        ("values", ctypes.c_void_p),
        ("lengths", ctypes.c_void_p),
        ("valid", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
        ("nulls", ctypes.c_int64),
        ("last", ctypes.c_int64),
    )


@dataclass(frozen=True, slots=True)
class JsonColumns:
    """Decodes records of a schema with the compiled library."""

    schema: pa.Schema
    library: ctypes.CDLL

    @classmethod
    def of(cls, schema: pa.Schema) -> JsonColumns | None:
        """A decoder for a schema; None without the library, or if a column is not plain."""
        if not len(schema) or not all(_is_plain(each.type) for each in schema):
            return None
        try:
            return cls(schema, native())
        except NotBuilt:
            return None

    def read(self, records: Records) -> tuple[pa.RecordBatch, Flags] | None:
        """A row for each record, and which rows are unsure; None if most of them are.

        The row of an unsure record is meaningless: decode that record otherwise.
        """
        count = len(records)
        columns = (_Column * len(self.schema))()
        memory = [
            _prepare(column, each, count) for column, each in zip(columns, self.schema, strict=True)
        ]
        data = np.frombuffer(records.data, np.uint8)
        starts, ends = _contiguous(records.starts), _contiguous(records.ends)
        unsure = np.zeros(count, np.uint8)
        left = self.library.laminar_json_columns(
            data.ctypes.data,
            len(data),
            starts.ctypes.data,
            ends.ctypes.data,
            count,
            columns,
            len(columns),
            unsure.ctypes.data,
        )
        # Where most have to be decoded again, the fast path is a waste of time.
        if left < 0 or 2 * left > count:
            return None
        arrays = [
            self._array(each.type, column, kept, data, count)
            for each, column, kept in zip(self.schema, columns, memory, strict=True)
        ]
        rows = pa.RecordBatch.from_arrays(arrays, names=self.schema.names)
        return rows, unsure.view(np.bool_)

    def _array(
        self,
        kind: pa.DataType,
        column: _Column,
        memory: tuple[npt.NDArray[Any], ...],
        data: npt.NDArray[np.uint8],
        count: int,
    ) -> pa.Array:
        values, valid = memory[0], memory[1]
        validity = _bits(valid) if column.nulls else None
        if pa.types.is_string(kind):
            edges, text = np.empty(count + 1, np.int32), np.empty(column.bytes, np.uint8)
            outcome = self.library.laminar_copy_strings(
                data.ctypes.data,
                len(data),
                ctypes.byref(column),
                count,
                edges.ctypes.data,
                text.ctypes.data,
                len(text),
            )
            if outcome != OK:
                raise RuntimeError(f"the strings could not be copied: {outcome}")
            buffers = [validity, pa.py_buffer(edges), pa.py_buffer(text)]
        elif pa.types.is_boolean(kind):
            buffers = [validity, _bits(values)]
        else:
            buffers = [validity, pa.py_buffer(values)]
        return pa.Array.from_buffers(kind, count, buffers, int(column.nulls))


def _is_plain(kind: pa.DataType) -> bool:
    if pa.types.is_decimal128(kind):
        return int(kind.precision) <= _PRECISION and 0 <= kind.scale <= kind.precision
    return kind in _KINDS


def _prepare(column: _Column, field: pa.Field, count: int) -> tuple[npt.NDArray[Any], ...]:
    """Describe a column to the library; the caller must keep the returned memory alive."""
    name = field.name.encode()
    column.name, column.name_bytes = name, len(name)
    valid = np.zeros(count, np.uint8)
    lengths = np.zeros(count if pa.types.is_string(field.type) else 0, np.int32)
    if pa.types.is_decimal128(field.type):
        column.kind = _DECIMAL
        column.precision, column.scale = field.type.precision, field.type.scale
        values: npt.NDArray[Any] = np.zeros(2 * count, np.int64)
    else:
        column.kind, item = _KINDS[field.type]
        values = np.zeros(count, item)
    column.values, column.valid = values.ctypes.data, valid.ctypes.data
    column.lengths = lengths.ctypes.data
    return values, valid, lengths


def _bits(flags: npt.NDArray[np.uint8]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _contiguous(numbers: Offsets) -> Offsets:
    return np.ascontiguousarray(numbers, np.int64)
