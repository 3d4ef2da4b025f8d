"""Locates the fields of Protobuf messages, in all messages at once.

A message is a sequence of tags and values in any order. In each round one tag and its value are
read of every message that has not ended: there are as many rounds as the largest message has
fields. Mostly all messages have the same field in the same round, which then takes one read of the
tag and one of the value. Located values are collected by tag, ready to be made a column; fields
that are not wanted are skipped. When only a few messages with very many fields are left, these are
finished one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from laminar_dagster.sources.formats.binary.lanes import CUT_OFF, Int64s, Lanes, UInt64s
from laminar_dagster.sources.formats.binary.varints import (
    read_length,
    read_one_unsigned,
    read_unsigned,
)

VARINT: Final = 0
EIGHT_BYTES: Final = 1
PREFIXED: Final = 2
GROUP: Final = 3
END_OF_GROUP: Final = 4
FOUR_BYTES: Final = 5

# At most this many messages are scanned one by one.
FEW_LANES: Final = 16
_MAX_GROUPS: Final = 32
_LARGEST_TAG: Final = 2**32 - 1
_SIZES: Final = {EIGHT_BYTES: 8, FOUR_BYTES: 4}
_TAG: Final = "a tag"
_VALUE: Final = "a field"
_NO_TAG: Final = "a tag that Protobuf does not have"
_WILD_END: Final = "the end of a group that did not begin"
_TOO_DEEP: Final = f"groups are nested more than {_MAX_GROUPS} deep"


@dataclass(frozen=True, slots=True)
class Found:
    """The located values of one tag: any number for each lane, in the order of the lane.

    Attributes:
        lane: The lane of each value.
        start: Where each value begins, behind its length if it has one.
        value: The number itself for a varint, else the number of bytes.
    """

    lane: Int64s
    start: Int64s
    value: UInt64s

    def __len__(self) -> int:
        """The number of values."""
        return len(self.lane)

    def pick(self, places: Int64s) -> Found:
        """Some of the values."""
        return Found(self.lane[places], self.start[places], self.value[places])


NOTHING: Final = Found(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint64))


def together(parts: list[Found]) -> Found:
    """Join the values located in several rounds."""
    if len(parts) < 2:
        return parts[0] if parts else NOTHING
    return Found(
        np.concatenate([each.lane for each in parts]),
        np.concatenate([each.start for each in parts]),
        np.concatenate([each.value for each in parts]),
    )


@dataclass
class Scan:
    """Scans messages for some tags: a tag is a field's number and the wire type of its value.

    Attributes:
        refusal: Why a message with any other tag is bad; empty if it is not.
    """

    tags: UInt64s
    refusal: str = ""
    _found: dict[int, list[Found]] = field(init=False, default_factory=dict)

    def run(self, lanes: Lanes) -> Mapping[int, Found]:
        """Scan every lane to its end, and return the located values by tag."""
        active = np.flatnonzero(lanes.at < lanes.end)
        while len(active) > FEW_LANES:
            part = lanes if len(active) == len(lanes) else lanes.select(active)
            self._round(part, active)
            if part is not lanes:
                lanes.put_back(active, part)
            active = active[part.at < part.end]
        wanted = frozenset(self.tags.tolist())
        for place in active.tolist():
            self._rest_of_one(lanes, place, wanted)
        return {tag: together(parts) for tag, parts in self._found.items()}

    def _round(self, part: Lanes, owners: Int64s) -> None:
        """Read one tag and its value of every lane."""
        tags = read_unsigned(part, _TAG)
        if (tags == tags[0]).all():
            self._uniform(part, owners, int(tags[0]))
            return
        odd = np.flatnonzero((tags > _LARGEST_TAG) | (tags < 8))
        if len(odd):
            part.lose(odd, _NO_TAG)
            tags[odd] = 0
        types = (tags & np.uint64(7)).astype(np.uint8)
        starts = part.at.copy()
        values = np.zeros(len(part), np.uint64)
        for kind in np.flatnonzero(np.bincount(types, minlength=8)).tolist():
            places = np.flatnonzero(types == kind)
            some = part.select(places)
            starts[places], values[places] = _values(some, kind)
            part.put_back(places, some)
        self._sort_out(part, tags, owners, starts, values)

    def _uniform(self, part: Lanes, owners: Int64s, tag: int) -> None:
        if tag > _LARGEST_TAG or tag < 8:
            part.lose(np.arange(len(part)), _NO_TAG)
            return
        starts, values = _values(part, tag & 7)
        if tag in self.tags:
            self._found.setdefault(tag, []).append(Found(owners, starts, values))
        elif self.refusal:
            part.refuse(np.arange(len(part)), self.refusal)

    def _sort_out(
        self, part: Lanes, tags: UInt64s, owners: Int64s, starts: Int64s, values: UInt64s
    ) -> None:
        """Keep the values of the wanted tags."""
        if not len(self.tags):
            return
        codes = np.minimum(np.searchsorted(self.tags, tags), len(self.tags) - 1)
        codes = np.where(self.tags[codes] == tags, codes, len(self.tags)).astype(np.uint16)
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(self.tags) + 1))
        begin = 0
        for tag, end in zip(self.tags.tolist(), ends.tolist(), strict=False):
            if end > begin:
                mine = order[begin:end]
                found = Found(owners[mine], starts[mine], values[mine])
                self._found.setdefault(tag, []).append(found)
            begin = end
        if self.refusal:
            part.refuse(order[begin:], self.refusal)

    def _rest_of_one(self, lanes: Lanes, place: int, wanted: frozenset[int]) -> None:
        raw, at, end = lanes.body.raw.data, int(lanes.at[place]), int(lanes.end[place])
        found: dict[int, tuple[list[int], list[int]]] = {}
        try:
            while at < end:
                tag, at = read_one_unsigned(raw, at, end, _TAG)
                start, value, at = _one_value(raw, at, end, tag)
                if tag in wanted:
                    starts, values = found.setdefault(tag, ([], []))
                    starts.append(start)
                    values.append(value)
                elif self.refusal:
                    lanes.refuse(np.array([place]), self.refusal)
        except ValueError as error:
            lanes.lose(np.array([place]), str(error))
        else:
            lanes.at[place] = at
        for tag, (starts, values) in found.items():
            owners = np.full(len(starts), place, np.int64)
            some = Found(owners, np.array(starts, np.int64), np.array(values, np.uint64))
            self._found.setdefault(tag, []).append(some)


def _values(some: Lanes, kind: int) -> tuple[Int64s, UInt64s]:
    """Skip a value of one wire type in every lane; return ``start`` and ``value`` of ``Found``."""
    if kind == VARINT:
        starts = some.at
        return starts, read_unsigned(some, _VALUE)
    if kind == PREFIXED:
        lengths = read_length(some, _VALUE, signed=False)
        starts = some.at
        some.at = starts + lengths
        return starts, lengths.view(np.uint64)
    if kind in _SIZES:
        starts = some.advance(_SIZES[kind], _VALUE)
        return starts, np.full(len(some), _SIZES[kind], np.uint64)
    starts = some.at.copy()
    if kind == GROUP:
        _groups(some)
    else:
        reason = _WILD_END if kind == END_OF_GROUP else _NO_TAG
        some.lose(np.arange(len(some)), reason)
    return starts, np.zeros(len(some), np.uint64)


def _groups(some: Lanes) -> None:
    """Skip groups one by one: they are long deprecated and rare."""
    raw = some.body.raw.data
    for place in range(len(some)):
        try:
            some.at[place] = _one_group(raw, int(some.at[place]), int(some.end[place]), 0)
        except ValueError as error:
            some.lose(np.array([place]), str(error))


def _one_group(raw: memoryview, at: int, end: int, depth: int) -> int:
    if depth > _MAX_GROUPS:
        raise ValueError(_TOO_DEEP)
    while True:
        tag, at = read_one_unsigned(raw, at, end, _TAG)
        if tag & 7 == END_OF_GROUP and 8 <= tag <= _LARGEST_TAG:
            return at
        _, _, at = _one_value(raw, at, end, tag, depth + 1)


def _one_value(
    raw: memoryview, at: int, end: int, tag: int, depth: int = 0
) -> tuple[int, int, int]:
    """Return ``start`` and ``value`` of ``Found`` for one value, and where it ends."""
    if not 8 <= tag <= _LARGEST_TAG:
        raise ValueError(_NO_TAG)
    kind = tag & 7
    if kind == VARINT:
        value, after = read_one_unsigned(raw, at, end, _VALUE)
        return at, value, after
    if kind == PREFIXED:
        size, at = read_one_unsigned(raw, at, end, f"the length of {_VALUE}")
    elif kind in _SIZES:
        size = _SIZES[kind]
    elif kind == GROUP:
        return at, 0, _one_group(raw, at, end, depth)
    else:
        raise ValueError(_WILD_END if kind == END_OF_GROUP else _NO_TAG)
    if size > end - at:
        raise ValueError(CUT_OFF.format(_VALUE))
    return at, size, at + size
