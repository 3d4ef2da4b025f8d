"""Upkeep: changes of a pipeline's state that are not caused by records, such as a rescale.

Each is an epoch like any other, whose plan has empty ranges and names the change instead. So it is
planned, computed, gated, committed and collected by the same steps, and a crash, a race or an
unavailable sink needs no second mechanism. See docs/adr/0022.
"""

from __future__ import annotations

from typing import Annotated, assert_never

from msgspec import Meta

from laminar_dagster.core.document import Record, Sha256
from laminar_dagster.core.ids import BranchName, CheckpointId

Buckets = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class Rescale(Record, frozen=True, kw_only=True, tag_field="type", tag="rescale"):
    """Spread the state of every operator over another number of buckets."""

    buckets_before: Buckets
    buckets_after: Buckets


class Promotion(Record, frozen=True, kw_only=True, tag_field="type", tag="promotion"):
    """Take over the state of a branch as it is in one of the branch's checkpoints.

    Attributes:
        checkpoint_id: The checkpoint of the branch.
        manifest_checksum: The checksum of its manifest, so that a damaged one is noticed.
        record_checksum: The checksum of the branch's record, because two branches may have the
            same name and checkpoint. None in plans from before this field.
    """

    branch: BranchName
    checkpoint_id: CheckpointId
    manifest_checksum: Sha256
    record_checksum: Sha256 | None = None


Upkeep = Rescale | Promotion


def describe_upkeep(upkeep: Upkeep) -> str:
    """What is done, in words."""
    match upkeep:
        case Rescale():
            before, after = upkeep.buckets_before, upkeep.buckets_after
            return f"rescale from {before} to {after} bucket{'' if after == 1 else 's'}"
        case Promotion():
            return f"promotion of branch {upkeep.branch}, checkpoint {upkeep.checkpoint_id}"
        case _:
            assert_never(upkeep)
