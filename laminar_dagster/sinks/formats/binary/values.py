"""Write nullable values and list elements as pieces of binary rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from laminar_dagster.sinks.arrow_values import offsets_of, owners_of, valid_rows
from laminar_dagster.sinks.bad_values import BadValues
from laminar_dagster.sinks.numbers import Int64s
from laminar_dagster.sinks.pieces import Fixed, Piece, from_offsets, joined, parts_of, spread

# Encodes an array without nulls, into pieces with one row per value.
Write = Callable[[pa.Array], Sequence[Piece]]


def constant(data: bytes) -> Sequence[Piece]:
    """The same bytes in every row."""
    return (Fixed(((("u1", (len(data),)), np.frombuffer(data, np.uint8)),)),) if data else ()


def of_those_there(array: pa.Array, write: Write) -> Sequence[Piece]:
    """Encode the values that are not null; rows with a null get no bytes.

    Raises:
        BadValues: A value does not fit.
    """
    if not array.null_count:
        return write(array)
    places = np.flatnonzero(valid_rows(array))
    try:
        pieces = write(array.drop_null())
    except BadValues as bad:
        raise bad.within(places, len(array)) from None
    return [spread(piece, places, len(array)) for piece in pieces]


def of_each_element(counts: Int64s, values: pa.Array, write: Write, step: str) -> pa.Array:
    """Encode list elements, and concatenate those of each row.

    Args:
        counts: How many elements each row has.
        values: The elements of all rows.
        write: Encodes the elements, which may be null.
        step: The name of an element in error paths.

    Raises:
        BadValues: An element does not fit.
    """
    try:
        written = joined(len(values), write(values))
    except BadValues as bad:
        raise bad.within(owners_of(counts), len(counts), step) from None
    # Elements are in row order already: a row begins where its first element does.
    offsets, data = parts_of(written)
    return from_offsets(offsets[offsets_of(counts)], data)
