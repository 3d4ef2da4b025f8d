"""Somebody beside the store who remembers which checkpoint was the newest."""

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
    """Knows committed checkpoints, perhaps not the newest, and never one that was not committed.

    The store is the truth. An index is a witness: it shows that a store has lost its newest
    checkpoints, or was set back to an older copy of itself.
    """

    @property
    def name(self) -> str:
        """What to call it in a message."""
        ...

    def newest(self) -> RecordedCheckpoint | None:
        """The newest it knows of; None when it knows none."""
        ...
