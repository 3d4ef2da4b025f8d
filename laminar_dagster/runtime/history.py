"""The epochs of a store: which there are, how far each is, and which checkpoint an epoch has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from laminar_dagster.config.mistakes import listed, nearest
from laminar_dagster.core import layout
from laminar_dagster.core.errors import EpochWithoutCheckpoint, IntegrityError, UnknownOperator
from laminar_dagster.core.ids import GENESIS, CheckpointId, EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.prepared import LatestPointer
from laminar_dagster.core.recovery import FoundEpoch
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.survey import find_epoch

EpochState = Literal["done", "collected", "committed", "prepared", "planned"]


@dataclass(frozen=True, slots=True)
class PastEpoch:
    """An epoch that has begun.

    Attributes:
        state: ``done`` when every sink has confirmed it, ``collected`` when also its checkpoint is
            gone; before that how far it came.
    """

    found: FoundEpoch
    state: EpochState
    is_latest: bool

    @property
    def epoch(self) -> EpochNumber:
        """Its number."""
        return self.found.epoch

    @property
    def is_unfinished(self) -> bool:
        """Whether some run still has to do something for it."""
        return self.state in ("committed", "prepared", "planned")

    @property
    def manifest(self) -> CheckpointManifest | None:
        """Its manifest; of a collected epoch as the record of the winner still has it."""
        if self.found.manifest:
            return self.found.manifest
        return self.found.prepared.manifest if self.found.prepared else None


def epoch_numbers(checkpoints: CheckpointStore) -> list[EpochNumber]:
    """Every epoch that has begun, newest first."""
    keys = (layout.parse_epoch_key(each.key) for each in checkpoints.objects.list(layout.EPOCHS))
    return sorted({key.epoch for key in keys if key}, reverse=True)


def confirmed_epoch(checkpoints: CheckpointStore) -> LatestPointer | None:
    """The pointer to the latest checkpoint; None when there is none that can be read."""
    try:
        return checkpoints.latest()
    except IntegrityError:
        return None


def read_epoch(
    checkpoints: CheckpointStore, epoch: EpochNumber, latest: LatestPointer | None
) -> PastEpoch | None:
    """The documents of an epoch, and how far it is; None for one that has not begun.

    Raises:
        IntegrityError: One of them is damaged.
    """
    found = find_epoch(checkpoints, epoch)
    if not found.planned:
        return None
    is_latest = latest is not None and latest.epoch == epoch
    return PastEpoch(found, _state(found, latest.epoch if latest else GENESIS), is_latest)


def find_epoch_checkpoint(checkpoints: CheckpointStore, epoch: EpochNumber) -> CheckpointId:
    """The id of the attempt that won an epoch. It need not have a manifest.

    Raises:
        EpochWithoutCheckpoint: Nobody has won it.
        IntegrityError: The record of the winner is damaged, and no manifest is the epoch's.
    """
    try:
        prepared = checkpoints.prepared(epoch)
    except IntegrityError:
        for candidate in checkpoints.candidates():
            found = candidate.manifest
            if isinstance(found, CheckpointManifest) and found.epoch == epoch:
                return candidate.checkpoint_id
        raise
    if prepared is None:
        raise EpochWithoutCheckpoint(epoch, "it has not begun, or is not computed yet")
    return prepared.checkpoint_id


def epoch_manifest(checkpoints: CheckpointStore, epoch: EpochNumber) -> CheckpointManifest:
    """The manifest of a committed epoch.

    Raises:
        EpochWithoutCheckpoint: It has none, or none any more.
        IntegrityError: It is damaged.
    """
    manifest = checkpoints.manifest(find_epoch_checkpoint(checkpoints, epoch))
    if manifest is None:
        raise without_checkpoint(checkpoints, epoch)
    return manifest


def without_checkpoint(checkpoints: CheckpointStore, epoch: EpochNumber) -> EpochWithoutCheckpoint:
    """Why an epoch that has a winner has no manifest."""
    pointer = checkpoints.latest()
    is_past = pointer is not None and pointer.epoch >= epoch
    reason = "it has been collected" if is_past else "it is prepared and not committed yet"
    return EpochWithoutCheckpoint(epoch, reason)


def unknown_operator(manifest: CheckpointManifest, operator: str) -> UnknownOperator:
    """The error for an operator that a checkpoint holds no state of, with the nearest name."""
    names = [str(each.operator_id) for each in manifest.operators]
    suggestion = nearest(operator, names, listed(names, "operators with state"))
    return UnknownOperator(operator[:80], int(manifest.epoch), suggestion)


def _state(found: FoundEpoch, confirmed: EpochNumber) -> EpochState:
    if found.epoch <= confirmed:
        return "done" if found.manifest else "collected"
    if found.manifest:
        return "committed"
    return "prepared" if found.prepared else "planned"
