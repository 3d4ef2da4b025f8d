"""Binary rows assembled in columns: what stands side by side in every row, joined at once.

A piece is a part of every row. What is equally long in every row is a ``Fixed``; what has few
bytes, but not always as many, is ``Cells``; all else is ``Varying``. Neighbours of the first two
kinds become one block of numpy, and Arrow joins the blocks to what varies. No record is touched by
itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.sinks.numbers import Int64s, Numbers

# A numpy type in the order of the wire, and what stands there: one value for all rows, or one
# for each.
Field = tuple[Any, int | Numbers]


@dataclass(frozen=True, slots=True)
class Fixed:
    """Fields that are there, and equally long, in every row."""

    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Cells:
    """A few bytes of each row.

    Attributes:
        bytes: A line for each row.
        there: Which of them are there.
    """

    bytes: npt.NDArray[np.uint8]
    there: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Varying:
    """Bytes of each row, as a LargeBinaryArray without nulls."""

    values: pa.Array


Piece = Fixed | Cells | Varying


def binary(value: bytes) -> pa.Scalar:
    """Bytes for Arrow. Made where they are used: a scalar in a module would load pandas with it."""
    return pa.scalar(value, pa.large_binary())


def block(count: int, fields: Sequence[Field]) -> pa.Array:
    """Fields side by side in every row, as a LargeBinaryArray."""
    lines = _lines(count, fields)
    return from_offsets(np.arange(count + 1, dtype=np.int64) * lines.shape[1], pa.py_buffer(lines))


def joined(count: int, pieces: Iterable[Piece]) -> pa.Array:
    """The pieces of every row side by side, as a LargeBinaryArray.

    Args:
        count: How many rows there are.
        pieces: In their order; none makes empty rows.
    """
    parts: list[pa.Array] = []
    run: list[Fixed | Cells] = []
    for piece in pieces:
        if not isinstance(piece, Varying):
            run.append(piece)
            continue
        if run:
            parts.append(_together(count, run))
            run = []
        parts.append(piece.values)
    if run or not parts:
        parts.append(_together(count, run))
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, binary(b""))


def spread(piece: Piece, places: Int64s, count: int) -> Piece:
    """A piece of some rows, in order, as one of more: nothing stands in the others."""
    if isinstance(piece, Varying):
        lengths = np.zeros(count + 1, np.int64)
        lengths[places + 1] = lengths_of(piece.values)
        offsets, data = parts_of(piece.values)
        return Varying(from_offsets(np.cumsum(lengths) + offsets[0], data))
    lines = piece.bytes if isinstance(piece, Cells) else _lines(len(places), piece.fields)
    cells = np.zeros((count, lines.shape[1]), np.uint8)
    there = np.zeros(cells.shape, np.bool_)
    cells[places] = lines
    there[places] = piece.there if isinstance(piece, Cells) else True
    return Cells(cells, there)


def parts_of(values: pa.Array) -> tuple[Int64s, pa.Buffer]:
    """Where the values of a LargeBinaryArray begin and end, and the bytes they are in."""
    _, offsets, data = values.buffers()
    found = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    # Of no rows there may be no offset at all.
    return (found if len(found) else np.zeros(1, np.int64)), data or pa.py_buffer(b"")


def from_offsets(offsets: Int64s, data: pa.Buffer) -> pa.Array:
    """A LargeBinaryArray without nulls from its parts."""
    buffers = [None, pa.py_buffer(offsets), data]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers, null_count=0)


def lengths_of(values: pa.Array) -> Int64s:
    """How many bytes each value of a LargeBinaryArray has."""
    offsets, _ = parts_of(values)
    found: Int64s = np.diff(offsets)
    return found


def _together(count: int, run: Sequence[Fixed | Cells]) -> pa.Array:
    if all(isinstance(piece, Fixed) for piece in run):
        return block(
            count, [field for piece in run if isinstance(piece, Fixed) for field in piece.fields]
        )
    lines: list[npt.NDArray[np.uint8]] = []
    there: list[npt.NDArray[np.bool_]] = []
    for piece in run:
        if isinstance(piece, Fixed):
            lines.append(_lines(count, piece.fields))
            there.append(np.ones(lines[-1].shape, np.bool_))
        else:
            lines.append(piece.bytes)
            there.append(piece.there)
    kept = np.concatenate(there, axis=1)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.count_nonzero(kept, axis=1), out=offsets[1:])
    return from_offsets(offsets, pa.py_buffer(np.concatenate(lines, axis=1)[kept]))


def _lines(count: int, fields: Sequence[Field]) -> npt.NDArray[np.uint8]:
    """Fields side by side, a line for each row."""
    layout = np.dtype([(f"f{place}", form) for place, (form, _) in enumerate(fields)])
    made = np.empty(count, layout)
    for place, (_, values) in enumerate(fields):
        made[f"f{place}"] = values
    return made.view(np.uint8).reshape(count, layout.itemsize)
