"""Since when nothing has come from a source that has one partition.

By the clocks of plans, which are stored: an epoch that is run again sees the same. Quiet for long
enough, the source is idle, and holds back no watermark.
"""

from __future__ import annotations

from datetime import datetime

from laminar_dagster.core.offsets import SourceRange, progress_of
from laminar_dagster.core.plan import Quiet, SourcePlan


def quiet_since(
    previous: SourcePlan | None, part: SourceRange, clock: datetime
) -> tuple[Quiet, ...]:
    """Whether nothing came, and since the first of the plans that found it so."""
    if not part.is_empty:
        return ()
    before = previous.quiet if previous else ()
    known = [each.since for each in before if progress_of(each.position) == progress_of(part.start)]
    return (Quiet(position=part.start, since=min([clock, *known])),)
