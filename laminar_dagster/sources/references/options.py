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
    # For who reads the queries; a table is read the same either way.
    "on_retraction": ("on_retraction", one_of(OnRetraction)),
    "max.bytes": ("max_bytes", size),
}
MAX_BYTES: Final = 1024**3


def freshness_of(values: dict[str, object], refresh_after: timedelta) -> ReferenceFreshness:
    """What was said of the age of copies, taken out of the values that were read.

    Args:
        values: By attribute, as ``SHARED`` names them.
        refresh_after: Where nothing was said.
    """
    after = values.pop("refresh_after", refresh_after)
    assert after is None or isinstance(after, timedelta)
    return ReferenceFreshness(after, values.pop("on_unavailable", "fail") == "keep")
