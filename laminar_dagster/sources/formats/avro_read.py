"""Reads Avro values into Arrow columns, for all lanes at once.

A reader is built for one type of a writer's schema and one declared type. It reads one value of
every lane and returns a column with one row a lane. Undeclared fields are skipped by walkers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from laminar_dagster.sources.formats.avro_walk import Blocks, Branches, Walker
from laminar_dagster.sources.formats.binary.assemble import (
    list_column,
    map_column,
    merge,
    spread,
)
from laminar_dagster.sources.formats.binary.lanes import Int64s, Lanes
from laminar_dagster.sources.formats.binary.numeric import FromInts, decimals, within
from laminar_dagster.sources.formats.binary.texts import bytes_column, text_column
from laminar_dagster.sources.formats.binary.varints import read_length, read_signed

_INT: Final = np.iinfo(np.int32)
_UUID_PARTS: Final = ((0, 4), (4, 6), (6, 8), (8, 10), (10, 16))
_HEX: Final = np.frombuffer(b"0123456789abcdef", np.uint8)


class Reader(Protocol):
    """Reads values of one type into a column."""

    def read(self, lanes: Lanes) -> pa.Array:
        """The value of every lane."""
        ...


@dataclass(frozen=True, slots=True)
class Nothing:
    """A null, which takes no bytes."""

    kind: pa.DataType

    def read(self, lanes: Lanes) -> pa.Array:
        """The value of every lane."""
        return pa.nulls(len(lanes), self.kind)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A branch of a union that cannot become the declared type: records that hold it are bad."""

    walker: Walker
    kind: pa.DataType
    reason: str

    def read(self, lanes: Lanes) -> pa.Array:
        """The value of every lane."""
        lanes.refuse(np.arange(len(lanes)), self.reason)
        self.walker.skip(lanes)
        return pa.nulls(len(lanes), self.kind)


@dataclass(frozen=True, slots=True)
class Ints:
    """An int or a long, of any logical type."""

    what: str
    is_int: bool
    convert: FromInts

    def read(self, lanes: Lanes) -> pa.Array:
        """The value of every lane."""
        values = read_signed(lanes, self.what)
        if self.is_int:
            values = within(values, lanes, _INT.min, _INT.max, f"{self.what} is no 32-bit int")
        return self.convert(values, lanes)


@dataclass(frozen=True, slots=True)
class Booleans:
    """A boolean: one byte."""

    what: str

    def read(self, lanes: Lanes) -> pa.Array:
        """The value of every lane."""
        values = lanes.body.raw[lanes.advance(1, self.what)]
        odd = values > 1
        if odd.any():
            lanes.refuse(np.flatnonzero(odd), f"{self.what} is a boolean other than 0 and 1")
        return pa.array(values != 0)


@dataclass(frozen=True, slots=True)
class Floats:
    """A float or a double: four or eight bytes, little-endian."""

    what: str
    size: int
    kind: pa.DataType

    def read(self, lanes: Lanes) -> pa.Array:
        """The value of every lane."""
        words = lanes.body.words[lanes.advance(self.size, self.what)]
        if self.size == 4:
            values = words.astype(np.uint32).view(np.float32)
        else:
            values = words.view(np.float64)
        # Converting a signalling NaN would warn.
        with np.errstate(invalid="ignore"):
            return pa.array(values.astype(self.kind.to_pandas_dtype(), copy=False))


@dataclass(frozen=True, slots=True)
class Stretches:
    """String, bytes and fixed: raw bytes, with a length before them or in the schema.

    Attributes:
        size: The length in the schema; None where a length stands before the bytes.
    """

    what: str
    size: int | None
    kind: pa.DataType

    def read(self, lanes: Lanes) -> pa.Array:
        """The value of every lane."""
        starts, lengths = _stretch(lanes, self.what, self.size)
        if pa.types.is_binary(self.kind):
            return bytes_column(lanes.body, starts, lengths)
        return text_column(lanes, starts, lengths, self.what)


@dataclass(frozen=True, slots=True)
class Decimals:
    """A decimal, stored as bytes or fixed."""

    what: str
    size: int | None
    scale: int
    kind: pa.DataType

    def read(self, lanes: Lanes) -> pa.Array:
        """The value of every lane."""
        starts, lengths = _stretch(lanes, self.what, self.size)
        return decimals(lanes, starts, lengths, self.scale, self.kind, self.what)


@dataclass(frozen=True, slots=True)
class Uuids:
    """A UUID stored in 16 bytes, read as text."""

    what: str

    def read(self, lanes: Lanes) -> pa.Array:
        """The value of every lane."""
        starts = lanes.advance(16, self.what)
        raw = lanes.body.raw
        text = np.full((len(lanes), 36), ord("-"), np.uint8)
        column = 0
        for low, high in _UUID_PARTS:
            for place in range(low, high):
                byte = raw[starts + place]
                text[:, column] = _HEX[byte >> 4]
                text[:, column + 1] = _HEX[byte & 15]
                column += 2
            column += 1
        offsets = np.arange(0, 36 * len(lanes) + 1, 36, dtype=np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
        return pa.Array.from_buffers(pa.string(), len(lanes), buffers, null_count=0)


@dataclass(frozen=True, slots=True)
class Symbols:
    """An enum, read as text."""

    what: str
    symbols: pa.StringArray

    def read(self, lanes: Lanes) -> pa.Array:
        """The value of every lane."""
        places = within(
            read_signed(lanes, self.what),
            lanes,
            0,
            len(self.symbols) - 1,
            f"{self.what} is a symbol that the enum does not have",
        )
        return self.symbols.take(pa.array(places))


@dataclass(frozen=True, slots=True)
class Struct:
    """A record.

    Attributes:
        fields: In the writer's order: a reader with the number of its declared field, or a walker
            that skips the field.
        kinds: The declared fields.
    """

    fields: Sequence[tuple[Reader, int] | Walker]
    kinds: Sequence[pa.Field]

    def columns(self, lanes: Lanes) -> list[pa.Array]:
        """The declared fields; null where the writer has none."""
        found: list[pa.Array | None] = [None] * len(self.kinds)
        for each in self.fields:
            if isinstance(each, tuple):
                reader, place = each
                found[place] = reader.read(lanes)
            else:
                each.skip(lanes)
        return [
            pa.nulls(len(lanes), kind.type) if each is None else each
            for each, kind in zip(found, self.kinds, strict=True)
        ]

    def read(self, lanes: Lanes) -> pa.Array:
        """The value of every lane."""
        return pa.StructArray.from_arrays(self.columns(lanes), fields=list(self.kinds))


@dataclass(frozen=True, slots=True)
class Choice:
    """A union. Each branch reads the lanes that chose it."""

    walker: Branches
    readers: Sequence[Reader]
    kind: pa.DataType

    def read(self, lanes: Lanes) -> pa.Array:
        """The value of every lane."""
        chosen = self.walker.choose(lanes)
        parts: list[tuple[pa.Array, Int64s]] = []
        for number, reader in enumerate(self.readers):
            if isinstance(reader, Nothing):
                continue
            mine = chosen == number
            if mine.all():
                return reader.read(lanes)
            places = np.flatnonzero(mine)
            if len(places):
                part = lanes.select(places)
                parts.append((reader.read(part), places))
                lanes.put_back(places, part)
        if len(parts) == 1:
            return spread(*parts[0], len(lanes))
        return merge(parts, self.kind, len(lanes))


@dataclass(frozen=True, slots=True)
class Lists:
    """An array."""

    walker: Blocks
    item: Reader
    kind: pa.DataType

    def read(self, lanes: Lanes) -> pa.Array:
        """The value of every lane."""
        counts, starts = self.walker.items(lanes)
        values = self.item.read(lanes.spread_out(counts, starts))
        return list_column(counts, values, self.kind)


@dataclass(frozen=True, slots=True)
class Maps:
    """A map, whose keys are strings."""

    walker: Blocks
    key: Reader
    value: Reader
    kind: pa.DataType

    def read(self, lanes: Lanes) -> pa.Array:
        """The value of every lane."""
        counts, starts = self.walker.items(lanes)
        items = lanes.spread_out(counts, starts)
        keys, values = self.key.read(items), self.value.read(items)
        return map_column(lanes, counts, keys, values, self.kind, self.walker.what)


def _stretch(lanes: Lanes, what: str, size: int | None) -> tuple[Int64s, Int64s]:
    if size is None:
        lengths = read_length(lanes, what, signed=True)
        starts = lanes.at
        lanes.at = starts + lengths
        return starts, lengths
    starts = lanes.advance(size, what)
    return starts, lanes.at - starts
