"""Skips Avro values without decoding them: one walker for each type of a writer's schema.

Most types are skipped with one operation for all lanes. The items of arrays and maps are skipped in
rounds, the first of every lane, then the second, and so on, until only a few lanes with very many
items are left: these are finished one by one, which is then faster.

A length, a count or an index is never trusted. A count of items must not exceed what the bytes
that are left could hold; a block's stated size in bytes is compared with what its items took.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from laminar_dagster.sources.formats.binary.lanes import CUT_OFF, Int64s, Lanes
from laminar_dagster.sources.formats.binary.varints import (
    read_length,
    read_one_unsigned,
    read_signed,
)

MAX_DEPTH: Final = 32
# Items that take no bytes, such as nulls, are not limited by the bytes left: limit them here.
MAX_EMPTY_ITEMS: Final = 16
# At most this many lanes are walked one by one.
FEW_LANES: Final = 16
_NO_SIZE: Final = -(2**63)
_WRONG_SIZE: Final = "a block of {} is not as long as it says"
_TOO_MANY: Final = "{} claims more items than its bytes can hold"
_TOO_DEEP: Final = f"{{}} is nested more than {MAX_DEPTH} deep"


class Walker(Protocol):
    """Skips values of one type."""

    @property
    def least(self) -> int:
        """The smallest size of a value in bytes."""
        ...

    @property
    def size(self) -> int | None:
        """The size of a value in bytes, if it is always the same."""
        ...

    def skip(self, lanes: Lanes) -> None:
        """Step over the value of every lane."""
        ...

    def skip_one(self, raw: memoryview, at: int, end: int, depth: int) -> int:
        """Step over one value and say where it ends.

        Raises:
            ValueError: The bytes are no such value.
        """
        ...


@dataclass(frozen=True, slots=True)
class Sized:
    """Null, boolean, float, double and fixed: values of a fixed size."""

    what: str
    size: int

    @property
    def least(self) -> int:
        """The smallest size is the fixed size."""
        return self.size

    def skip(self, lanes: Lanes) -> None:
        """Step over the value of every lane."""
        if self.size:
            lanes.advance(self.size, self.what)

    def skip_one(self, raw: memoryview, at: int, end: int, depth: int) -> int:
        """Step over one value and say where it ends."""
        if at + self.size > end:
            raise ValueError(CUT_OFF.format(self.what))
        return at + self.size


@dataclass(frozen=True, slots=True)
class Varint:
    """Int, long and enum: variable-length integers."""

    what: str
    least: int = 1
    size: None = None

    def skip(self, lanes: Lanes) -> None:
        """Step over the value of every lane."""
        read_signed(lanes, self.what)

    def skip_one(self, raw: memoryview, at: int, end: int, depth: int) -> int:
        """Step over one value and say where it ends."""
        return _one_signed(raw, at, end, self.what)[1]


@dataclass(frozen=True, slots=True)
class Prefixed:
    """String and bytes: a length, then as many bytes."""

    what: str
    least: int = 1
    size: None = None

    def skip(self, lanes: Lanes) -> None:
        """Step over the value of every lane."""
        lengths = read_length(lanes, self.what, signed=True)
        lanes.at = lanes.at + lengths

    def skip_one(self, raw: memoryview, at: int, end: int, depth: int) -> int:
        """Step over one value and say where it ends."""
        length, at = _one_signed(raw, at, end, f"the length of {self.what}")
        if length < 0:
            raise ValueError(f"the length of {self.what} is negative")
        if at + length > end:
            raise ValueError(CUT_OFF.format(self.what))
        return at + length


@dataclass(frozen=True, slots=True)
class Fields:
    """A record: its fields, one after the other."""

    fields: Sequence[Walker]
    least: int = field(init=False)
    size: int | None = field(init=False)

    def __post_init__(self) -> None:
        """Add up the sizes of the fields."""
        object.__setattr__(self, "least", sum(each.least for each in self.fields))
        sizes = [each.size for each in self.fields]
        known = [each for each in sizes if each is not None]
        object.__setattr__(self, "size", sum(known) if len(known) == len(sizes) else None)

    def skip(self, lanes: Lanes) -> None:
        """Step over the value of every lane."""
        for each in self.fields:
            each.skip(lanes)

    def skip_one(self, raw: memoryview, at: int, end: int, depth: int) -> int:
        """Step over one value and say where it ends."""
        for each in self.fields:
            at = each.skip_one(raw, at, end, depth)
        return at


@dataclass(frozen=True, slots=True)
class Branches:
    """A union: the index of a branch, and its value."""

    what: str
    branches: Sequence[Walker]
    least: int = 1
    size: None = None

    def choose(self, lanes: Lanes) -> Int64s:
        """Read the index of the branch that each lane holds."""
        chosen = read_signed(lanes, f"the branch of {self.what}")
        odd = (chosen < 0) | (chosen >= len(self.branches))
        if odd.any():
            lost = np.flatnonzero(odd)
            lanes.lose(lost, f"{self.what} has no such branch")
            chosen[lost] = 0
        return chosen

    def skip(self, lanes: Lanes) -> None:
        """Step over the value of every lane."""
        chosen = self.choose(lanes)
        for number, branch in enumerate(self.branches):
            if branch.size != 0:
                places = np.flatnonzero(chosen == number)
                if len(places):
                    part = lanes.select(places)
                    branch.skip(part)
                    lanes.put_back(places, part)

    def skip_one(self, raw: memoryview, at: int, end: int, depth: int) -> int:
        """Step over one value and say where it ends."""
        chosen, at = _one_signed(raw, at, end, f"the branch of {self.what}")
        if not 0 <= chosen < len(self.branches):
            raise ValueError(f"{self.what} has no such branch")
        return self.branches[chosen].skip_one(raw, at, end, depth)


@dataclass(slots=True)
class Named:
    """A reference to a type that may contain itself."""

    what: str
    find: Callable[[], Walker]
    # A recursive value contains a union, an array or a map, which take a byte or more.
    least: int = 1
    size: None = None

    def skip(self, lanes: Lanes) -> None:
        """Step over the value of every lane."""
        if lanes.depth >= MAX_DEPTH:
            lanes.lose(np.arange(len(lanes)), _TOO_DEEP.format(self.what))
            return
        lanes.depth += 1
        self.find().skip(lanes)
        lanes.depth -= 1

    def skip_one(self, raw: memoryview, at: int, end: int, depth: int) -> int:
        """Step over one value and say where it ends."""
        if depth >= MAX_DEPTH:
            raise ValueError(_TOO_DEEP.format(self.what))
        return self.find().skip_one(raw, at, end, depth + 1)


@dataclass(frozen=True, slots=True)
class Blocks:
    """An array or a map: blocks of items, the last one empty."""

    what: str
    item: Walker
    least: int = 1
    size: None = None

    def skip(self, lanes: Lanes) -> None:
        """Step over the value of every lane."""
        self.items(lanes)

    def skip_one(self, raw: memoryview, at: int, end: int, depth: int) -> int:
        """Step over one value and say where it ends."""
        return self._blocks_of_one(raw, at, end, depth, [], 0)

    def items(self, lanes: Lanes) -> tuple[Int64s, Int64s]:
        """Skip all items, and return how many each lane has, and where each item begins."""
        found = _Items()
        active = np.arange(len(lanes))
        while len(active) > FEW_LANES:
            part = lanes.select(active)
            counts, sizes = self._head(part, active, found)
            begins = part.at.copy()
            self._block(part, active, counts, found)
            if sizes is not None:
                odd = (sizes != _NO_SIZE) & (part.at != begins + sizes)
                part.lose(np.flatnonzero(odd), _WRONG_SIZE.format(self.what))
            lanes.put_back(active, part)
            active = active[counts > 0]
        for place in active.tolist():
            before = 0 if self.item.least else int(found.counts(len(lanes))[place])
            with found.of(lanes, place, place) as one:
                one.at = self._blocks_of_one(
                    one.raw, one.at, one.end, lanes.depth, one.starts, before
                )
        return found.counts(len(lanes)), found.in_order()

    def _most(self, part: Lanes, owners: Int64s, found: _Items) -> Int64s:
        """The most items that a block can have in the bytes left."""
        if self.item.least:
            return (part.end - part.at) // self.item.least
        return MAX_EMPTY_ITEMS - found.counts(int(owners[-1]) + 1)[owners]

    def _head(self, part: Lanes, owners: Int64s, found: _Items) -> tuple[Int64s, Int64s | None]:
        """The number of items of the next block, and its size in bytes, where it is stated."""
        counts = read_signed(part, f"the number of items of {self.what}")
        sizes = None
        negative = np.flatnonzero(counts < 0)
        if len(negative):
            sized = part.select(negative)
            sizes = np.full(len(part), _NO_SIZE, np.int64)
            sizes[negative] = read_signed(sized, f"the length of a block of {self.what}")
            part.put_back(negative, sized)
            # Negating the smallest int64 overflows: it stays negative and is refused below.
            counts[negative] = -counts[negative]
        odd = np.flatnonzero((counts < 0) | (counts > self._most(part, owners, found)))
        if len(odd):
            part.lose(odd, _TOO_MANY.format(self.what))
            counts[odd] = 0
            if sizes is not None:
                sizes[odd] = _NO_SIZE
        return counts, sizes

    def _block(self, part: Lanes, owners: Int64s, counts: Int64s, found: _Items) -> None:
        """Skip the items of one block of each lane."""
        size = self.item.size
        if size is not None:
            number = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
            found.add(np.repeat(owners, counts), np.repeat(part.at, counts) + number * size)
            part.advance(counts * size, self.what)
            return
        done = 0
        active = np.flatnonzero(counts > 0)
        while len(active) > FEW_LANES:
            some = part.select(active)
            begins = some.at.copy()
            found.add(owners[active], begins)
            self.item.skip(some)
            part.put_back(active, some)
            done += 1
            # A lane that had no bytes left for this item is lost: stop walking it.
            active = active[(counts[active] > done) & (begins < some.end)]
        for place in active.tolist():
            with found.of(part, place, int(owners[place])) as one:
                one.at = self._items_of_one(
                    one.raw, one.at, one.end, part.depth, one.starts, int(counts[place]) - done
                )

    def _blocks_of_one(
        self, raw: memoryview, at: int, end: int, depth: int, starts: list[int], before: int
    ) -> int:
        while True:
            count, at = _one_signed(raw, at, end, f"the number of items of {self.what}")
            if not count:
                return at
            size = None
            if count < 0:
                count = -count
                size, at = _one_signed(raw, at, end, f"the length of a block of {self.what}")
            room = end - at
            least = self.item.least
            most = room // least if least else MAX_EMPTY_ITEMS - before - len(starts)
            if count > most:
                raise ValueError(_TOO_MANY.format(self.what))
            begins = at
            at = self._items_of_one(raw, at, end, depth, starts, count)
            if size is not None and at - begins != size:
                raise ValueError(_WRONG_SIZE.format(self.what))

    def _items_of_one(
        self, raw: memoryview, at: int, end: int, depth: int, starts: list[int], count: int
    ) -> int:
        size = self.item.size
        if size is not None:
            if at + count * size > end:
                raise ValueError(CUT_OFF.format(self.what))
            starts.extend(range(at, at + count * size, size) if size else [at] * count)
            return at + count * size
        for _ in range(count):
            starts.append(at)
            at = self.item.skip_one(raw, at, end, depth)
        return at


class _Items:
    """Collects where the items of some lanes begin."""

    def __init__(self) -> None:
        self._owners: list[Int64s] = []
        self._starts: list[Int64s] = []

    def add(self, owners: Int64s, starts: Int64s) -> None:
        """Add items that come after all others of their lanes."""
        self._owners.append(owners)
        self._starts.append(starts)

    def counts(self, lanes: int) -> Int64s:
        """How many items each lane has."""
        if not self._owners:
            return np.zeros(lanes, np.int64)
        return np.bincount(np.concatenate(self._owners), minlength=lanes)

    def in_order(self) -> Int64s:
        """Where the items begin, ordered by lane."""
        if not self._starts:
            return np.empty(0, np.int64)
        starts = np.concatenate(self._starts)
        owners = np.concatenate(self._owners)
        return starts[np.argsort(owners, kind="stable")]

    @contextmanager
    def of(self, lanes: Lanes, place: int, owner: int) -> Iterator[_One]:
        """Walk one lane on its own; an invalid value loses the lane."""
        one = _One(lanes.body.raw.data, int(lanes.at[place]), int(lanes.end[place]))
        try:
            yield one
            lanes.at[place] = one.at
        except ValueError as error:
            lanes.lose(np.array([place]), str(error))
        if one.starts:
            self.add(np.full(len(one.starts), owner), np.array(one.starts, np.int64))


@dataclass(slots=True)
class _One:
    raw: memoryview
    at: int
    end: int
    starts: list[int] = field(default_factory=list)


def _one_signed(raw: memoryview, at: int, end: int, what: str) -> tuple[int, int]:
    value, at = read_one_unsigned(raw, at, end, what)
    return (value >> 1) ^ -(value & 1), at
