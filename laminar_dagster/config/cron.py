"""Whether a schedule is a cron expression of five fields, and if not, which field is wrong."""

from __future__ import annotations

import re
from typing import Final

NICKNAMES: Final = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")

_MONTHS: Final = tuple("jan feb mar apr may jun jul aug sep oct nov dec".split(" "))
_DAYS: Final = tuple("sun mon tue wed thu fri sat".split(" "))
_FIELDS: Final[tuple[tuple[str, int, int, tuple[str, ...]], ...]] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _DAYS),
)
_PART: Final = re.compile(r"(?:\*|(\w{1,3})(?:-(\w{1,3}))?)(?:/(\d{1,3}))?", re.ASCII)


def check_cron(text: str) -> None:
    """Refuse what is not a schedule.

    Raises:
        ValueError: It says which field is wrong.
    """
    if text.strip().lower() in NICKNAMES:
        return
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise ValueError(
            f"{text[:80]!r} is not a schedule: five fields are expected, such as '*/5 * * * *'"
        )
    for value, (name, low, high, names) in zip(fields, _FIELDS, strict=True):
        for part in value.split(","):
            if not _fits(part, low, high, names):
                raise ValueError(
                    f"{part[:40]!r} is not a {name}: a number from {low} to {high}, a range, or *"
                )


def _fits(part: str, low: int, high: int, names: tuple[str, ...]) -> bool:
    found = _PART.fullmatch(part)
    if not found:
        return False
    first, last = (_number(each, low, names) for each in (found[1], found[2]))
    if found[1] and (first is None or not low <= first <= high):
        return False
    if found[2] and (last is None or first is None or not first <= last <= high):
        return False
    return not found[3] or int(found[3]) > 0


def _number(text: str | None, low: int, names: tuple[str, ...]) -> int | None:
    if text is None:
        return None
    if text.isdigit():
        return int(text)
    lowered = text.lower()
    return names.index(lowered) + low if lowered in names else None
