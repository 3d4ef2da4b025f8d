"""How far a pipeline is: reads what the store holds, key by key.

The way forward never depends on a listing, which may be stale: from ``_latest`` on, each epoch
names its winner, and the winner's manifest is there or not. Only when the pointer is missing or
damaged are the checkpoints listed.
"""

from __future__ import annotations

from laminar_dagster.core import layout
from laminar_dagster.core.errors import (
    AllCheckpointsCorrupt,
    IntegrityError,
    InvalidManifest,
    NoCheckpointAvailable,
    ObjectMissing,
    UnsupportedVersion,
)
from laminar_dagster.core.ids import GENESIS, EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.prepared import LatestPointer
from laminar_dagster.core.recovery import FoundEpoch, Standing
from laminar_dagster.runtime.checkpoints import CheckpointStore


def survey(checkpoints: CheckpointStore) -> Standing:
    """Find out how far the pipeline is.

    Raises:
        ObjectMissing: ``_latest`` leads to a checkpoint that was collected, so it is an old copy of
            itself: the epochs after it may all be finished.
        UnsupportedVersion: A newer release has written the pointer.
        IntegrityError: A document that is needed to go on is damaged; recover first.
    """
    latest = _readable_latest(checkpoints)
    while True:
        confirmed = latest.epoch if latest else _confirmed_without_pointer(checkpoints)
        epochs = _epochs_after(checkpoints, confirmed)
        lost = _lost_manifest(checkpoints, latest, epochs)
        if lost is None:
            return Standing(confirmed, epochs, latest)
        # Other processes may have moved the pointer since, and collected what it led to.
        before, latest = latest, _readable_latest(checkpoints)
        if latest == before:
            raise lost


def _epochs_after(checkpoints: CheckpointStore, confirmed: EpochNumber) -> tuple[FoundEpoch, ...]:
    """The epochs that have begun, up to the first without a manifest."""
    epochs = []
    epoch = confirmed.next()
    while True:
        found = find_epoch(checkpoints, epoch)
        if not found.planned:
            break
        epochs.append(found)
        if not found.manifest:
            break
        epoch = epoch.next()
    return tuple(epochs)


def _lost_manifest(
    checkpoints: CheckpointStore, latest: LatestPointer | None, epochs: tuple[FoundEpoch, ...]
) -> ObjectMissing | None:
    """The manifest that ``_latest`` names, if it is gone, and with it the way forward.

    It is always retained. Without it, only a successor that is there shows that the epochs after it
    were not collected as well: the records of their winners are kept for ever.
    """
    if latest is None or not epochs or epochs[0].manifest:
        # An epoch that has not begun is planned on the manifest itself.
        return None
    if checkpoints.manifest(latest.checkpoint_id):
        return None
    return ObjectMissing(layout.manifest_key(latest.checkpoint_id))


def find_epoch(checkpoints: CheckpointStore, epoch: EpochNumber) -> FoundEpoch:
    """The documents of one epoch.

    Raises:
        InvalidManifest: The manifest is not the one that was prepared.
    """
    prepared = checkpoints.prepared(epoch)
    if not prepared:
        planned = checkpoints.plan(epoch) is not None
        return FoundEpoch(epoch, planned=planned, prepared=None, manifest=None)
    manifest = checkpoints.manifest(prepared.checkpoint_id)
    if manifest and manifest != prepared.manifest:
        raise InvalidManifest(prepared.checkpoint_id, "it differs from the one that was prepared")
    return FoundEpoch(epoch, planned=True, prepared=prepared, manifest=manifest)


def newest_manifest(checkpoints: CheckpointStore, standing: Standing) -> CheckpointManifest | None:
    """The manifest the next epoch builds on; None before the first epoch.

    Raises:
        ObjectMissing, InvalidManifest: ``_latest`` points at a checkpoint that is not there, or
            not what it was.
        NoCheckpointAvailable: The pipeline is past its first epoch, and nothing can be found.
    """
    for found in reversed(standing.epochs):
        if found.manifest:
            return found.manifest
    if standing.latest:
        return checkpoints.parent(standing.latest.as_parent())
    if standing.confirmed > GENESIS:
        raise NoCheckpointAvailable(checkpoints.objects.url)
    return None


def _readable_latest(checkpoints: CheckpointStore) -> LatestPointer | None:
    try:
        return checkpoints.latest()
    except UnsupportedVersion:
        # Not damage: a newer release wrote it, and may be further.
        raise
    except IntegrityError:
        return None


def _confirmed_without_pointer(checkpoints: CheckpointStore) -> EpochNumber:
    """Only confirmed checkpoints are ever collected, so what is before the oldest is confirmed."""
    manifests, damaged = [], []
    for candidate in checkpoints.candidates():
        if isinstance(candidate.manifest, CheckpointManifest):
            manifests.append(candidate.manifest)
        else:
            damaged.append(candidate.manifest)
    if manifests:
        return min(manifest.epoch for manifest in manifests).previous()
    if damaged:
        raise AllCheckpointsCorrupt(len(damaged), str(damaged[0]))
    second = GENESIS.next().next()
    if find_epoch(checkpoints, second).planned:
        # The second epoch builds on a checkpoint of the first, and there is none any more.
        raise NoCheckpointAvailable(checkpoints.objects.url)
    return GENESIS
