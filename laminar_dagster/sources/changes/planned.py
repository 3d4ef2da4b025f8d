"""Planning an epoch of a change source (CDC): such a source has one partition."""

from __future__ import annotations

from datetime import datetime, timedelta

import pyarrow as pa

from laminar_dagster.config.model import SourceTable
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.offsets import Gap, SourceIdentity, SourceRange
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Admission
from laminar_dagster.core.snapshot import SourceSnapshot
from laminar_dagster.sources.changes.quiet import quiet_since
from laminar_dagster.sources.formats.arrow_types import arrow_schema


def schema_of(table: SourceTable) -> pa.Schema:
    """The Arrow schema of a ``CREATE SOURCE TABLE``.

    Raises:
        InvalidConfig: Names a column whose type is not supported.
    """
    try:
        return arrow_schema(table.columns)
    except ValueError as error:
        reason = f"source {table.source_id}: {error}"
        raise InvalidConfig(str(table.place), reason) from None


def no_such_key(table: str, key: tuple[str, ...]) -> tuple[str, str]:
    """The problem and the remedy when the declared PRIMARY KEY is not unique in its table."""
    columns = ", ".join(key)
    return (
        f"the database does not keep ({columns}) unique in table {table}",
        "declare the PRIMARY KEY that the table has; or none, and sinks count their rows",
    )


def admitted_rows(snapshot: SourceSnapshot, start: int, limits: Admission) -> int:
    """The row of a snapshot at which an epoch ends; bytes are estimated from the mean row size."""
    left = snapshot.rows - start
    if limits.max_records is not None:
        left = min(left, limits.max_records)
    if limits.max_bytes is not None and snapshot.rows:
        mean = max(1, snapshot.size_bytes // snapshot.rows)
        left = min(left, max(1, limits.max_bytes // mean))
    return start + left


def planned(
    source_id: SourceId,
    identity: SourceIdentity,
    part: SourceRange,
    gaps: tuple[Gap, ...],
    previous: SourcePlan | None,
    clock: datetime,
    idle_timeout: timedelta | None,
) -> SourcePlan:
    """The plan to read one range.

    Args:
        source_id: The source's name.
        identity: The identity that the plan pins.
        part: The range that the epoch reads; empty if there are no changes.
        gaps: What was lost before the range.
        previous: The plan of the epoch before.
        clock: The plan's clock.
        idle_timeout: How long without changes until the source no longer holds back the watermark;
            None: never.
    """
    quiet = quiet_since(previous, part, clock)
    is_idle = [
        each for each in quiet if idle_timeout is not None and clock - each.since >= idle_timeout
    ]
    return SourcePlan(
        source_id=source_id,
        identity=identity,
        ranges=(part,),
        idle=tuple(each.position for each in is_idle),
        gaps=gaps,
        quiet=quiet,
    )
