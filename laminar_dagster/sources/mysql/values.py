"""Decodes column values, as the log encodes them, into declared columns.

| declared | read from |
|---|---|
| TINYINT … BIGINT | integers, with or without a sign, and years, if the value fits; bit(1…63) |
| BIGINT | time, in microseconds |
| BOOLEAN | integers of 0 and 1, bit(1) |
| DECIMAL | decimals and integers, if the value fits |
| FLOAT | float |
| DOUBLE | float, double, integers of up to 32 bits |
| STRING | texts of any character set, enum, set, json |
| BINARY | binary, varbinary, blobs, bit |
| DATE | date |
| TIMESTAMP, TIMESTAMP_NTZ | datetime, timestamp; a datetime is taken for UTC |

Zero dates (``0000-00-00``) are null, in timestamps as well.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.sources.formats.binary import numeric
from laminar_dagster.sources.formats.binary.assemble import spread
from laminar_dagster.sources.formats.binary.lanes import Blame, Body, Int64s, Lanes, Mask
from laminar_dagster.sources.formats.binary.texts import bytes_column, text_column
from laminar_dagster.sources.mysql import moments
from laminar_dagster.sources.mysql.charsets import is_known, is_utf8, utf8_column
from laminar_dagster.sources.mysql.column_types import YEAR, MysqlType
from laminar_dagster.sources.mysql.json_values import json_text

# Reads one value a lane; each lane must end where its value ends.
Read = Callable[[Lanes], pa.Array]

_DIGITS_A_GROUP: Final = 9
_GROUP_BYTES: Final = 4
_DIGIT_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4)
# The most digits that always fit into 64 bits.
_DIGITS_A_WORD: Final = 18
_MOST_DIGITS: Final = 38
_EXACT_IN_DOUBLE: Final = 32


class Unfit(ValueError):
    """A declared type that cannot hold a column's values; names the column's type."""


def column_of(
    read: Read, body: Body, blame: Blame, places: tuple[Int64s, Int64s, Mask]
) -> pa.Array:
    """Read a column from the places of its values; bad rows are marked by their number."""
    starts, lengths, nulls = places
    rows = np.flatnonzero(~nulls) if nulls.any() else np.arange(len(nulls))
    begin = starts[rows]
    found = read(Lanes(body, begin, begin + lengths[rows], rows, blame))
    return spread(found, rows, len(nulls))


def reader_for(what: str, kind: pa.DataType, column: MysqlType) -> Read:
    """The reader of values of a column's type into a declared type.

    Args:
        what: The column's name, for errors.
        kind: The declared type.
        column: The type that the table has.

    Raises:
        Unfit: There is no conversion.
    """
    found = _FAMILIES[column.family](what, kind, column)
    if found is None:
        raise Unfit(f"{what} is {column}, which cannot be declared as {kind}")
    return found


def _integers(what: str, kind: pa.DataType, column: MysqlType) -> Read | None:
    is_wide = column.is_unsigned and column.bits == 64
    if pa.types.is_decimal(kind):
        if is_wide:
            widen = numeric.unsigned_decimals_of(kind, what)
            return lambda lanes: widen(lanes.body.words[lanes.at], lanes)
        finish: numeric.FromInts = numeric.whole_decimals_of(kind, what)
    elif pa.types.is_integer(kind):
        finish = numeric.integers_of(kind, what)
    elif pa.types.is_boolean(kind):
        finish = _booleans(what)
    elif pa.types.is_float64(kind) and column.bits <= _EXACT_IN_DOUBLE:
        finish = numeric.floats_of(kind)
    else:
        return None

    def read(lanes: Lanes) -> pa.Array:
        words = lanes.body.words[lanes.at]
        if is_wide:
            beyond = np.flatnonzero(words >> np.uint64(63))
            lanes.refuse(beyond, f"{what} does not fit in {kind}")
            words = np.where(words >> np.uint64(63), 0, words).astype(np.uint64)
        return finish(_whole(words.view(np.int64), column), lanes)

    return read


def _whole(words: Int64s, column: MysqlType) -> Int64s:
    if column.bits == YEAR:
        years = words & 0xFF
        return np.where(years == 0, 0, years + 1900)
    shift = 64 - column.bits
    if column.is_unsigned:
        return words & ((1 << column.bits) - 1) if shift else words
    return words << shift >> shift


def _booleans(what: str) -> numeric.FromInts:
    def finish(values: Int64s, lanes: Lanes) -> pa.Array:
        reason = f"{what} is neither 0 nor 1, which BOOLEAN cannot hold"
        return pa.array(numeric.within(values, lanes, 0, 1, reason) == 1)

    return finish


def _floats(what: str, kind: pa.DataType, column: MysqlType) -> Read | None:
    is_double = column.family == "double"
    if not pa.types.is_float64(kind) and (is_double or not pa.types.is_float32(kind)):
        return None

    def read(lanes: Lanes) -> pa.Array:
        words = lanes.body.words[lanes.at]
        if is_double:
            return pa.array(words.view(np.float64))
        return pa.array(words.astype(np.uint32).view(np.float32)).cast(kind)

    return read


def _decimals(what: str, kind: pa.DataType, column: MysqlType) -> Read | None:
    if not pa.types.is_decimal(kind):
        return None
    if column.precision > _MOST_DIGITS:
        raise Unfit(f"{what} is {column}, and no declared type holds more than 38 digits")

    def read(lanes: Lanes) -> pa.Array:
        found = unpacked_decimals(lanes.body, lanes.at, column.precision, column.scale)
        return numeric.cast_decimals(lanes, found, kind, what)

    return read


def unpacked_decimals(body: Body, starts: Int64s, precision: int, scale: int) -> pa.Array:
    """Decode packed decimals: groups of nine digits, with smaller groups at both ends."""
    # The highest bit is set for non-negative numbers; all bits of negative ones are flipped.
    is_negative = body.raw[starts] < 0x80
    first, left = divmod(precision - scale, _DIGITS_A_GROUP)[::-1]
    behind, last = divmod(scale, _DIGITS_A_GROUP)
    digits = [first, *[_DIGITS_A_GROUP] * left, *[_DIGITS_A_GROUP] * behind, last]
    words: list[tuple[Int64s, int]] = [(np.zeros(len(starts), np.int64), 0)]
    at, is_first = starts, True
    for count in filter(None, digits):
        size = _GROUP_BYTES if count == _DIGITS_A_GROUP else _DIGIT_BYTES[count]
        group = moments.big_endian(body, at, size)
        if is_first:
            group ^= 1 << 8 * size - 1
            is_first = False
        group = np.where(is_negative, group ^ ((1 << 8 * size) - 1), group)
        value, before = words[-1]
        if before + count > _DIGITS_A_WORD:
            words.append((group, count))
        else:
            words[-1] = (value * 10**count + group, before + count)
        at = at + size
    sign = np.where(is_negative, -1, 1)
    if len(words) == 1:
        low = words[0][0] * sign
        both = np.empty(2 * len(starts), np.int64)
        both[0::2], both[1::2] = low, low >> 63
        kind = pa.decimal128(_MOST_DIGITS, scale)
        return pa.Array.from_buffers(kind, len(starts), [None, pa.py_buffer(both)], null_count=0)
    total = pa.array(words[0][0] * sign).cast(pa.decimal256(19, 0))
    for value, count in words[1:]:
        shifted = pc.multiply(total, pa.scalar(Decimal(10) ** count, pa.decimal256(count + 1, 0)))
        total = pc.add(shifted, pa.array(value * sign).cast(pa.decimal256(19, 0)))
    whole = total.cast(pa.decimal256(76, 0)).cast(pa.decimal128(_MOST_DIGITS, 0))
    kind = pa.decimal128(_MOST_DIGITS, scale)
    return pa.Array.from_buffers(kind, len(starts), [None, whole.buffers()[1]], null_count=0)


def _bits(what: str, kind: pa.DataType, column: MysqlType) -> Read | None:
    if pa.types.is_binary(kind):
        return lambda lanes: bytes_column(lanes.body, lanes.at, lanes.end - lanes.at)
    size = (column.bits + 7) // 8
    if pa.types.is_boolean(kind) and column.bits == 1:
        return lambda lanes: pa.array(moments.big_endian(lanes.body, lanes.at, size) == 1)
    if not pa.types.is_integer(kind) or column.bits > 63:
        return None
    finish = numeric.integers_of(kind, what)
    return lambda lanes: finish(moments.big_endian(lanes.body, lanes.at, size), lanes)


def _texts(what: str, kind: pa.DataType, column: MysqlType) -> Read | None:
    if not pa.types.is_string(kind):
        return None
    charset = column.charset
    if is_utf8(charset):
        return lambda lanes: text_column(lanes, lanes.at, lanes.end - lanes.at, what)
    if not is_known(charset):
        raise Unfit(f"{what} is in the character set {charset or 'unknown'}, which cannot be read")

    def read(lanes: Lanes) -> pa.Array:
        return utf8_column(bytes_column(lanes.body, lanes.at, lanes.end - lanes.at), charset)

    return read


def _bytes(what: str, kind: pa.DataType, column: MysqlType) -> Read | None:
    if not pa.types.is_binary(kind):
        return None
    fixed = column.fixed
    if not fixed:
        return lambda lanes: bytes_column(lanes.body, lanes.at, lanes.end - lanes.at)

    def read(lanes: Lanes) -> pa.Array:
        # The log strips zeros from the end of a BINARY value: restore them.
        places = np.arange(fixed)
        is_there = places < (lanes.end - lanes.at)[:, None]
        data = np.where(
            is_there, lanes.body.raw[np.where(is_there, lanes.at[:, None] + places, 0)], 0
        )
        offsets = np.arange(len(lanes) + 1, dtype=np.int32) * fixed
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
        return pa.Array.from_buffers(pa.binary(), len(lanes), buffers, null_count=0)

    return read


def _enums(what: str, kind: pa.DataType, column: MysqlType) -> Read | None:
    if not pa.types.is_string(kind):
        return None
    labels = pa.array(["", *column.labels], pa.string())
    size = 1 if len(column.labels) < 256 else 2

    def read(lanes: Lanes) -> pa.Array:
        chosen = lanes.body.words[lanes.at].view(np.int64) & ((1 << 8 * size) - 1)
        reason = f"{what} is a label that the log does not name"
        return labels.take(pa.array(numeric.within(chosen, lanes, 0, len(labels) - 1, reason)))

    return read


def _sets(what: str, kind: pa.DataType, column: MysqlType) -> Read | None:
    if not pa.types.is_string(kind):
        return None
    labels = column.labels

    def read(lanes: Lanes) -> pa.Array:
        sizes = (lanes.end - lanes.at).astype(np.uint64)
        shifts = np.uint64(64) - np.uint64(8) * sizes
        words = lanes.body.words[lanes.at] << shifts >> shifts
        distinct, places = np.unique(words, return_inverse=True)
        texts = [
            ",".join(label for at, label in enumerate(labels) if flags >> at & 1)
            for flags in distinct.tolist()
        ]
        return pa.array(texts, pa.string()).take(pa.array(places))

    return read


def _dates(what: str, kind: pa.DataType, column: MysqlType) -> Read | None:
    if not pa.types.is_date32(kind):
        return None

    def read(lanes: Lanes) -> pa.Array:
        days, is_none = moments.days_of(lanes.body, lanes.at)
        return pa.array(days.astype(np.int32), mask=is_none).view(pa.date32())

    return read


def _datetimes(what: str, kind: pa.DataType, column: MysqlType) -> Read | None:
    if not pa.types.is_timestamp(kind):
        return None
    is_datetime, fraction = column.family == "datetime", column.fraction
    unpack = moments.micros_of_datetime if is_datetime else moments.micros_of_timestamp

    def read(lanes: Lanes) -> pa.Array:
        micros, is_none = unpack(lanes.body, lanes.at, fraction)
        return pa.array(micros, mask=is_none).view(kind)

    return read


def _times(what: str, kind: pa.DataType, column: MysqlType) -> Read | None:
    if not pa.types.is_int64(kind):
        return None
    return lambda lanes: pa.array(moments.micros_of_time(lanes.body, lanes.at, column.fraction))


def _documents(what: str, kind: pa.DataType, column: MysqlType) -> Read | None:
    if not pa.types.is_string(kind):
        return None

    def read(lanes: Lanes) -> pa.Array:
        raw = lanes.body.raw
        texts: list[str] = []
        for place, (start, end) in enumerate(
            zip(lanes.at.tolist(), lanes.end.tolist(), strict=True)
        ):
            try:
                texts.append(json_text(raw[start:end].tobytes()))
            except ValueError as error:
                lanes.refuse(np.array([place]), f"{what}: {error}")
                texts.append("")
        return pa.array(texts, pa.string())

    return read


_FAMILIES: Final[dict[str, Callable[[str, pa.DataType, MysqlType], Read | None]]] = {
    "integer": _integers,
    "float": _floats,
    "double": _floats,
    "decimal": _decimals,
    "bit": _bits,
    "text": _texts,
    "bytes": _bytes,
    "enum": _enums,
    "set": _sets,
    "date": _dates,
    "time": _times,
    "datetime": _datetimes,
    "timestamp": _datetimes,
    "json": _documents,
}
