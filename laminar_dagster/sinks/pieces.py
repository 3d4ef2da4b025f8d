"""Assemble binary rows from columns, vectorised: no row is processed on its own.

A piece is one part of every row. ``Fixed`` has the same length in every row; ``Cells`` has few
bytes, whose number varies; ``Varying`` is all else. Adjacent pieces of the first two kinds become
one numpy block, and Arrow joins the blocks with the varying pieces.
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

# A numpy type in wire byte order, and its values: one for all rows, or one per row.
Field = tuple[Any, int | Numbers]


@dataclass(frozen=True, slots=True)
class Fixed:
    """Fields that are present, with the same length, in every row."""

    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Cells:
    """A few bytes of each row, whose number varies.

    Attributes:
        bytes: A matrix with a line per row.
        there: A mask of the bytes that are present.
    """

    bytes: npt.NDArray[np.uint8]
    there: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Varying:
    """Bytes of each row, as a LargeBinaryArray without nulls."""

    values: pa.Array


Piece = Fixed | Cells | Varying


def binary(value: bytes) -> pa.Scalar:
    """An Arrow scalar of bytes. Not a module constant: creating one imports pandas."""
    return pa.scalar(value, pa.large_binary())


def block(count: int, fields: Sequence[Field]) -> pa.Array:
    """The concatenated fields of each row, as a LargeBinaryArray."""
    lines = _lines(count, fields)
    return from_offsets(np.arange(count + 1, dtype=np.int64) * lines.shape[1], pa.py_buffer(lines))


def joined(count: int, pieces: Iterable[Piece]) -> pa.Array:
    """The concatenated pieces of each row, as a LargeBinaryArray.

    Args:
        count: The number of rows.
        pieces: The pieces in order; without any, rows are empty.
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
    """Expand a piece of some rows, at ``places``, to ``count`` rows; the others get no bytes."""
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
    """The offsets and the data buffer of a LargeBinaryArray."""
    _, offsets, data = values.buffers()
    found = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    # An empty array may have an empty offsets buffer.
    return (found if len(found) else np.zeros(1, np.int64)), data or pa.py_buffer(b"")


def from_offsets(offsets: Int64s, data: pa.Buffer) -> pa.Array:
    """A LargeBinaryArray without nulls from its parts."""
    buffers = [None, pa.py_buffer(offsets), data]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers, null_count=0)


def lengths_of(values: pa.Array) -> Int64s:
    """The length in bytes of each value of a LargeBinaryArray."""
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
    """A byte matrix of the concatenated fields, with a line per row."""
    layout = np.dtype([(f"f{place}", form) for place, (form, _) in enumerate(fields)])
    made = np.empty(count, layout)
    for place, (_, values) in enumerate(fields):
        made[f"f{place}"] = values
    return made.view(np.uint8).reshape(count, layout.itemsize)
