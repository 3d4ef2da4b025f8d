"""Write Arrow arrays as Protobuf, all rows at once.

An *item* writes values that are not null, without the tag that names their field. A *field* adds
the tags; a row may have no, one or several items of a field.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.sinks.arrow_values import (
    elements,
    refuse_odd_text,
    refuse_twins,
    valid_rows,
)
from laminar_dagster.sinks.bad_values import BadValues, Rows, refuse
from laminar_dagster.sinks.formats.binary.values import constant, of_each_element, of_those_there
from laminar_dagster.sinks.formats.binary.varints import UInt64s, varint_bytes, varints
from laminar_dagster.sinks.numbers import Numbers
from laminar_dagster.sinks.pieces import Fixed, Piece, Varying, joined, lengths_of, spread
from laminar_dagster.sinks.times import ODD_YEARS, counted, odd_years

Pieces = Sequence[Piece]

VARINT: Final = 0
EIGHT_BYTES: Final = 1
PREFIXED: Final = 2
FOUR_BYTES: Final = 5

_NULL: Final = (
    "are null, and the field of the schema cannot tell that from a default; make it `optional`"
    " there, or give them a value in the view"
)
_NULL_WITHIN: Final = "hold a null, for which Protobuf has no form; take it out in the view"
_MICROS: Final = 1_000_000
_NANOS_A_MICRO: Final = 1000


class Item(Protocol):
    """Writes values of one type."""

    @property
    def wire(self) -> int:
        """The wire type, the lowest bits of the tag: how a reader finds the end of a value."""
        ...

    def write(self, array: pa.Array) -> Pieces:
        """The encoded bytes of each value.

        Raises:
            BadValues: A value cannot be encoded.
        """
        ...

    def defaults(self, array: pa.Array) -> Rows:
        """A mask of the values that equal the field's default, which a reader assumes if absent."""
        ...


@dataclass(frozen=True, slots=True)
class Number:
    """An integer, a boolean or an enum, as a varint."""

    bits: Callable[[pa.Array], UInt64s]
    wire: int = VARINT

    def write(self, array: pa.Array) -> Pieces:
        """The bytes of each value."""
        return (varints(self.bits(array)),)

    def defaults(self, array: pa.Array) -> Rows:
        """A mask of the values that are zero."""
        found: Rows = self.bits(array) == 0
        return found


@dataclass(frozen=True, slots=True)
class Plain:
    """A little-endian number of four or eight bytes."""

    form: str
    numbers: Callable[[pa.Array], Numbers]

    @property
    def wire(self) -> int:
        """Four bytes or eight."""
        return FOUR_BYTES if np.dtype(self.form).itemsize == 4 else EIGHT_BYTES

    def write(self, array: pa.Array) -> Pieces:
        """The bytes of each value."""
        return (Fixed(((self.form, self.numbers(array)),)),)

    def defaults(self, array: pa.Array) -> Rows:
        """A mask of the values that are zero, except minus zero."""
        numbers = self.numbers(array)
        found: Rows = (numbers == 0) & ~np.signbit(numbers)
        return found


@dataclass(frozen=True, slots=True)
class Text:
    """A string or bytes."""

    texts: Callable[[pa.Array], pa.Array]
    wire: int = PREFIXED

    def write(self, array: pa.Array) -> Pieces:
        """The bytes of each value."""
        return _prefixed(self._bytes(array))

    def defaults(self, array: pa.Array) -> Rows:
        """A mask of the values that are empty."""
        found: Rows = lengths_of(self._bytes(array)) == 0
        return found

    def _bytes(self, array: pa.Array) -> pa.Array:
        texts = self.texts(array)
        if pa.types.is_large_string(texts.type):
            refuse_odd_text(texts)
        return texts.cast(pa.large_binary())


@dataclass(frozen=True, slots=True)
class Message:
    """A message, from structs.

    Attributes:
        fields: In the order of field numbers: a struct field's name, index and writer.
    """

    fields: Sequence[tuple[str, int, Field]]
    wire: int = PREFIXED

    def body(self, parts: Sequence[pa.Array], count: int) -> list[Piece]:
        """The encoded fields of each message, without its length."""
        pieces: list[Piece] = []
        for name, place, field in self.fields:
            try:
                pieces += field.write(parts[place])
            except BadValues as bad:
                raise bad.within(np.arange(count), count, name) from None
        return pieces

    def write(self, array: pa.Array) -> Pieces:
        """The bytes of each value."""
        return _prefixed(joined(len(array), self.body(array.flatten(), len(array))))

    def defaults(self, array: pa.Array) -> Rows:
        """None: that it is there is a value."""
        return np.zeros(len(array), np.bool_)


@dataclass(frozen=True, slots=True)
class Boxed:
    """A message around a single value: a wrapper message, a timestamp or a nested list.

    Attributes:
        parts: Makes the arrays of the message's fields from the values.
    """

    message: Message
    parts: Callable[[pa.Array], Sequence[pa.Array]]
    wire: int = PREFIXED

    def write(self, array: pa.Array) -> Pieces:
        """The bytes of each value."""
        pieces = self.message.body(self.parts(array), len(array))
        return _prefixed(joined(len(array), pieces))

    def defaults(self, array: pa.Array) -> Rows:
        """None: that it is there is a value."""
        return np.zeros(len(array), np.bool_)


class Field(Protocol):
    """Writes a field of messages."""

    def write(self, array: pa.Array) -> Pieces:
        """The field's bytes in each message; the values may be null.

        Raises:
            BadValues: A value cannot be encoded.
        """
        ...


@dataclass(frozen=True, slots=True)
class Single:
    """A field that occurs at most once.

    Attributes:
        has_presence: Whether a reader can tell an absent field from its default. If not, default
            values are not written.
    """

    number: int
    item: Item
    has_presence: bool
    is_required: bool = False

    def write(self, array: pa.Array) -> Pieces:
        """The field in each message."""
        if not self.has_presence or self.is_required:
            refuse(~valid_rows(array), _NULL)
        if self.has_presence:
            return of_those_there(array, self._tagged)
        there = ~self.item.defaults(array)
        if there.all():
            return self._tagged(array)
        places = np.flatnonzero(there)
        written = self._tagged(array.filter(pa.array(there)))
        return [spread(piece, places, len(array)) for piece in written]

    def _tagged(self, array: pa.Array) -> Pieces:
        return [*_tag(self.number, self.item.wire), *self.item.write(array)]


@dataclass(frozen=True, slots=True)
class Repeated:
    """A repeated field, once per list element; a null list has none.

    Attributes:
        is_packed: Whether all numbers share one tag.
    """

    number: int
    item: Item
    is_packed: bool

    def write(self, array: pa.Array) -> Pieces:
        """The field in each message."""
        counts, values = elements(array)
        tag = _tag(self.number, PREFIXED if self.is_packed else self.item.wire)
        if not self.is_packed:
            return (Varying(of_each_element(counts, values, self._elements(tag), "element")),)
        packed = of_each_element(counts, values, self._elements(()), "element")
        places = np.flatnonzero(counts)
        written = [*tag, *_prefixed(packed.take(pa.array(places)))]
        return [spread(piece, places, len(array)) for piece in written]

    def _elements(self, tag: Pieces) -> Callable[[pa.Array], Pieces]:
        def write(values: pa.Array) -> Pieces:
            refuse(~valid_rows(values), _NULL_WITHIN)
            return [*tag, *self.item.write(values)]

        return write


@dataclass(frozen=True, slots=True)
class MapField:
    """A map: one entry message per pair, in the order of the pairs."""

    number: int
    key: Item
    value: Item

    def write(self, array: pa.Array) -> Pieces:
        """The field in each message."""
        counts, pairs = elements(array)
        refuse_twins(counts, pairs.field("key"))
        return (Varying(of_each_element(counts, pairs, self._entries, "value")),)

    def _entries(self, pairs: pa.Array) -> Pieces:
        keys, values = pairs.flatten()
        refuse(~valid_rows(values), _NULL_WITHIN)
        entry = [
            *(*_tag(1, self.key.wire), *self.key.write(keys)),
            *(*_tag(2, self.value.wire), *self.value.write(values)),
        ]
        return [*_tag(self.number, PREFIXED), *_prefixed(joined(len(pairs), entry))]


def names_to_numbers(names: Sequence[str], numbers: Sequence[int]) -> Callable[[pa.Array], UInt64s]:
    """A conversion from the names of an enum's values to their numbers."""
    bits = np.array(numbers, np.int64).view(np.uint64)

    def convert(array: pa.Array) -> UInt64s:
        places = pc.index_in(array, value_set=pa.array(names, pa.large_string()))
        refuse(~valid_rows(places), f"are none of the names of the enum: {', '.join(names)}")
        found: UInt64s = bits[places.to_numpy()]
        return found

    return convert


def moments(array: pa.Array) -> Sequence[pa.Array]:
    """Timestamps as the seconds and nanoseconds of ``google.protobuf.Timestamp``."""
    refuse(odd_years(array), ODD_YEARS)
    seconds, micros = np.divmod(counted(array, "us"), _MICROS)
    return pa.array(seconds), pa.array(micros * _NANOS_A_MICRO)


def spans(array: pa.Array) -> Sequence[pa.Array]:
    """Durations as the seconds and nanoseconds, with one sign, of ``google.protobuf.Duration``."""
    micros = counted(array, "us")
    rest = np.fmod(micros, _MICROS)
    return pa.array((micros - rest) // _MICROS), pa.array(rest * _NANOS_A_MICRO)


def _tag(number: int, wire: int) -> Pieces:
    return constant(varint_bytes(number << 3 | wire))


def _prefixed(values: pa.Array) -> list[Piece]:
    return [varints(lengths_of(values).view(np.uint64)), Varying(values)]
