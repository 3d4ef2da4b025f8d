"""Format rows for ``LOAD DATA`` and for ``INSERT``, a column at a time.

No value can be misread as syntax: in a stream, delimiters are escaped; in a statement, texts and
bytes are hexadecimal digits, and all else is digits and signs in quotes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.sinks.bad_values import blamed_on

if TYPE_CHECKING:
    from laminar_dagster.sinks.mysql.columns import MysqlColumn

Encode = Callable[[pa.Array], pa.Array]


class Form(Enum):
    """What an encoded value may contain, which decides how it is quoted or escaped."""

    PLAIN = auto()
    """Digits, signs, letters and spaces of our own making."""
    TEXT = auto()
    """Any characters."""
    BYTES = auto()
    """Any bytes."""


# The stream's delimiters and escapes, for the ``LOAD DATA`` statement.
STREAM_FORMAT: Final = (
    r"CHARACTER SET utf8mb4 FIELDS TERMINATED BY '\t' ENCLOSED BY '' ESCAPED BY '\\'"
    r" LINES TERMINATED BY '\n' STARTING BY ''"
)
_ESCAPES: Final = ((b"\\", b"\\\\"), (b"\t", b"\\t"), (b"\n", b"\\n"), (b"\0", b"\\0"))
_SPECIAL: Final = np.zeros(256, np.bool_)
_SPECIAL[[raw[0] for raw, _ in _ESCAPES]] = True
_DIGITS: Final = np.frombuffer(b"".join(f"{byte:02x}".encode() for byte in range(256)), np.uint16)
_MOST: Final = 2**31 - 1


def stream_of(
    columns: Sequence[MysqlColumn], batch: pa.RecordBatch, key: tuple[str, ...]
) -> memoryview:
    """The rows of a batch for ``LOAD DATA``; binary values are hexadecimal digits.

    Raises:
        Unwritable: A value does not fit; with a sample of the bad rows.
    """
    parts: list[pa.Array | pa.Scalar] = []
    for column in columns:
        with blamed_on(batch, column.name, key):
            values = column.encode(batch.column(column.name)).cast(pa.binary())
            if column.form is Form.BYTES:
                values = _hexadecimal(values)
            elif column.form is Form.TEXT:
                values = _escaped(values)
        parts += [values.fill_null(_binary(rb"\N")), _binary(b"\t")]
    parts[-1] = _binary(b"\n")
    _, data = _data_of(_joined(*parts))
    return data.data


def tuples_of(
    columns: Sequence[MysqlColumn], batch: pa.RecordBatch, key: tuple[str, ...]
) -> tuple[npt.NDArray[np.int32], memoryview]:
    """The rows of a batch for the ``VALUES`` of an ``INSERT``, each with a trailing comma.

    Returns:
        The offsets at which rows begin, with the end of the last one; and the bytes of all.

    Raises:
        Unwritable: A value does not fit; with a sample of the bad rows.
    """
    parts: list[pa.Array | pa.Scalar] = [_binary(b"(")]
    for column in columns:
        with blamed_on(batch, column.name, key):
            values = column.encode(batch.column(column.name)).cast(pa.binary())
            before = {Form.PLAIN: b"'", Form.TEXT: b"_utf8mb4 X'", Form.BYTES: b"X'"}[column.form]
            if column.form is not Form.PLAIN:
                values = _hexadecimal(values)
            values = _joined(_binary(before), values, _binary(b"'"))
        parts += [values.fill_null(_binary(b"NULL")), _binary(b",")]
    parts[-1] = _binary(b"),")
    offsets, data = _data_of(_joined(*parts))
    return offsets - offsets[0], data.data


def _joined(*parts: pa.Array | pa.Scalar) -> pa.Array:
    return pc.binary_join_element_wise(*parts, _binary(b""))


def _binary(value: bytes) -> pa.Scalar:
    return pa.scalar(value, pa.binary())


def _data_of(array: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """The offsets of a BinaryArray, and the concatenated bytes of its values."""
    _, offsets, data = array.buffers()
    place = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    whole = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return place, whole[place[0] : place[-1]]


def _escaped(values: pa.Array) -> pa.Array:
    if _SPECIAL[_data_of(values)[1]].any():
        for raw, safe in _ESCAPES:
            values = pc.replace_substring(values, pattern=raw, replacement=safe)
    return values


def _hexadecimal(values: pa.Array) -> pa.Array:
    offsets, data = _data_of(values)
    if 2 * data.size > _MOST:
        raise pa.ArrowCapacityError("it has more than a gibibyte")
    buffers = [pa.py_buffer((offsets - offsets[0]) * 2), pa.py_buffer(_DIGITS[data])]
    digits = pa.Array.from_buffers(pa.binary(), len(values), [None, *buffers])
    if values.null_count:
        return pc.if_else(values.is_valid(), digits, pa.scalar(None, pa.binary()))
    return digits
