"""How numbers, times and foreign texts are written for people."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from typing import Final

NOTHING: Final = "-"

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_STEPS: Final = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SHORT_HASH: Final = 12
_LINE_NUMBERS: Final = re.compile(r"(:\d+){0,2}$")


def clean(text: str) -> str:
    """A text of somebody else's on one line, unable to steer the terminal."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def size(count: int) -> str:
    """A number of bytes: ``512 B``, ``1.5 KiB``."""
    value = float(count)
    for unit in _UNITS:
        # What would be rounded to 1024 belongs to the next unit.
        if value < 1023.95 or unit == _UNITS[-1]:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def timestamp(moment: datetime) -> str:
    """A moment in UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def moment(when: datetime) -> str:
    """A moment as precise as it is; in UTC if it has a zone."""
    there = when.astimezone(UTC) if when.tzinfo else when
    shown = there.strftime("%Y-%m-%d %H:%M:%S.%f")
    return shown.rstrip("0").rstrip(".")


def microseconds(value: int | None) -> str:
    """An event time in UTC; as a bare number when no calendar reaches so far."""
    if value is None:
        return ""
    try:
        moment = _UNIX_EPOCH + timedelta(microseconds=value)
    except OverflowError:
        return f"{value} µs"
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0").rstrip(".")


def duration(span: timedelta) -> str:
    """The two largest units of a span: ``3d 4h``, ``12s``, ``0.25s``."""
    seconds = span.total_seconds()
    if seconds < 0:
        return "-" + duration(-span)
    if 0 < seconds < 10:
        return f"{seconds:.2g}s"
    whole = int(seconds)
    parts: list[str] = []
    for unit, length in _STEPS:
        count, whole = divmod(whole, length)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return " ".join(part for part in parts[:2] if part) or "0s"


def age(moment: datetime, now: datetime) -> str:
    """How long ago a moment was, in whole seconds at best."""
    span = timedelta(seconds=int((now - moment).total_seconds()))
    return f"in {duration(-span)}" if span < timedelta(0) else duration(span)


def ago(moment: datetime, now: datetime) -> str:
    """How long ago a moment was, as a part of a sentence: ``3m ago``, ``in 2s``."""
    shown = age(moment, now)
    return shown if shown.startswith("in ") else f"{shown} ago"


def count(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: ``1 file``, ``2,000 files``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def short_hash(digest: str) -> str:
    """Enough of a hash to tell it from another by eye."""
    return digest[:_SHORT_HASH]


def shorter_place(where: str) -> str:
    """A place in a file, its path from the current folder where that is shorter."""
    if not os.path.isabs(where):
        return where
    found = _LINE_NUMBERS.search(where)
    numbers = found[0] if found else ""
    relative = os.path.relpath(where.removesuffix(numbers)) + numbers
    return relative if len(relative) < len(where) else where
