"""How a recovery is to be carried out."""

from __future__ import annotations

from dataclasses import dataclass

from laminar_dagster.core.ids import OperatorId, PartitionId


@dataclass(frozen=True, slots=True)
class PartitionAssignment:
    """The partitions of one operator that are to be restored here."""

    operator_id: OperatorId
    partition_ids: tuple[PartitionId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryConfig:
    """Limits of a recovery. Checksums are always verified; no setting turns that off.

    Attributes:
        max_fallback_attempts: By how many epochs the checkpoint from which lost files are computed
            again may be behind the newest; None for as far as plans and sources reach.
        recovery_timeout: The limit of the whole recovery, in seconds.
        progress_report_interval: The shortest time between two progress reports, in seconds.
        assigned_partitions: What to restore; None for everything.
        allow_operator_mismatch: Whether a checkpoint may have other operators, or sources, than
            the pipeline has.
    """

    max_fallback_attempts: int | None = None
    recovery_timeout: float = 300.0
    progress_report_interval: float = 5.0
    assigned_partitions: tuple[PartitionAssignment, ...] | None = None
    allow_operator_mismatch: bool = False

    def __post_init__(self) -> None:
        """Refuse limits that allow nothing."""
        if self.max_fallback_attempts is not None and self.max_fallback_attempts < 0:
            raise ValueError("`max_fallback_attempts` must not be negative")
        if self.recovery_timeout <= 0:
            raise ValueError("`recovery_timeout` must be more than 0")
        if self.progress_report_interval < 0:
            raise ValueError("`progress_report_interval` must not be negative")

    def is_assigned(self, operator: OperatorId, partition: PartitionId) -> bool:
        """Whether a partition is to be restored here."""
        if self.assigned_partitions is None:
            return True
        return any(
            each.operator_id == operator and partition in each.partition_ids
            for each in self.assigned_partitions
        )
