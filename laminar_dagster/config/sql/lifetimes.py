"""How long a query's keys stay in its state: ``state.ttl`` of EMIT CHANGES, and its clock."""

from __future__ import annotations

from laminar_dagster.config.mistakes import Report
from laminar_dagster.config.sql.refusals import ENDLESS
from laminar_dagster.config.sql.scope import Scope
from laminar_dagster.config.sql.syntax import Emit
from laminar_dagster.config.sql.text import quoted


def check_keys(emit: Emit, report: Report) -> None:
    """Refuse an EMIT CHANGES without ``state.ttl``: keys would be kept for ever unnoticed."""
    if emit.ttl_micros is None and not emit.is_unbounded:
        refused = ENDLESS["keys"]
        report.add(emit.where, refused.problem, refused.instead)


def clock_of(emit: Emit, scope: Scope, report: Report) -> str | None:
    """The event time by which keys expire, as Spark SQL; None if they never do."""
    if emit.ttl_micros is None:
        return None
    found = [
        name
        for name in scope.columns
        if (time := scope.time(name)) is not None and not time.lag_micros
    ]
    if not found and not scope.output.unknown:
        refused = ENDLESS["clock"]
        report.add(emit.ttl_where, refused.problem, refused.instead)
    if not found:
        return None
    scope.keep(found[0])
    return quoted(found[0])
