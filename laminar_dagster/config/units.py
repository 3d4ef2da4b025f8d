"""Durations and sizes as people write them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|m|h|d)", re.ASCII)
_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SIZE: Final = re.compile(r"(\d{1,15})\s*(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)?", re.ASCII)
_SIZES: Final = {
    **{name: 1000**power for power, name in enumerate(("B", "KB", "MB", "GB", "TB"))},
    **{name: 1024**power for power, name in enumerate(("B", "KiB", "MiB", "GiB", "TiB"))},
}


def parse_duration(text: str) -> timedelta:
    """Read a duration such as ``30m``.

    Raises:
        ValueError: It is none.
    """
    found = _DURATION.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text[:80]!r} is not a duration such as 500ms, 30s, 15m, 1h or 7d")
    return timedelta(seconds=float(found[1]) * _UNITS[found[2]])


def spell_duration(micros: int) -> str:
    """Spell microseconds in the largest unit that fits: the reverse of ``parse_duration``."""
    for unit in reversed(_UNITS):
        length = round(_UNITS[unit] * 1_000_000)
        if micros and micros % length == 0:
            return f"{micros // length}{unit}"
    return f"{micros / 1_000_000:g}s"


def parse_size(value: int | str) -> int:
    """Read a size in bytes such as ``256MiB``.

    Raises:
        ValueError: It is none.
    """
    found = _SIZE.fullmatch(str(value).strip()) if not isinstance(value, bool) else None
    size = int(found[1]) * _SIZES[found[2] or "B"] if found else 0
    if not 0 < size < 2**63:
        raise ValueError(f"{str(value)[:80]!r} is not a size such as 1000000, 256MiB or 1GB")
    return size
