"""Garbage collection of a store: removes what ``core.garbage`` finds to be unreachable."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import Final

from laminar_dagster.config.pipeline import RetentionConfig
from laminar_dagster.core import layout
from laminar_dagster.core.garbage import Garbage, Holdings, find_garbage, is_young_letter
from laminar_dagster.core.ids import CheckpointId, EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.ports import ObjectInfo
from laminar_dagster.core.recovery import Standing
from laminar_dagster.runtime.branches.records import held_since
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.snapshots import finished_snapshots
from laminar_dagster.runtime.survey import newest_manifest, survey

_BATCH: Final = 1000


@dataclass(frozen=True, slots=True)
class Retention:
    """How much history garbage collection keeps.

    Attributes:
        checkpoints: How many of the newest finished checkpoints to keep.
        grace: How long to keep attempts that lost.
        dead_letters: How long to keep dead letters, even of checkpoints that are collected.
    """

    checkpoints: int = 10
    grace: timedelta = timedelta(hours=1)
    dead_letters: timedelta = timedelta(days=7)

    @classmethod
    def of(cls, config: RetentionConfig) -> Retention:
        """The retention that a pipeline's configuration asks for."""
        return cls(config.checkpoints, config.grace_period, config.letters_period)

    def __post_init__(self) -> None:
        """Refuse to keep nothing."""
        if self.checkpoints < 1:
            raise ValueError("at least one checkpoint must be kept")


@dataclass(frozen=True, slots=True)
class Collection:
    """What a garbage collection removed, or would remove in a dry run."""

    garbage: Garbage
    retained: tuple[CheckpointManifest, ...]
    swept: int


def collect(
    checkpoints: CheckpointStore,
    retention: Retention,
    now: datetime,
    *,
    dry_run: bool = False,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Collection:
    """Remove objects that no retained checkpoint, unfinished epoch or branch reaches.

    Safe beside writers, other collectors and stale listings: what is kept is read key by key, and
    the listing only says what there is to delete.

    Raises:
        IntegrityError: A manifest that is to be kept is damaged, or the record of a branch or of a
            snapshot, so what it reaches is not known. Nothing is removed.
    """
    # Listed first: a checkpoint committed meanwhile is then either retained or not in the listing.
    objects = list(
        chain(
            checkpoints.objects.list(layout.CHECKPOINTS),
            checkpoints.objects.list(layout.EPOCHS),
            checkpoints.objects.list(layout.SNAPSHOTS),
            checkpoints.objects.list(layout.REFERENCES),
        )
    )
    standing = survey(checkpoints)
    # Read after the listing. A branch made later than this fails to copy or replay what is gone.
    held = held_since(checkpoints.objects)
    retained = _retained(checkpoints, standing, retention.checkpoints, held)
    garbage = find_garbage(
        Holdings(
            retained=retained,
            undecided=_prepared_only(standing),
            attempts=checkpoints.attempts(_folders(objects, now, retention.dead_letters)),
            decided=_decided(standing),
            objects=objects,
            snapshots=finished_snapshots(checkpoints.objects, objects),
            pinned=_pinned_only(standing),
        ),
        now,
        retention.grace,
        retention.dead_letters,
    )
    if dry_run:
        return Collection(garbage, retained, swept=0)
    keys = garbage.keys
    for start in range(0, len(keys), _BATCH):
        checkpoints.objects.delete(keys[start : start + _BATCH])
        progress(min(start + _BATCH, len(keys)), len(keys))
    return Collection(garbage, retained, checkpoints.objects.sweep(now - retention.grace))


def _retained(
    checkpoints: CheckpointStore, standing: Standing, count: int, held: EpochNumber | None
) -> tuple[CheckpointManifest, ...]:
    """The unfinished checkpoints, and the newest finished ones, by walking back from the newest.

    Checkpoints from epoch ``held`` on are kept beyond the count: a branch may need them.
    """
    manifest = newest_manifest(checkpoints, standing)
    kept: list[CheckpointManifest] = []
    finished = 0
    while manifest:
        finished += manifest.epoch <= standing.confirmed
        if finished > count and (held is None or manifest.epoch < held):
            break
        kept.append(manifest)
        above = manifest.previous_checkpoint_id
        # A predecessor that is gone was collected earlier, under a smaller retention.
        manifest = checkpoints.manifest(above) if above else None
    return tuple(kept)


def _prepared_only(standing: Standing) -> frozenset[CheckpointId]:
    return frozenset(
        found.prepared.checkpoint_id
        for found in standing.epochs
        if found.prepared and not found.manifest
    )


def _pinned_only(standing: Standing) -> frozenset[CheckpointId]:
    """The copies of reference tables that prepared epochs name."""
    return frozenset(
        pin.copy_id
        for found in standing.epochs
        if found.prepared
        for pin in found.prepared.manifest.references
    )


def _decided(standing: Standing) -> EpochNumber:
    winners = [found.epoch for found in standing.epochs if found.prepared]
    return max(winners, default=standing.confirmed)


def _folders(
    objects: list[ObjectInfo], now: datetime, letters: timedelta
) -> Iterator[CheckpointId]:
    """Folders that may hold garbage: all but those with only young dead letters left."""
    found: defaultdict[CheckpointId, bool] = defaultdict(bool)
    has_letters: set[CheckpointId] = set()
    for info in objects:
        parsed = layout.parse_checkpoint_key(info.key)
        if not parsed:
            continue
        if is_young_letter(info, now, letters):
            has_letters.add(parsed[0])
        found[parsed[0]] |= not (
            layout.is_attempt_path(parsed[1]) or layout.is_letter_path(parsed[1])
        )
    for folder, has_more in found.items():
        if has_more or folder not in has_letters:
            yield folder
