"""What may be deleted: decided by what the retained manifests reach, never by age alone.

Retained are the newest checkpoints, found by walking back from the newest manifest, and every
epoch that is not finished. Of everything else,

* an expired checkpoint goes at once, except the files that a retained manifest still names;
* an attempt without a manifest goes when its epoch is decided (so it can never win) and it is
  older than the grace period (so its writer does not trip over missing files);
* ``prepared.json`` of every epoch stays for good. It is what stops a process that was paused for
  a week from deciding an old epoch a second time;
* what is not ours is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from laminar_dagster.core import layout
from laminar_dagster.core.ids import CheckpointId, EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.ports import ObjectInfo


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a look at the store found.

    Attributes:
        retained: Manifests to keep, of the newest checkpoints and of all unfinished epochs.
        undecided: Winners that are prepared and have no manifest yet.
        attempts: The epoch of each attempt that has no manifest.
        decided: The newest epoch that has a winner.
        objects: A listing of the store; may be stale.
    """

    retained: tuple[CheckpointManifest, ...]
    undecided: frozenset[CheckpointId]
    attempts: Mapping[CheckpointId, EpochNumber]
    decided: EpochNumber
    objects: Iterable[ObjectInfo]


@dataclass(frozen=True, slots=True)
class Garbage:
    """What to delete, in an order that a crash in the middle leaves consistent.

    Manifests go first: from then on the checkpoint does not exist, and a later run finds the rest.
    The records of attempts go last: without one, a folder is a stranger's.
    """

    manifests: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    attempts: tuple[str, ...] = ()
    size_bytes: int = 0
    strangers: tuple[str, ...] = field(default=(), compare=False)

    @property
    def keys(self) -> tuple[str, ...]:
        """Everything, in order."""
        return self.manifests + self.files + self.attempts


def find_garbage(holdings: Holdings, now: datetime, grace: timedelta) -> Garbage:
    """Decide what may go. Pure; deleting the answer twice, or half of it, is harmless."""
    reachable = _reachable(holdings.retained)
    kept = {manifest.checkpoint_id for manifest in holdings.retained} | holdings.undecided
    oldest = min((manifest.epoch for manifest in holdings.retained), default=None)

    manifests: list[str] = []
    files: list[str] = []
    attempts: list[str] = []
    strangers: list[str] = []
    size = 0

    objects = list(holdings.objects)
    expired = _expired_checkpoints(objects, kept)
    for info in objects:
        epoch_key = layout.parse_epoch_key(info.key)
        if epoch_key:
            # Without a retained checkpoint nothing is known to be old.
            if epoch_key.is_plan and oldest is not None and epoch_key.epoch < oldest:
                files.append(info.key)
                size += info.size
            continue
        parsed = layout.parse_checkpoint_key(info.key)
        if not parsed:
            if info.key != layout.LATEST:
                strangers.append(info.key)
            continue
        checkpoint, path = parsed
        if checkpoint in kept or info.key in reachable:
            continue
        if checkpoint not in expired:
            epoch = holdings.attempts.get(checkpoint)
            if epoch is None:
                strangers.append(info.key)
                continue
            if epoch > holdings.decided or now - info.modified < grace:
                continue
        size += info.size
        if layout.is_manifest_path(path):
            manifests.append(info.key)
        elif layout.is_attempt_path(path):
            attempts.append(info.key)
        else:
            files.append(info.key)
    return Garbage(
        manifests=tuple(manifests),
        files=tuple(files),
        attempts=_without_reachable_files(attempts, reachable),
        size_bytes=size,
        strangers=tuple(strangers),
    )


def _reachable(retained: Iterable[CheckpointManifest]) -> frozenset[str]:
    return frozenset(key for manifest in retained for key, _, _ in manifest.files())


def _expired_checkpoints(
    objects: Iterable[ObjectInfo], kept: set[CheckpointId]
) -> frozenset[CheckpointId]:
    """Checkpoints that have a manifest and are not kept."""
    found = set()
    for info in objects:
        parsed = layout.parse_checkpoint_key(info.key)
        if parsed and layout.is_manifest_path(parsed[1]) and parsed[0] not in kept:
            found.add(parsed[0])
    return frozenset(found)


def _without_reachable_files(attempts: Iterable[str], reachable: frozenset[str]) -> tuple[str, ...]:
    """Keep the record of an attempt whose folder still holds a file in use.

    Once that file is no longer reached, the record says that the rest may go.
    """
    in_use = {key.split("/")[1] for key in reachable}
    return tuple(key for key in attempts if key.split("/")[1] not in in_use)
