"""The health of a pipeline's sources. One that has just failed to answer is not asked again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from laminar_dagster.core.errors import AuthFailed, RetryError
from laminar_dagster.core.health import HealthReport
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.ports import Observable, Source
from laminar_dagster.runtime.backlog import Backlog

# For a source that reports no health of its own, but has answered.
ANSWERS: Final = HealthReport(True, "answers")


def ask_health(
    sources: Iterable[Source], parent: CheckpointManifest | None, backlog: Backlog
) -> dict[SourceId, HealthReport]:
    """The health that each source reports; for one that reports none, whether it answered.

    Args:
        sources: The sources to ask.
        parent: The newest checkpoint; None before the first epoch.
        backlog: The backlog of the same sources, beyond the same checkpoint.
    """
    looked = {each.source_id: each for each in backlog.sources}
    stood = {each.source_id: each.positions for each in parent.sources} if parent else {}
    found: dict[SourceId, HealthReport] = {}
    for source in sources:
        name = source.source_id
        ranges, error = looked[name].ranges, looked[name].error
        if isinstance(error, RetryError | AuthFailed):
            # It failed to answer a moment ago: asking again may cost another timeout.
            found[name] = HealthReport.unreachable(error)
        elif not isinstance(source, Observable):
            found[name] = HealthReport.unreachable(error) if error else ANSWERS
        else:
            # Where the next epoch begins: before the first, only the plan knows.
            begins = tuple(part.start for part in ranges) or stood.get(name, ())
            report = source.health(begins)
            if error is not None:
                report = replace(report, healthy=False, message=str(error), error=error)
            found[name] = report
    return found
