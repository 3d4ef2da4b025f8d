"""A branch: the epochs of a pipeline computed once more, by another version, into other places.

A branch begins at a checkpoint of its pipeline and carries out the plans that are stored there:
the same ranges, the same clock. What it writes lies below ``branches/{name}/`` in the pipeline's
store, in the layout of a store of its own. Its record holds its starting point and version, so that
continuing, comparing or promoting it needs nothing but the store. See docs/adr/0023.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import structs

from laminar_dagster.core.document import (
    Document,
    Natural,
    Record,
    Text,
    Timestamp,
    checksum,
    require_utc,
)
from laminar_dagster.core.ids import (
    GENESIS,
    BranchName,
    CheckpointId,
    EpochNumber,
    OperatorId,
    PipelineName,
    SinkId,
)
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.plan import EpochPlan, ParentCheckpoint, SinkPlan
from laminar_dagster.core.prepared import LatestPointer
from laminar_dagster.core.upkeep import Promotion

WriteMode = Literal["append", "upsert"]


class BranchWindow(Record, frozen=True, kw_only=True):
    """Proof that a sink writes a key only once: the key holds a window and all its grouping keys.

    Attributes:
        column: The column of the key that holds the window.
        is_end: Whether it holds the window's end, not its start.
    """

    operator_id: OperatorId
    column: Text
    size_micros: Natural
    is_end: bool = False


class BranchSink(Record, frozen=True, kw_only=True):
    """A sink of the pipeline, as far as its output can be corrected.

    Attributes:
        view: The view that it publishes.
        key: The columns that identify a row in upsert mode.
        window: Set where no key is ever written twice.
    """

    sink_id: SinkId
    view: OperatorId
    mode: WriteMode
    key: tuple[Text, ...] = ()
    window: BranchWindow | None = None

    def __post_init__(self) -> None:
        """Refuse a key in append mode, and a missing key in upsert mode."""
        if (self.mode == "upsert") != bool(self.key):
            raise ValueError(f"sink {self.sink_id} has a key if and only if its mode is upsert")


class BranchRecord(Document, frozen=True, kw_only=True):
    """The starting point and version of a branch. Written before anything else of it.

    Attributes:
        from_epoch: The last epoch that it shares with its pipeline; 0 when it shares none.
        start: The checkpoint of that epoch.
        fingerprint: The fingerprint of the version that computes the branch.
        sinks: The sinks of that version.
        dropped_at: Set when its removal began: it must not be used any more.
    """

    name: BranchName
    pipeline: PipelineName
    from_epoch: EpochNumber
    start: ParentCheckpoint | None
    fingerprint: Text
    created_at: Timestamp
    sinks: tuple[BranchSink, ...]
    dropped_at: Timestamp | None = None

    def __post_init__(self) -> None:
        """Refuse a record that contradicts itself."""
        require_utc("created_at", self.created_at)
        if self.dropped_at:
            require_utc("dropped_at", self.dropped_at)
        if (self.start.epoch if self.start else GENESIS) != self.from_epoch:
            raise ValueError(f"the branch starts from another checkpoint than {self.from_epoch}'s")
        if len({sink.sink_id for sink in self.sinks}) != len(self.sinks):
            raise ValueError("a sink is named twice")

    @property
    def pipeline_name(self) -> PipelineName:
        """The branch's name as a pipeline of its own: ``pipeline.branch``."""
        return PipelineName(f"{self.pipeline}.{self.name}")

    @property
    def identity(self) -> str:
        """A checksum that differs from every other branch's; ``dropped_at`` does not change it."""
        return checksum(structs.replace(self, dropped_at=None))

    def is_promoted_by(self, plan: EpochPlan, checkpoint_id: CheckpointId) -> bool:
        """Whether a plan of the pipeline takes over a checkpoint of this very branch.

        The checkpoint's id is not enough: branches that have replayed nothing all have the same
        checkpoint, the pipeline's own.
        """
        upkeep = plan.upkeep
        return (
            isinstance(upkeep, Promotion)
            and upkeep.checkpoint_id == checkpoint_id
            and upkeep.branch == self.name
            and plan.fingerprint == self.fingerprint
            and upkeep.record_checksum in (None, self.identity)
        )

    def mismatch(self, other: BranchRecord) -> str:
        """How another record of the same name differs from this one; empty if it does not."""
        if self.from_epoch != other.from_epoch:
            return f"was made from epoch {self.from_epoch}, not {other.from_epoch}"
        if self.start != other.start:
            return f"was made from another checkpoint of epoch {self.from_epoch}"
        return self.mismatch_with_version(other.fingerprint, other.sinks)

    def mismatch_with_version(self, fingerprint: str, sinks: Iterable[BranchSink]) -> str:
        """How a version of the pipeline differs from the branch's; empty if it does not."""
        if self.fingerprint != fingerprint:
            was, now = self.fingerprint[:12], fingerprint[:12]
            return f"is computed by version {was} of the pipeline, and this one is {now}"
        before = {each.sink_id: each for each in self.sinks}
        after = {each.sink_id: each for each in sinks}
        for name in sorted({*before, *after}):
            if name not in before:
                return f"was made when there was no sink {name}"
            if name not in after:
                return f"was made when there was a sink {name}"
            if before[name] != after[name]:
                return f"was made when sink {name} had another view, mode or key"
        return ""


def replayed_plan(
    stored: EpochPlan,
    record: BranchRecord,
    parent: CheckpointManifest | None,
    plan_id: CheckpointId,
) -> EpochPlan:
    """A stored plan as the branch carries it out: the same ranges, the same clock.

    The sinks of a branch are its own, and join in its first epoch.

    Args:
        stored: The pipeline's plan.
        record: The record of the branch.
        parent: The branch's checkpoint of the epoch before; None for the first epoch.
        plan_id: The id of the new plan, to tell it from another writer's.
    """
    return structs.replace(
        stored,
        plan_id=plan_id,
        pipeline=record.pipeline_name,
        fingerprint=record.fingerprint,
        parent=LatestPointer.to(parent).as_parent() if parent else None,
        # Upkeep of the pipeline's state, such as a rescale, does not apply to the branch's.
        upkeep=None,
        sinks=tuple(
            SinkPlan(sink_id=sink.sink_id, joined_at=record.from_epoch.next())
            for sink in record.sinks
        ),
    )
