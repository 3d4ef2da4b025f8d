"""Guesses the columns of JSON messages from samples; the next message may contradict them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from laminar_dagster.sources.formats.found_columns import FoundColumn, around, struct_of

# The formats that the JSON reader accepts: a time with a UTC offset, without one, and a date.
_MOMENT: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:?\d{2})", re.ASCII
)
_WALL_CLOCK: Final = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?", re.ASCII)
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_LEAST, _MOST = -(2**63), 2**63 - 1
_DIGITS: Final = 10**38


def object_in(message: bytes) -> dict[str, Any] | None:
    """The JSON object in a message; None if it is not one."""
    try:
        found = json.loads(message, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def guess_columns(objects: Iterable[Mapping[str, Any]]) -> list[FoundColumn]:
    """The members of objects as columns, in the order in which they first appear.

    Every column may be null: that no sample lacked it says little. A member that was always null,
    or of types that no column holds together, has an empty type.
    """
    members: dict[str, _Seen] = {}
    for each in objects:
        for name, value in each.items():
            members.setdefault(name, _Seen()).add(value)
    return [FoundColumn(name, seen.type(), True) for name, seen in members.items()]


@dataclass(slots=True)
class _Seen:
    """The types seen of one value."""

    kinds: set[str] = field(default_factory=set)
    members: dict[str, _Seen] = field(default_factory=dict)
    elements: _Seen | None = None

    def add(self, value: Any) -> None:
        """Add one value."""
        match value:
            case None:
                return
            case bool():
                self.kinds.add("boolean")
            case int():
                self.kinds.add(_of_integer(value))
            case float():
                self.kinds.add("double")
            case str():
                self.kinds.add(_of_text(value))
            case list():
                self.kinds.add("array")
                self.elements = self.elements or _Seen()
                for each in value:
                    self.elements.add(each)
            case dict():
                self.kinds.add("struct")
                for name, each in value.items():
                    self.members.setdefault(name, _Seen()).add(each)

    def type(self) -> str:
        """The type that holds all values seen; empty if none does."""
        match sorted(self.kinds):
            case ["array"]:
                assert self.elements is not None
                return around("array<{}>", self.elements.type())
            case ["struct"]:
                return struct_of({name: each.type() for name, each in self.members.items()})
            case [kind]:
                return kind
            case ["bigint", "decimal(38, 0)"]:
                return "decimal(38, 0)"
            case kinds if kinds and {*kinds} <= {"bigint", "decimal(38, 0)", "double"}:
                return "double"
            case kinds if kinds and {*kinds} <= {"string", "timestamp", "timestamp_ntz", "date"}:
                return "string"
        return ""


def _of_integer(value: int) -> str:
    if _LEAST <= value <= _MOST:
        return "bigint"
    return "decimal(38, 0)" if -_DIGITS < value < _DIGITS else "double"


def _of_text(value: str) -> str:
    for pattern, kind in ((_MOMENT, "timestamp"), (_WALL_CLOCK, "timestamp_ntz"), (_DAY, "date")):
        if pattern.fullmatch(value):
            return kind
    return "string"


def _refuse(_constant: str) -> NoReturn:
    raise ValueError("no JSON")
