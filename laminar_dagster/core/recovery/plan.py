"""What restoring a checkpoint takes."""

from __future__ import annotations

from laminar_dagster.core import layout
from laminar_dagster.core.document import Natural, Record, Sha256
from laminar_dagster.core.ids import EpochNumber, OperatorId, PartitionId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.offsets import SourceOffset


class OperatorSnapshotRef(Record, frozen=True, kw_only=True):
    """A state file to restore, by its key."""

    operator_id: OperatorId
    partition_id: PartitionId
    key: str
    size_bytes: Natural
    sha256: Sha256
    epoch: EpochNumber
    is_incremental: bool


class RecoveryPlan(Record, frozen=True, kw_only=True):
    """What restoring a checkpoint takes: files to load, in order, and positions to seek to."""

    manifest: CheckpointManifest
    source_offsets: tuple[SourceOffset, ...]
    operator_snapshots: tuple[OperatorSnapshotRef, ...]

    @classmethod
    def from_manifest(cls, manifest: CheckpointManifest) -> RecoveryPlan:
        """Build the plan, after checking the manifest.

        Raises:
            InvalidManifest, DeltaWithoutBase, UnsupportedVersion: It must not be restored.
        """
        manifest.validate()
        return cls(
            manifest=manifest,
            source_offsets=tuple(
                SourceOffset(source_id=entry.source_id, position=position)
                for entry in manifest.sources
                for position in entry.positions
            ),
            operator_snapshots=tuple(
                OperatorSnapshotRef(
                    operator_id=entry.operator_id,
                    partition_id=part.partition_id,
                    key=layout.checkpoint_key(
                        manifest.origin_of(part).checkpoint_id,
                        part.path,
                    ),
                    size_bytes=part.size_bytes,
                    sha256=part.sha256,
                    epoch=manifest.origin_of(part).epoch,
                    is_incremental=part.is_incremental,
                )
                for entry in manifest.operators
                for part in entry.partitions
            ),
        )

    @property
    def total_bytes(self) -> int:
        """How much there is to load."""
        return sum(snapshot.size_bytes for snapshot in self.operator_snapshots)
