"""The port through which recovery restores an operator's state."""

from __future__ import annotations

from typing import Protocol

from laminar_dagster.core.ids import OperatorId, PartitionId


class Restorable(Protocol):
    """Receives the files of an operator's state, each already checked against its hash.

    For each partition: the full snapshot, then the deltas in the order of their epochs, then
    ``complete``. Partitions come in parallel from several threads, the files of one partition
    from one thread at a time. After a repair a partition starts over: ``restore`` replaces
    everything there was of it.

    Every method raises ``RestoreFailed`` when the bytes are not state of the operator.
    """

    @property
    def operator_id(self) -> OperatorId:
        """The operator that the state belongs to."""
        ...

    def restore(self, partition: PartitionId, data: bytes) -> None:
        """Begin a partition with its full snapshot."""
        ...

    def apply_delta(self, partition: PartitionId, data: bytes) -> None:
        """Apply the changes of one later epoch."""
        ...

    def complete(self, partition: PartitionId) -> int | None:
        """Finish a partition after its last file.

        Returns:
            The number of its rows; None for a state that has no rows.
        """
        ...
