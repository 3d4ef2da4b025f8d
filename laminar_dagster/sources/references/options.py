"""The options that every reference table has: how old a copy may be, and how large."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Literal

from laminar_dagster.core.ports import ReferenceFreshness
from laminar_dagster.sources.option_values import Known, duration, one_of, or_never, size

OnUnavailable = Literal["fail", "keep"]
OnRetraction = Literal["refuse", "join_current"]

SHARED: Final[Known] = {
    "refresh.interval": ("refresh_after", or_never(duration, "never")),
    "on_unavailable": ("on_unavailable", one_of(OnUnavailable)),
    # Read where queries are compiled; the table is read the same either way.
    "on_retraction": ("on_retraction", one_of(OnRetraction)),
    "max.bytes": ("max_bytes", size),
}
MAX_BYTES: Final = 1024**3


def freshness_of(values: dict[str, object], refresh_after: timedelta) -> ReferenceFreshness:
    """Take the options on the age of copies out of the parsed values.

    Args:
        values: Parsed options by attribute, as in ``SHARED``.
        refresh_after: The default of ``refresh.interval``.
    """
    after = values.pop("refresh_after", refresh_after)
    assert after is None or isinstance(after, timedelta)
    return ReferenceFreshness(after, values.pop("on_unavailable", "fail") == "keep")
