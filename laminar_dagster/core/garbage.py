"""What may be deleted: decided by what the retained manifests reach, never by age alone.

Retained are the newest checkpoints, found by walking back from the newest manifest, and every
epoch that is not finished. Of everything else,

* an expired checkpoint goes at once, except the files that a retained manifest still names;
* an attempt without a manifest goes when its epoch is decided (so it can never win) and it is
  older than the grace period (so its writer does not trip over missing files);
* dead letters have a retention of their own, because people have to look at them;
* the files of a source's snapshot go when every retained checkpoint is past its end; drafts of one
  go like attempts: when another was finished and they are older than the grace period;
* the copies of reference tables that plans have pinned go when no retained manifest names them;
  one that no plan has named goes as attempts do: when its epoch is decided and it is older than
  the grace period;
* ``prepared.json`` of every epoch stays for good. It is what stops a process that was paused for
  a week from deciding an old epoch a second time;
* objects that this package did not write are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from laminar_dagster.core import layout
from laminar_dagster.core.ids import GENESIS, CheckpointId, EpochNumber, SourceId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.ports import ObjectInfo
from laminar_dagster.core.snapshot import SourceSnapshot

FIRST_EPOCH: Final = GENESIS.next()


@dataclass(frozen=True, slots=True)
class Holdings:
    """What the store holds. The listing is made first, everything else is read after it.

    Attributes:
        retained: Manifests to keep, of the newest checkpoints and of all unfinished epochs.
        undecided: Winners that are prepared and have no manifest yet.
        pinned: The copies of reference tables that these winners' manifests will name.
        attempts: The epoch of each checkpoint folder, from the record of its attempt.
        decided: The newest epoch that has a winner.
        snapshots: The finished snapshots of all sources.
        objects: A listing of the store; may be stale, and may name an object twice.
    """

    retained: tuple[CheckpointManifest, ...]
    undecided: frozenset[CheckpointId]
    attempts: Mapping[CheckpointId, EpochNumber]
    decided: EpochNumber
    objects: Iterable[ObjectInfo]
    snapshots: tuple[SourceSnapshot, ...] = ()
    pinned: frozenset[CheckpointId] = frozenset()


@dataclass(frozen=True, slots=True)
class Garbage:
    """What to delete, in an order in which a crash in the middle leaves a consistent store.

    Manifests go first: from then on the checkpoint does not exist, and a later run finds the rest.
    The records of attempts go last: a folder without one is taken for somebody else's, and kept.
    """

    manifests: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    attempts: tuple[str, ...] = ()
    size_bytes: int = 0
    strangers: tuple[str, ...] = field(default=(), compare=False)

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys, in the order of deletion."""
        return self.manifests + self.files + self.attempts


def find_garbage(
    holdings: Holdings, now: datetime, grace: timedelta, letters: timedelta = timedelta(0)
) -> Garbage:
    """Decide what may be deleted. Pure; deleting it twice, or only half of it, is harmless.

    Args:
        holdings: What the store holds.
        now: The time.
        grace: How long files of an attempt that lost are kept.
        letters: How long dead letters are kept.
    """
    sizes = {info.key: info.size for info in holdings.objects}
    folders = _Folders(holdings, now, grace, letters)
    copies = _Copies(holdings, now, grace)
    pins = _Pins(holdings, now, grace)
    manifests: list[str] = []
    files: list[str] = []
    attempts: list[str] = []
    strangers: list[str] = []
    for key in sizes:
        epoch_key = layout.parse_epoch_key(key)
        parsed = layout.parse_checkpoint_key(key)
        copy = layout.parse_snapshot_key(key)
        pin = layout.parse_reference_key(key)
        if copy:
            if copies.may_lose(copy):
                files.append(key)
        elif pin:
            if pins.may_lose(pin):
                files.append(key)
        elif epoch_key:
            if epoch_key.is_plan and folders.is_before_history(epoch_key.epoch):
                files.append(key)
        elif parsed and parsed[0] in folders.known:
            if not folders.may_lose(parsed[0], key):
                continue
            if layout.is_manifest_path(parsed[1]):
                manifests.append(key)
            elif not layout.is_attempt_path(parsed[1]):
                files.append(key)
            elif parsed[0] not in folders.in_use:
                # Deleted last: without it, the rest would be taken for somebody else's, and kept.
                attempts.append(key)
        elif key != layout.LATEST and not (parsed and parsed[0] in folders.in_use):
            strangers.append(key)
    return Garbage(
        manifests=tuple(manifests),
        files=tuple(files),
        attempts=tuple(attempts),
        size_bytes=sum(sizes[key] for key in (*manifests, *files, *attempts)),
        strangers=tuple(strangers),
    )


def is_young_letter(info: ObjectInfo, now: datetime, letters: timedelta) -> bool:
    """Whether an object is a dead letter within its retention."""
    parsed = layout.parse_checkpoint_key(info.key)
    return parsed is not None and layout.is_letter_path(parsed[1]) and now - info.modified < letters


class _Folders:
    """Which checkpoint folders may lose objects."""

    def __init__(
        self, holdings: Holdings, now: datetime, grace: timedelta, letters: timedelta
    ) -> None:
        epochs = [manifest.epoch for manifest in holdings.retained]
        # Without a retained checkpoint nothing counts as old.
        self._oldest = min(epochs, default=GENESIS)
        self._decided = holdings.decided
        self._reachable = {key for each in holdings.retained for key, _, _ in each.files()}
        self._kept = {each.checkpoint_id for each in holdings.retained} | holdings.undecided
        self._epochs = holdings.attempts
        self.known = self._kept | set(holdings.attempts)
        self._reachable |= {
            info.key for info in holdings.objects if is_young_letter(info, now, letters)
        }
        self.in_use = {CheckpointId(key.split("/")[1]) for key in self._reachable}
        self._complete: set[CheckpointId] = set()
        self._young: set[CheckpointId] = set()
        for info in holdings.objects:
            parsed = layout.parse_checkpoint_key(info.key)
            if parsed and layout.is_manifest_path(parsed[1]):
                self._complete.add(parsed[0])
            # A folder is as young as its youngest object: its writer may still be running.
            if parsed and now - info.modified < grace:
                self._young.add(parsed[0])

    def is_before_history(self, epoch: EpochNumber) -> bool:
        return epoch < self._oldest

    def may_lose(self, folder: CheckpointId, key: str) -> bool:
        if folder in self._kept or key in self._reachable:
            return False
        epoch = self._epochs[folder]
        if folder in self._complete:
            return self.is_before_history(epoch)
        return epoch <= self._decided and folder not in self._young


class _Copies:
    """Which files of snapshots may go."""

    def __init__(self, holdings: Holdings, now: datetime, grace: timedelta) -> None:
        self._retained = holdings.retained
        self._finished = {(each.source_id, each.number): each for each in holdings.snapshots}
        self._newest: dict[SourceId, int] = {}
        for each in holdings.snapshots:
            self._newest[each.source_id] = max(each.number, self._newest.get(each.source_id, 0))
        # A draft is as young as its youngest file: its writer may still be running.
        self._young = {
            parsed.draft
            for info in holdings.objects
            if now - info.modified < grace
            and (parsed := layout.parse_snapshot_key(info.key))
            and parsed.draft
        }

    def may_lose(self, key: layout.SnapshotKey) -> bool:
        if key.draft is None:
            return False
        found = self._finished.get((key.source, key.number))
        if found and found.draft_id == key.draft:
            return not self._is_needed(found)
        is_decided = key.number <= self._newest.get(key.source, 0)
        return is_decided and key.draft not in self._young

    def _is_needed(self, snapshot: SourceSnapshot) -> bool:
        """Whether an epoch after a retained checkpoint, or the first epoch, may read from it."""
        if not self._retained:
            return True
        return any(
            manifest.epoch == FIRST_EPOCH or not _has_passed(manifest, snapshot)
            for manifest in self._retained
        )


class _Pins:
    """Which copies of reference tables may go."""

    def __init__(self, holdings: Holdings, now: datetime, grace: timedelta) -> None:
        named = {pin.copy_id for manifest in holdings.retained for pin in manifest.references}
        self._named = named | holdings.pinned
        # A future plan can only name a copy that the newest checkpoint names, or one of its own
        # epoch. Both are kept, so plans need not be read here.
        self._decided = holdings.decided if holdings.retained else GENESIS
        # A copy is as young as its youngest file: its writer may still be running.
        self._young = {
            parsed.copy_id
            for info in holdings.objects
            if now - info.modified < grace and (parsed := layout.parse_reference_key(info.key))
        }

    def may_lose(self, key: layout.ReferenceKey) -> bool:
        if key.copy_id in self._named or key.epoch > self._decided:
            return False
        return key.copy_id not in self._young


def _has_passed(manifest: CheckpointManifest, snapshot: SourceSnapshot) -> bool:
    positions = [
        position
        for entry in manifest.sources
        if entry.source_id == snapshot.source_id
        for position in entry.positions
    ]
    return bool(positions) and all(map(snapshot.is_behind, positions))
