"""Values that are not always there, or of which a row has many, as pieces of binary rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from laminar_dagster.sinks.arrow_values import offsets_of, owners_of, valid_rows
from laminar_dagster.sinks.bad_values import BadValues
from laminar_dagster.sinks.numbers import Int64s
from laminar_dagster.sinks.pieces import Fixed, Piece, from_offsets, joined, parts_of, spread

# Values without nulls into as many rows.
Write = Callable[[pa.Array], Sequence[Piece]]


def constant(data: bytes) -> Sequence[Piece]:
    """The same bytes in every row."""
    return (Fixed(((("u1", (len(data),)), np.frombuffer(data, np.uint8)),)),) if data else ()


def of_those_there(array: pa.Array, write: Write) -> Sequence[Piece]:
    """What is written of the values that are not null; nothing stands in the rows of the others.

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
    """What is written of the elements of each row, one behind the other.

    Args:
        counts: How many elements each row has.
        values: All of them.
        write: What writes them; they may be null.
        step: What an element is called.

    Raises:
        BadValues: An element does not fit.
    """
    try:
        written = joined(len(values), write(values))
    except BadValues as bad:
        raise bad.within(owners_of(counts), len(counts), step) from None
    # They stand in their order already: a row begins where its first element does.
    offsets, data = parts_of(written)
    return from_offsets(offsets[offsets_of(counts)], data)
