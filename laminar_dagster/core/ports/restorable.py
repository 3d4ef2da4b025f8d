"""What takes an operator's state back."""

from __future__ import annotations

from typing import Protocol

from laminar_dagster.core.ids import OperatorId, PartitionId


class Restorable(Protocol):
    """Is given the files of an operator's state, every one checked against its hash.

    For each partition: the full snapshot, then the deltas in the order of their epochs, then
    ``complete``. Partitions come side by side from several threads, the files of one partition
    from one thread at a time. After damage was repaired, a partition is begun again: ``restore``
    replaces whatever there was of it.

    Every method raises ``RestoreFailed`` when the bytes are no state of the operator.
    """

    @property
    def operator_id(self) -> OperatorId:
        """Whose state it is."""
        ...

    def restore(self, partition: PartitionId, data: bytes) -> None:
        """Begin a partition with its full snapshot."""
        ...

    def apply_delta(self, partition: PartitionId, data: bytes) -> None:
        """Add what one later epoch changed."""
        ...

    def complete(self, partition: PartitionId) -> int | None:
        """Nothing more comes for a partition.

        Returns:
            How many rows it has; None for a state that has no rows.
        """
        ...
