"""Watermark alignment: limits how far a partition may be ahead of the slowest in event time.

A source, or a partition of one, that is far ahead fills the state with windows that cannot close
until the slowest has caught up. So with ``max_drift`` a partition beyond the limit pauses for an
epoch: its range is planned empty, and nothing is lost. Partitions without anything to read do not
count as slow, because waiting for them would not end. A partition without any event yet neither
holds others back nor is held back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import structs

from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.offsets import SourceRange, lane_of
from laminar_dagster.core.plan import SourcePlan

LaneKey = tuple[object, ...]


def aligned(
    plans: Iterable[SourcePlan], parent: CheckpointManifest | None, max_drift: int | None
) -> tuple[SourcePlan, ...]:
    """The plans, with ranges that are too far ahead made empty.

    The identities that a plan pins are not changed here: see ``PinsItsEnd``.

    Args:
        plans: What each source would read.
        parent: The checkpoint they go on from, which knows the watermark of every partition.
        max_drift: How far a partition may be ahead of the slowest that has something to read, in
            microseconds; None is no limit.
    """
    found = tuple(plans)
    marks = _watermarks(parent)
    if max_drift is None or not marks:
        return found
    waiting = [
        marks[key]
        for plan in found
        for part in plan.ranges
        if not part.is_empty and (key := _key(plan, part)) in marks
    ]
    if not waiting:
        return found
    limit = min(waiting) + max_drift
    return tuple(
        structs.replace(
            plan,
            ranges=tuple(
                _held(part) if marks.get(_key(plan, part), limit) > limit else part
                for part in plan.ranges
            ),
        )
        for plan in found
    )


def _watermarks(parent: CheckpointManifest | None) -> Mapping[LaneKey, int]:
    return {
        (entry.source_id, *lane_of(position)): mark
        for entry in (parent.sources if parent else ())
        for position, mark in zip(entry.positions, entry.watermarks, strict=False)
        if mark is not None
    }


def _key(plan: SourcePlan, part: SourceRange) -> LaneKey:
    return (plan.source_id, *lane_of(part.start))


def _held(part: SourceRange) -> SourceRange:
    return SourceRange(start=part.start, end=part.start)
