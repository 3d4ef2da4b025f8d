"""What an epoch read: its ranges by partition, as its plan has fixed them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from laminar_dagster.cli import wording
from laminar_dagster.cli.manifest_dossier import ROWS_SHOWN
from laminar_dagster.cli.tables import Block, Column, Line, Table
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.offsets import (
    FilePosition,
    SourceRange,
    describe_position,
    lane_of,
)
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.runtime.backlog import distance

_COLUMNS: Final = (
    Column("source"),
    Column("partition", folds=12),
    Column("from", folds=12),
    Column("up to", folds=12),
    Column("amount", right=True, optional=2),
    Column("watermark (UTC)", optional=1),
    Column("note"),
)

Lane = tuple[SourceId, tuple[str | int, ...]]


def ranges_table(
    plan: EpochPlan, manifest: CheckpointManifest | None, *, every_row: bool
) -> Iterator[Block]:
    """The ranges, with the watermark that each partition had reached at the end."""
    marks = _watermarks(manifest)
    rows = []
    for source in plan.sources:
        idle = {lane_of(position) for position in source.idle}
        for part in source.ranges:
            lane, start = describe_position(part.start)
            _, end = describe_position(part.end)
            reached = wording.microseconds(marks.get((source.source_id, lane_of(part.start))))
            note = "idle" if lane_of(part.start) in idle else ""
            rows.append((source.source_id, lane, start, end, _amount(part), reached, note))
        if not source.ranges:
            rows.append((source.source_id, "", "", "", "nothing there", "", ""))
    limit = None if every_row else ROWS_SHOWN
    yield Table(_COLUMNS, rows[:limit], "Ranges: what it read of each partition")
    if limit is not None and len(rows) > limit:
        yield Line(f"{len(rows) - limit:,} more; --files shows every one.")


def _watermarks(manifest: CheckpointManifest | None) -> dict[Lane, int | None]:
    if manifest is None:
        return {}
    return {
        (entry.source_id, lane_of(position)): watermark
        for entry in manifest.sources
        for position, watermark in zip(entry.positions, entry.watermarks, strict=False)
    }


def _amount(part: SourceRange) -> str:
    if part.is_empty:
        return "nothing"
    amount = distance(part)
    if isinstance(part.start, FilePosition):
        return wording.size(amount)
    return wording.count(amount, "record") if amount else ""
