"""The checks of every epoch before it is published, whatever it computes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from laminar_dagster.core.errors import GateFailed
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.offsets import describe_position, lane_of, progress_of
from laminar_dagster.core.plan import EpochPlan, SourcePlan
from laminar_dagster.core.ports import EpochOutput, Violation

CONTRACT: Final = "contract"
RECORD_ACCOUNTING: Final = "record accounting"
OFFSET_CONTIGUITY: Final = "offset contiguity"
SINK_FIT: Final = "sink fit"
KEY_NOT_UNIQUE: Final = "key_not_unique"


def refusal(
    plan: EpochPlan,
    parent: CheckpointManifest | None,
    output: EpochOutput,
    misfits: tuple[Violation, ...] = (),
) -> GateFailed | None:
    """Why the output of an epoch must not be published; None if it may.

    Args:
        plan: The plan that was carried out.
        parent: The checkpoint that it builds on; None for the first epoch.
        output: What was computed.
        misfits: Violations that the sinks have found.
    """
    if not output.counts.is_balanced:
        reason = f"the records do not add up: {output.counts}"
        return GateFailed(plan.epoch, RECORD_ACCOUNTING, reason)
    breaks = [*_breaks_before(plan, parent), *_breaks_after(plan, output)]
    if breaks:
        return GateFailed(plan.epoch, OFFSET_CONTIGUITY, "; ".join(breaks[:5]))
    if violations := (*output.violations, *misfits):
        first = violations[0]
        about = [each for each in violations if each.check == first.check]
        reason = "; ".join(f"{each.subject}: {each.problem}" for each in about[:5])
        return GateFailed(plan.epoch, first.check, reason, first.subject)
    return None


def _breaks_before(plan: EpochPlan, parent: CheckpointManifest | None) -> Iterator[str]:
    """Ranges that do not begin where the checkpoint before them ended."""
    stood = {source.source_id: source.positions for source in parent.sources} if parent else {}
    for source in plan.sources:
        reached = {lane_of(each): each for each in stood.get(source.source_id, ())}
        skipped = _accepted_gaps(source)
        for part in source.ranges:
            lane = lane_of(part.start)
            end = reached.get(lane)
            if end is None or progress_of(end) == progress_of(part.start):
                continue
            if (lane, progress_of(end), progress_of(part.start)) not in skipped:
                where, at = describe_position(part.start)
                _, before = describe_position(end)
                yield f"{source.source_id} {where}: it begins at {at}, the last ended at {before}"


def _accepted_gaps(source: SourcePlan) -> set[tuple[object, object, object]]:
    return {
        (lane_of(gap.lost.start), progress_of(gap.lost.start), progress_of(gap.lost.end))
        for gap in source.gaps
    }


def _breaks_after(plan: EpochPlan, output: EpochOutput) -> Iterator[str]:
    """Ranges that were not read to their end."""
    stands = {source.source_id: source.positions for source in output.sources}
    for source in plan.sources:
        reached = {lane_of(each): each for each in stands.get(source.source_id, ())}
        for part in source.ranges:
            where, wanted = describe_position(part.end)
            end = reached.get(lane_of(part.end))
            if end is None:
                yield f"{source.source_id} {where}: it was planned, and there is no position of it"
            elif progress_of(end) != progress_of(part.end):
                _, at = describe_position(end)
                yield f"{source.source_id} {where}: it ends at {at}, planned was {wanted}"
