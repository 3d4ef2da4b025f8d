"""Decodes rows that a SELECT streams, with the same values as the log would give.

The server sends every value as text, each behind its length. All rows of a piece are walked at
once, column by column, and each column is cast by Arrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.clients.mysql.identifiers import quoted
from laminar_dagster.clients.mysql.packets import Packets
from laminar_dagster.sources.changes.columns import OP, POSITION, TABLE, TIMESTAMP, WEIGHT, declared
from laminar_dagster.sources.decoded import BadRecord
from laminar_dagster.sources.formats.binary.assemble import spread
from laminar_dagster.sources.formats.binary.lanes import PADDING, Blame, Body, Int64s, Lanes, Mask
from laminar_dagster.sources.formats.binary.texts import bytes_column, text_column
from laminar_dagster.sources.formats.columns import convert
from laminar_dagster.sources.mysql.column_types import MysqlType
from laminar_dagster.sources.mysql.table_map import LoggedTable

_NULL: Final = 0xFB
# Marks before a length that does not fit into one byte, and the size of that length.
_LONGER: Final = {0xFC: 2, 0xFD: 3, 0xFE: 8}
# Zero dates: a month or a day of 0.
_NO_DAY: Final = r"^\d{4}-(00-|\d\d-00)"
_TIME: Final = r"^(?P<sign>-?)(?P<h>\d+):(?P<m>\d\d):(?P<s>\d\d)(?:\.(?P<f>\d+))?$"


@dataclass(frozen=True, slots=True)
class Selection:
    """A SELECT of one table's rows.

    Attributes:
        schema: The declared columns, and those that ``change_traits`` adds.
        position: The log position of the snapshot, as text.
    """

    schema: pa.Schema
    table: LoggedTable
    position: str

    def statement(self, key: str | None = None, low: int = 0, high: int = 0) -> str:
        """The SELECT of all rows, or of those with ``low`` <= key < ``high``."""
        columns = ", ".join(_expression(kind, name) for name, kind, _ in self._columns())
        text = f"SELECT {columns} FROM {quoted(self.table.schema)}.{quoted(self.table.name)}"
        if key is not None:
            text += f" WHERE {quoted(key)} >= {int(low)} AND {quoted(key)} < {int(high)}"
        return text

    def _columns(self) -> list[tuple[str, MysqlType, pa.Field]]:
        found: list[tuple[str, MysqlType, pa.Field]] = []
        for each in declared(self.schema):
            at = self.table.column(each.name)
            column = self.table.columns[at] if at is not None else None
            assert column is not None and column.type is not None, "the table was checked"
            found.append((column.name, column.type, each))
        return found

    def decode(self, packets: Packets) -> tuple[pa.RecordBatch, list[BadRecord], list[int]]:
        """Decode packets: the good rows, the bad records, and the places of the bad ones."""
        count = len(packets.starts)
        body = Body(packets.data)
        starts, ends = (
            np.array(each, np.int64) + PADDING for each in (packets.starts, packets.ends)
        )
        blame, at = Blame(), starts
        columns: dict[str, pa.Array] = {}
        for _, kind, each in self._columns():
            at, begin, length, null = _next(body, at)
            rows = np.flatnonzero(~null)
            lanes = Lanes(body, begin[rows], (begin + length)[rows], rows, blame)
            found = _values(lanes, kind, each, blame)
            column = spread(found, rows, count)
            if not each.nullable and column.null_count:
                missing = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
                blame.add(missing, f"`{each.name}` must not be null")
            columns[each.name] = column
        columns |= self._added(count)
        rows_found = pa.RecordBatch.from_arrays(
            [columns[each.name].cast(each.type) for each in self.schema], names=self.schema.names
        )
        places = sorted(blame.reasons)
        if not places:
            return rows_found, [], []
        bad = [
            BadRecord(place, body.raw[starts[place] : ends[place]].tobytes(), blame.reasons[place])
            for place in places
        ]
        is_good = np.ones(count, np.bool_)
        is_good[places] = False
        return rows_found.filter(pa.array(is_good)), bad, places

    def _added(self, count: int) -> dict[str, pa.Array]:
        name = f"{self.table.schema}.{self.table.name}"
        texts = {OP: "r", TABLE: name, POSITION: self.position}
        found = {
            each: pa.repeat(pa.scalar(text, pa.string()), count) for each, text in texts.items()
        }
        found[TIMESTAMP] = pa.nulls(count, pa.timestamp("us", tz="UTC"))
        found[WEIGHT] = pa.array(np.ones(count, np.int8))
        return found


def _expression(kind: MysqlType, name: str) -> str:
    """The SQL expression for a column, so that its value is not rounded."""
    if kind.family == "float":
        # A FLOAT alone would be sent with six digits.
        return f"{quoted(name)} + 0e0"
    if kind.family == "bit":
        return f"CAST({quoted(name)} AS UNSIGNED)"
    return quoted(name)


def _next(body: Body, at: Int64s) -> tuple[Int64s, Int64s, Int64s, Mask]:
    """Pass one value of every row: where the next begins, where it begins, length, nullness."""
    first = body.raw[at].astype(np.int64)
    null = first == _NULL
    length, size = np.where(null, 0, first), np.ones(len(at), np.int64)
    for mark, more in _LONGER.items():
        longer = first == mark
        if longer.any():
            word = body.words[at[longer] + 1].view(np.int64)
            length[longer] = word & ((1 << 8 * more) - 1) if more < 8 else word
            size[longer] = 1 + more
    begin = at + size
    return begin + length, begin, length, null


def _values(lanes: Lanes, kind: MysqlType, wanted: pa.Field, blame: Blame) -> pa.Array:
    what, lengths = f"column `{wanted.name}`", lanes.end - lanes.at
    if kind.family == "bit" and pa.types.is_binary(wanted.type):
        return _bit_bytes(lanes, kind, what)
    if pa.types.is_binary(wanted.type):
        return bytes_column(lanes.body, lanes.at, lengths)
    text = text_column(lanes, lanes.at, lengths, what)
    if pa.types.is_string(wanted.type):
        return text
    if kind.family == "time":
        return _micros(text)
    if kind.family in ("date", "datetime", "timestamp"):
        text = pc.if_else(
            pc.match_substring_regex(text, _NO_DAY), pa.scalar(None, pa.string()), text
        )
    found, bad = convert(pa.chunked_array([text]), wanted.type)
    for row, reason in bad.items():
        blame.add([int(lanes.owner[row])], f"{what}: {reason}")
    return found


def _micros(text: pa.StringArray) -> pa.Array:
    parts = pc.extract_regex(text, _TIME)
    hours, minutes, seconds = (
        pc.struct_field(parts, each).cast(pa.int64()).to_numpy() for each in "hms"
    )
    fraction = pc.utf8_rpad(pc.struct_field(parts, "f"), 6, "0").cast(pa.int64()).to_numpy()
    sign = np.where(
        pc.equal(pc.struct_field(parts, "sign"), "-").to_numpy(zero_copy_only=False), -1, 1
    )
    return pa.array(sign * (((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + fraction))


def _bit_bytes(lanes: Lanes, kind: MysqlType, what: str) -> pa.Array:
    """Convert a BIT sent as a number to the bytes that the log has for it."""
    text = text_column(lanes, lanes.at, lanes.end - lanes.at, what)
    size = (kind.bits + 7) // 8
    words = text.cast(pa.uint64()).to_numpy(zero_copy_only=False).byteswap()
    data = np.ascontiguousarray(words.view(np.uint8).reshape(-1, 8)[:, 8 - size :])
    offsets = np.arange(len(lanes) + 1, dtype=np.int32) * size
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(lanes), buffers, null_count=0)


def joined(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Join the rows of several pieces."""
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)
