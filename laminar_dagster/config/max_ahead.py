"""How far event time may be ahead of an epoch's clock: an option that every source has.

Executors load it, so it imports nothing else of the configuration.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from laminar_dagster.config.units import parse_duration

MAX_AHEAD: Final = "watermark.max.ahead"
# A day allows every clock that was set to the wrong time zone. A watermark that such a clock moved
# too far ahead is right again after a day at most.
DEFAULT_MAX_AHEAD: Final = timedelta(days=1) // timedelta(microseconds=1)
_UNBOUNDED: Final = "unbounded"
# The largest number that a plan can store; 292,000 years.
_MOST: Final = 2**63 - 1


def read_max_ahead(text: str | None) -> int | None:
    """Read the option as written: the bound in microseconds, None for no bound.

    Raises:
        ValueError: It is no duration, nor ``unbounded``.
    """
    if text is None:
        return DEFAULT_MAX_AHEAD
    if text.strip() == _UNBOUNDED:
        return None
    try:
        return min(parse_duration(text) // timedelta(microseconds=1), _MOST)
    except (ValueError, OverflowError):
        problem = f"`{MAX_AHEAD}` must be a duration such as 1d or 30m, or {_UNBOUNDED}"
        raise ValueError(f"{problem}, not {text[:80]!r}") from None
