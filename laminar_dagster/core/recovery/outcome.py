"""What a recovery reports: its progress, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from laminar_dagster.core.ids import CheckpointId, EpochNumber, OperatorId, PartitionId, SourceId
from laminar_dagster.core.offsets import SourcePosition
from laminar_dagster.core.protocol import Step
from laminar_dagster.core.recovery.damage import Damage, Repair


class RecoveryPhase(StrEnum):
    """The phases of a recovery, in order; rebuilding happens only after damage."""

    READING_MANIFEST = "reading_manifest"
    DOWNLOADING_SNAPSHOTS = "downloading_snapshots"
    RESTORING_STATE = "restoring_state"
    SEEKING_SOURCES = "seeking_sources"
    REBUILDING = "rebuilding"
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryProgress:
    """How far a recovery is.

    Attributes:
        progress: From 0 to 1; never decreases.
        estimated_remaining: Seconds, by the throughput up to now; None while it is unknown.
        total_bytes: The bytes to read, as far as they are known.
    """

    phase: RecoveryPhase
    progress: float
    estimated_remaining: float | None
    bytes_downloaded: int
    total_bytes: int
    operators_restored: int
    total_operators: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRecoveryResult:
    """What was restored of one operator.

    Attributes:
        rows: The rows of its state, as far as they are known; None where the state has no rows.
        restore_duration: Seconds of work, summed over partitions that were restored side by side.
    """

    operator_id: OperatorId
    partitions_restored: tuple[PartitionId, ...]
    bytes_restored: int
    restore_duration: float
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class UnfinishedEpoch:
    """An epoch that some run still has to finish, and what the run does first."""

    epoch: EpochNumber
    next_step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryResult:
    """How a recovery ended well.

    Attributes:
        checkpoint_id: The checkpoint that was restored; None when no epoch is committed yet.
        epoch: The epoch of that checkpoint; 0 when there is none.
        source_offsets: Where each source goes on. All of these positions can still be read.
        recovery_duration: In seconds.
        fallback_attempts: By how many epochs the checkpoint from which lost files were computed
            again is behind the newest; 0 if no file was.
        repairs: What was repaired, or in a dry run would be.
        not_repaired: Damaged objects that are not needed to go on, and were left as they are.
        unfinished: Epochs that the next run finishes, the oldest first.
        is_dry_run: Whether nothing was changed.
    """

    checkpoint_id: CheckpointId | None
    epoch: EpochNumber
    source_offsets: Mapping[SourceId, tuple[SourcePosition, ...]]
    operator_results: tuple[OperatorRecoveryResult, ...]
    recovery_duration: float
    bytes_downloaded: int
    fallback_attempts: int = 0
    repairs: tuple[Repair, ...] = ()
    not_repaired: tuple[Damage, ...] = ()
    unfinished: tuple[UnfinishedEpoch, ...] = ()
    is_dry_run: bool = False
