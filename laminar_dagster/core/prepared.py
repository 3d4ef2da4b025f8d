"""The small documents around a manifest: the attempt, the winner, and the latest pointer."""

from __future__ import annotations

from laminar_dagster.core.document import (
    FORMAT_VERSION,
    Document,
    Sha256,
    Timestamp,
    checksum,
    require_utc,
)
from laminar_dagster.core.ids import CheckpointId, EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.plan import EpochPlan, ParentCheckpoint


class AttemptRecord(Document, frozen=True, kw_only=True):
    """The first object of an attempt. Tells the collector which epoch the folder is for.

    Age alone cannot tell a dead attempt from a slow one; but once its epoch is decided, a slow one
    can no longer win either.
    """

    epoch: EpochNumber
    checkpoint_id: CheckpointId
    started_at: Timestamp

    def __post_init__(self) -> None:
        """Refuse a time that has more than one spelling."""
        require_utc("started_at", self.started_at)


class Prepared(Document, frozen=True, kw_only=True):
    """Names an epoch's winning attempt, and holds its manifest whole.

    Because it contains the manifest, any process that finds this record can finish the epoch, and
    all of them write the same bytes.

    Attributes:
        plan: A second copy of the plan that was carried out; None in a record of an older release,
            or one that recovery restored when the plan was lost as well.
    """

    epoch: EpochNumber
    checkpoint_id: CheckpointId
    manifest: CheckpointManifest
    plan: EpochPlan | None = None

    def __post_init__(self) -> None:
        """Refuse a manifest of another epoch, attempt or plan."""
        if self.manifest.epoch != self.epoch:
            raise ValueError("the manifest belongs to another epoch")
        if self.manifest.checkpoint_id != self.checkpoint_id:
            raise ValueError("the manifest belongs to another attempt")
        if self.plan and checksum(self.plan) != self.manifest.plan_checksum:
            raise ValueError("the plan is not the one that was carried out")

    @classmethod
    def of(cls, manifest: CheckpointManifest, plan: EpochPlan | None = None) -> Prepared:
        """The record that makes an attempt the winner."""
        return cls(
            version=FORMAT_VERSION,
            epoch=manifest.epoch,
            checkpoint_id=manifest.checkpoint_id,
            manifest=manifest,
            plan=plan,
        )


class LatestPointer(Document, frozen=True, kw_only=True):
    """The newest checkpoint that every sink has confirmed. Never moves back."""

    epoch: EpochNumber
    checkpoint_id: CheckpointId
    manifest_checksum: Sha256

    @classmethod
    def to(cls, manifest: CheckpointManifest) -> LatestPointer:
        """The pointer to a checkpoint."""
        return cls(
            version=FORMAT_VERSION,
            epoch=manifest.epoch,
            checkpoint_id=manifest.checkpoint_id,
            manifest_checksum=checksum(manifest),
        )

    def as_parent(self) -> ParentCheckpoint:
        """The same checkpoint, as a plan names it."""
        return ParentCheckpoint(
            checkpoint_id=self.checkpoint_id,
            epoch=self.epoch,
            manifest_checksum=self.manifest_checksum,
        )
