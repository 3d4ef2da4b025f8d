"""Since when no change has arrived from a source that has one partition.

Measured by the clocks of stored plans, so that an epoch that is retried decides the same. After
``idle.timeout`` without changes the source is idle, and no longer holds back the watermark.
"""

from __future__ import annotations

from datetime import datetime

from laminar_dagster.core.offsets import SourceRange, progress_of
from laminar_dagster.core.plan import Quiet, SourcePlan


def quiet_since(
    previous: SourcePlan | None, part: SourceRange, clock: datetime
) -> tuple[Quiet, ...]:
    """Since which plan's clock the position has not advanced; empty if it just did."""
    if not part.is_empty:
        return ()
    before = previous.quiet if previous else ()
    known = [each.since for each in before if progress_of(each.position) == progress_of(part.start)]
    return (Quiet(position=part.start, since=min([clock, *known])),)
