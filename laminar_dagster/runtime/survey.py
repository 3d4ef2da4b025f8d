"""Finds out how far a pipeline is from the documents in its store, key by key.

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
        ObjectMissing: ``_latest`` names a checkpoint that was collected, so the pointer is stale,
            such as one from a backup: the epochs after it may all be finished.
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
    """The epochs after the confirmed one that have a plan, up to the first without a manifest."""
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
    """The error if the manifest that ``_latest`` names is gone, and the next epoch lacks one, too.

    The newest checkpoint is always retained, so a pointer without it is stale. Only the manifest of
    a next epoch shows that later ones were not collected: prepared records are kept for ever.
    """
    if latest is None or not epochs or epochs[0].manifest:
        # Without a begun epoch, planning the next one reads the manifest, and finds it missing.
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
        ObjectMissing, InvalidManifest: ``_latest`` points at a checkpoint that is gone, or
            damaged.
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
    """The newest epoch that is known to be confirmed, without ``_latest``.

    Only confirmed checkpoints are ever collected: every epoch before the oldest is confirmed.
    """
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
