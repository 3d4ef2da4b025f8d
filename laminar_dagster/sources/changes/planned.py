"""What every source of changes does alike when an epoch is planned: it has one partition."""

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
    """The columns of a ``CREATE SOURCE TABLE``.

    Raises:
        InvalidConfig: Names one that cannot be.
    """
    try:
        return arrow_schema(table.columns)
    except ValueError as error:
        reason = f"source {table.source_id}: {error}"
        raise InvalidConfig(str(table.place), reason) from None


def no_such_key(table: str, key: tuple[str, ...]) -> tuple[str, str]:
    """What is wrong with a source whose PRIMARY KEY is none of its table, and what to do."""
    columns = ", ".join(key)
    return (
        f"the database does not keep ({columns}) unique in table {table}",
        "declare the PRIMARY KEY that the table has; or none, and sinks count their rows",
    )


def admitted_rows(snapshot: SourceSnapshot, start: int, limits: Admission) -> int:
    """Up to which row of a snapshot an epoch reads; by bytes as large as its files on average."""
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
    """The plan to read a range.

    Args:
        source_id: Of the source.
        identity: What the plan pins.
        part: What the epoch reads; empty if nothing came.
        gaps: What was lost before it.
        previous: The plan before.
        clock: Of the plan.
        idle_timeout: How long nothing may have come before it holds back no watermark; None: it
            always does.
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
