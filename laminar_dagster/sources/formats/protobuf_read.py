"""Builds Arrow columns from the fields located in Protobuf messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from laminar_dagster.sources.formats.binary.assemble import list_column, map_column, spread
from laminar_dagster.sources.formats.binary.lanes import Int64s, Lanes, UInt64s
from laminar_dagster.sources.formats.binary.numeric import within
from laminar_dagster.sources.formats.binary.texts import bytes_column, text_column
from laminar_dagster.sources.formats.binary.varints import read_unsigned
from laminar_dagster.sources.formats.protobuf_scan import (
    EIGHT_BYTES,
    FOUR_BYTES,
    NOTHING,
    PREFIXED,
    VARINT,
    Found,
    Scan,
    together,
)

# Converts one raw number a lane into a column with one row a lane.
FromBits = Callable[[UInt64s, Lanes], pa.Array]

_SIZES: Final = {EIGHT_BYTES: 8, FOUR_BYTES: 4}
_MICROS: Final = 1_000_000
_NANOS: Final = 1_000_000_000
# The ranges of Google's types: the years 1 to 9999, and a duration of about that length.
_SECONDS_OF_TIME: Final = (-62_135_596_800, 253_402_300_799)
_SECONDS_OF_SPAN: Final = (-315_576_000_000, 315_576_000_000)


@dataclass(frozen=True, slots=True)
class Number:
    """A scalar other than a string.

    Attributes:
        known: The numbers of a closed enum: other numbers count as absent.
    """

    what: str
    wire: int
    kind: pa.DataType
    convert: FromBits
    known: Int64s | None = None

    def read(self, found: Found, lanes: Lanes) -> pa.Array:
        """Read the located values."""
        values = found.value
        if self.wire != VARINT:
            values = lanes.body.words[found.start]
            if self.wire == FOUR_BYTES:
                values = values & np.uint64(0xFFFFFFFF)
        return self.convert(values, lanes)


@dataclass(frozen=True, slots=True)
class Text:
    """A string or bytes."""

    what: str
    kind: pa.DataType
    wire: int = PREFIXED

    def read(self, found: Found, lanes: Lanes) -> pa.Array:
        """Read the located values."""
        lengths = found.value.view(np.int64)
        if pa.types.is_binary(self.kind):
            return bytes_column(lanes.body, found.start, lengths)
        return text_column(lanes, found.start, lengths, self.what)


@dataclass(frozen=True, slots=True)
class Nested:
    """A message within a message."""

    what: str
    kind: pa.DataType
    message: Message
    wire: int = PREFIXED

    def read(self, found: Found, lanes: Lanes) -> pa.Array:
        """Read the located messages."""
        columns = self.message.columns(_within(found, lanes))
        return pa.StructArray.from_arrays(columns, fields=list(self.kind))


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A wrapper message, such as StringValue, read as its value."""

    what: str
    kind: pa.DataType
    message: Message
    wire: int = PREFIXED

    def read(self, found: Found, lanes: Lanes) -> pa.Array:
        """Read the values of the located messages."""
        return self.message.columns(_within(found, lanes))[0]


@dataclass(frozen=True, slots=True)
class Moment:
    """A Timestamp or a Duration: seconds and nanoseconds.

    Attributes:
        message: Reads the two fields.
    """

    what: str
    kind: pa.DataType
    message: Message
    wire: int = PREFIXED

    def read(self, found: Found, lanes: Lanes) -> pa.Array:
        """Read microseconds; what is below is cut off."""
        inside = _within(found, lanes)
        seconds, nanos = (each.to_numpy() for each in self.message.columns(inside))
        is_time = pa.types.is_timestamp(self.kind)
        bounds = _SECONDS_OF_TIME if is_time else _SECONDS_OF_SPAN
        seconds = within(seconds, inside, *bounds, f"{self.what} is beyond what its type may hold")
        reason = f"{self.what} has nanoseconds that are no part of a second"
        nanos = within(nanos, inside, 0 if is_time else 1 - _NANOS, _NANOS - 1, reason)
        # Toward zero: the nanoseconds of a negative duration are negative.
        micros = seconds * _MICROS + np.trunc(nanos / 1000).astype(np.int64)
        return pa.array(micros).view(self.kind) if is_time else pa.array(micros)


Item = Number | Text | Nested | Wrapped | Moment


class Field(Protocol):
    """Makes a column of a field."""

    def tags(self) -> Sequence[int]:
        """The tags to scan for."""
        ...

    def column(self, found: Mapping[int, Found], lanes: Lanes, begins: Int64s) -> pa.Array:
        """The field of every lane."""
        ...


@dataclass(frozen=True, slots=True)
class Single:
    """A field that is not repeated; if it occurs more than once, the last one counts.

    Attributes:
        default: Whether an absent field is zero, false or empty instead of null.
        rivals: The tags of the other members of its oneof, of which only the last one is set.
    """

    number: int
    item: Item
    default: bool
    rivals: Sequence[int] = ()

    def tags(self) -> Sequence[int]:
        """The field's own tag, and those of the other members of its oneof."""
        return (self.number << 3 | self.item.wire, *self.rivals)

    def column(self, found: Mapping[int, Found], lanes: Lanes, begins: Int64s) -> pa.Array:
        """The last value of every lane."""
        mine = found.get(self.number << 3 | self.item.wire, NOTHING)
        if isinstance(self.item, Number) and self.item.known is not None and len(mine):
            numbers = mine.value.astype(np.uint32).view(np.int32)
            mine = mine.pick(np.flatnonzero(np.isin(numbers, self.item.known)))
        count = len(lanes)
        last = np.full(count, -1, np.int64)
        last[mine.lane] = np.arange(len(mine))
        if len(mine) > 1 and isinstance(self.item, Nested | Wrapped | Moment):
            again = np.flatnonzero(np.bincount(mine.lane, minlength=count) > 1)
            lanes.refuse(again, f"{self.item.what} stands twice, and is a message")
        for tag in self.rivals:
            other = found.get(tag, NOTHING)
            if len(other):
                self._yield_to(other, mine, last)
        places = np.flatnonzero(last >= 0)
        if len(places) == len(mine) == count:
            picked = mine if (mine.lane == places).all() else mine.pick(last)
            return self.item.read(picked, lanes)
        picked = mine.pick(last[places])
        if not self.default:
            values = self.item.read(picked, lanes.select(places))
            return spread(values, places, count)
        starts, values = begins.copy(), np.zeros(count, np.uint64)
        starts[places], values[places] = picked.start, picked.value
        if self.item.wire in _SIZES:
            # Point absent values to the padding before the body, which is zero.
            starts[last < 0] = 0
        return self.item.read(Found(np.arange(count), starts, values), lanes)

    def _yield_to(self, other: Found, mine: Found, last: Int64s) -> None:
        latest = np.full(len(last), -1, np.int64)
        np.maximum.at(latest, other.lane, other.start)
        here = np.flatnonzero(last >= 0)
        last[here[latest[here] > mine.start[last[here]]]] = -1


@dataclass(frozen=True, slots=True)
class Repeated:
    """A repeated field; its scalars may also be packed into one value."""

    number: int
    item: Item
    kind: pa.DataType

    def tags(self) -> Sequence[int]:
        """The tags of single values and of packed ones."""
        tag = self.number << 3
        return sorted({tag | self.item.wire, tag | PREFIXED})

    def column(self, found: Mapping[int, Found], lanes: Lanes, begins: Int64s) -> pa.Array:
        """All values of every lane."""
        every = self.every(found, lanes)
        counts = np.bincount(every.lane, minlength=len(lanes))
        values = self.item.read(every, lanes.select(every.lane))
        return list_column(counts, values, self.kind)

    def every(self, found: Mapping[int, Found], lanes: Lanes) -> Found:
        """All values, ordered by lane, and in a lane by position."""
        every = found.get(self.number << 3 | self.item.wire, NOTHING)
        if self.item.wire != PREFIXED:
            packed = found.get(self.number << 3 | PREFIXED, NOTHING)
            if len(packed):
                every = together([every, _unpacked(packed, lanes, self.item)])
        if isinstance(self.item, Number) and self.item.known is not None and len(every):
            numbers = every.value.astype(np.uint32).view(np.int32)
            every = every.pick(np.flatnonzero(np.isin(numbers, self.item.known)))
        return every.pick(np.lexsort((every.start, every.lane)))


@dataclass(frozen=True, slots=True)
class MapField:
    """A map, whose entries are messages of a key and a value."""

    entries: Repeated
    message: Message
    kind: pa.DataType

    def tags(self) -> Sequence[int]:
        """The tags of the entries."""
        return self.entries.tags()

    def column(self, found: Mapping[int, Found], lanes: Lanes, begins: Int64s) -> pa.Array:
        """The map of every lane."""
        every = self.entries.every(found, lanes)
        counts = np.bincount(every.lane, minlength=len(lanes))
        keys, values = self.message.columns(_within(every, lanes.select(every.lane)))
        return map_column(lanes, counts, keys, values, self.kind, self.entries.item.what)


@dataclass(frozen=True)
class Message:
    """A message type and the declared fields of it.

    Attributes:
        fields: The declared fields; None where the message type has no such field.
        kinds: The declared types.
        refusal: Why a message with any other field is bad; empty if it is not.
    """

    fields: Sequence[Field | None]
    kinds: Sequence[pa.DataType]
    refusal: str = ""

    def columns(self, lanes: Lanes) -> list[pa.Array]:
        """The declared fields of the message of every lane."""
        tags = sorted({tag for each in self.fields if each for tag in each.tags()})
        begins = lanes.at.copy()
        found = Scan(np.array(tags, np.uint64), self.refusal).run(lanes)
        return [
            pa.nulls(len(lanes), kind) if each is None else each.column(found, lanes, begins)
            for each, kind in zip(self.fields, self.kinds, strict=True)
        ]


def _within(found: Found, lanes: Lanes) -> Lanes:
    """One lane for each located message."""
    ends = found.start + found.value.view(np.int64)
    return Lanes(lanes.body, found.start.copy(), ends, lanes.owner, lanes.blame)


def _unpacked(packed: Found, lanes: Lanes, item: Item) -> Found:
    """The single values within packed ones."""
    lengths = packed.value.view(np.int64)
    size = _SIZES.get(item.wire)
    if size is not None:
        odd = lengths % size != 0
        lanes.refuse(packed.lane[odd], f"the packed values of {item.what} are cut off")
        counts = lengths // size
        number = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        starts = np.repeat(packed.start, counts) + number * size
        return Found(np.repeat(packed.lane, counts), starts, np.full(len(starts), size, np.uint64))
    # A varint ends with each byte whose highest bit is clear.
    before = np.cumsum(lengths) - lengths
    places = np.repeat(packed.start - before, lengths) + np.arange(int(lengths.sum()))
    last = np.flatnonzero(lanes.body.raw[places] < 128)
    owner = np.repeat(np.arange(len(packed)), lengths)[last]
    ends = places[last] + 1
    starts = np.empty(len(last), np.int64)
    first = np.ones(len(last), np.bool_)
    first[1:] = owner[1:] != owner[:-1]
    starts[1:] = ends[:-1]
    starts[first] = packed.start[owner[first]]
    whole = np.zeros(len(packed), np.int64)
    whole[owner] = ends
    odd = (whole != packed.start + lengths) & (lengths > 0)
    lanes.refuse(packed.lane[odd], f"the packed values of {item.what} are cut off")
    values = Lanes(lanes.body, starts, ends, lanes.owner[packed.lane[owner]], lanes.blame)
    begins = starts.copy()
    return Found(packed.lane[owner], begins, read_unsigned(values, item.what))
