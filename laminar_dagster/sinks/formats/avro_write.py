"""Write Arrow arrays as Avro, all rows at once.

There is a writer for each pair of a column type and an Avro type. It takes values that are not
null, and returns pieces with one row per value; a ``Slot`` around it handles nulls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.sinks.arrow_values import (
    elements,
    refuse_odd_text,
    refuse_twins,
    valid_rows,
)
from laminar_dagster.sinks.bad_values import BadValues, refuse
from laminar_dagster.sinks.formats.binary.decimals import of_size, shortest
from laminar_dagster.sinks.formats.binary.values import constant, of_each_element, of_those_there
from laminar_dagster.sinks.formats.binary.varints import zigzags
from laminar_dagster.sinks.numbers import Int64s
from laminar_dagster.sinks.pieces import Cells, Fixed, Piece, Varying, lengths_of

Pieces = Sequence[Piece]

_NULL: Final = "are null, and the schema has no room for that; give them a value in the view"
_UUID: Final = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"


class Writer(Protocol):
    """Writes values of one type."""

    def write(self, array: pa.Array) -> Pieces:
        """The encoded bytes of each value.

        Raises:
            BadValues: A value cannot be encoded.
        """
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """The same bytes in every row: a field's default, or null, if the view has no column for it."""

    data: bytes

    def write(self, array: pa.Array) -> Pieces:
        """The bytes of each value."""
        return constant(self.data)


@dataclass(frozen=True, slots=True)
class Slot:
    """A value that may be null, or is in a union, or both.

    Attributes:
        value: The union's branch for values; None if there is no union.
        null: The union's branch for nulls; None if it has none.
    """

    inner: Writer
    value: int | None = None
    null: int | None = None

    def write(self, array: pa.Array) -> Pieces:
        """The bytes of each value, which may be null."""
        valid = valid_rows(array)
        if self.null is None:
            refuse(~valid, _NULL)
        pieces = of_those_there(array, self.inner.write)
        if self.value is None:
            return pieces
        null = self.value if self.null is None else self.null
        return [zigzags(np.where(valid, self.value, null)), *pieces]


@dataclass(frozen=True, slots=True)
class Booleans:
    """A boolean: one byte."""

    def write(self, array: pa.Array) -> Pieces:
        """The bytes of each value."""
        return (Fixed((("u1", array.to_numpy(zero_copy_only=False)),)),)


@dataclass(frozen=True, slots=True)
class Ints:
    """An int or a long, of any logical type."""

    count: Callable[[pa.Array], Int64s]

    def write(self, array: pa.Array) -> Pieces:
        """The bytes of each value."""
        return (zigzags(self.count(array)),)


@dataclass(frozen=True, slots=True)
class Floats:
    """A float or a double, little-endian."""

    form: str

    def write(self, array: pa.Array) -> Pieces:
        """The bytes of each value."""
        return (Fixed(((self.form, array.to_numpy(zero_copy_only=False)),)),)


@dataclass(frozen=True, slots=True)
class Stretches:
    """A string or bytes, with the length before it.

    Attributes:
        is_uuid: Whether values must be UUIDs.
    """

    is_uuid: bool = False

    def write(self, array: pa.Array) -> Pieces:
        """The bytes of each value."""
        if pa.types.is_large_string(array.type):
            refuse_odd_text(array)
        if self.is_uuid:
            fits = pc.match_substring_regex(array, _UUID)
            refuse(~fits.to_numpy(zero_copy_only=False), "are no UUIDs")
        values = array.cast(pa.large_binary())
        return zigzags(lengths_of(values)), Varying(values)


@dataclass(frozen=True, slots=True)
class Sized:
    """A fixed: bytes of the schema's size, without a length."""

    size: int

    def write(self, array: pa.Array) -> Pieces:
        """The bytes of each value."""
        refuse(lengths_of(array) != self.size, f"do not have {self.size} bytes")
        return (Varying(array),)


@dataclass(frozen=True, slots=True)
class Symbols:
    """An enum, from text."""

    symbols: tuple[str, ...]

    def write(self, array: pa.Array) -> Pieces:
        """The bytes of each value."""
        places = pc.index_in(array, value_set=pa.array(self.symbols, pa.large_string()))
        known = ", ".join(self.symbols)
        refuse(~valid_rows(places), f"are none of the symbols of the enum: {known}")
        return (zigzags(places.cast(pa.int64()).to_numpy()),)


@dataclass(frozen=True, slots=True)
class Decimals:
    """A decimal.

    Attributes:
        kind: The decimal type with the schema's precision and scale.
        size: The size of a fixed; None for bytes.
    """

    kind: pa.DataType
    size: int | None = None

    def write(self, array: pa.Array) -> Pieces:
        """The bytes of each value."""
        array = array.cast(self.kind)
        if self.size is not None:
            lines = of_size(array, self.size)
            return (Fixed(((("u1", (self.size,)), lines),)),)
        cells = shortest(array)
        return zigzags(np.count_nonzero(cells.there, axis=1)), cells


@dataclass(frozen=True, slots=True)
class Record:
    """A record.

    Attributes:
        fields: In the order of the schema: the name, the index and the writer of a field of the
            struct; or a constant, if the struct has no such field.
    """

    fields: Sequence[tuple[str, int, Slot] | Constant]

    def write(self, array: pa.Array) -> Pieces:
        """The bytes of each value."""
        parts = array.flatten()
        pieces: list[Piece] = []
        for field in self.fields:
            if isinstance(field, Constant):
                pieces += field.write(array)
                continue
            name, place, slot = field
            try:
                pieces += slot.write(parts[place])
            except BadValues as bad:
                raise bad.within(np.arange(len(array)), len(array), name) from None
        return pieces


@dataclass(frozen=True, slots=True)
class Lists:
    """An array: one block with all items, then the empty block that ends it."""

    item: Slot

    def write(self, array: pa.Array) -> Pieces:
        """The bytes of each value."""
        counts, values = elements(array)
        return _blocks(counts, of_each_element(counts, values, self.item.write, "element"))


@dataclass(frozen=True, slots=True)
class Maps:
    """A map with string keys."""

    value: Slot

    def write(self, array: pa.Array) -> Pieces:
        """The bytes of each value."""
        counts, pairs = elements(array)
        refuse_twins(counts, pairs.field("key"))
        pair = Record((("key", 0, Slot(Stretches())), ("value", 1, self.value)))
        return _blocks(counts, of_each_element(counts, pairs, pair.write, ""))


def _blocks(counts: Int64s, items: pa.Array) -> Pieces:
    # An empty array needs no end: its count of 0 is the end itself.
    there = (counts > 0)[:, None]
    end = Cells(np.zeros(there.shape, np.uint8), there)
    return zigzags(counts), Varying(items), end


def plain_count(array: pa.Array) -> Int64s:
    """Integers, and dates as days since 1970, as int64."""
    kind: Any = array.type
    if pa.types.is_date(kind):
        array = array.cast(pa.date32()).cast(pa.int32())
    found: Int64s = array.to_numpy(zero_copy_only=False).astype(np.int64)
    return found
