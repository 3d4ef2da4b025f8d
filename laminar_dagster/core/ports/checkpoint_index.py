"""An index outside the store that remembers which checkpoint was the newest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from laminar_dagster.core.ids import CheckpointId, EpochNumber


@dataclass(frozen=True, slots=True)
class RecordedCheckpoint:
    """A committed checkpoint, as an index knows it."""

    epoch: EpochNumber
    checkpoint_id: CheckpointId


class CheckpointIndex(Protocol):
    """Records committed checkpoints: it may lag behind, but never has one that was not committed.

    The store is the source of truth. The index is a witness: by it one notices that a store has
    lost its newest checkpoints, or was restored from an older copy of itself.
    """

    @property
    def name(self) -> str:
        """Its name in messages."""
        ...

    def newest(self) -> RecordedCheckpoint | None:
        """The newest recorded checkpoint; None without any."""
        ...
