"""Copies reference tables into the pipeline's store, for the plan to pin the copies."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from datetime import datetime

from msgspec import structs

from laminar_dagster.core.errors import PipelineChanged, ReferenceUnavailable, ReferenceUnfit
from laminar_dagster.core.ids import EpochNumber, FileName
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.ports import ObjectStore, Reference, ReferenceRows
from laminar_dagster.core.reference import ReferencePin
from laminar_dagster.core.snapshot import SnapshotFile
from laminar_dagster.runtime.checked_files import read_verified
from laminar_dagster.runtime.pipeline import Pipeline

log = logging.getLogger(__name__)


def pin_references(
    pipeline: Pipeline, epoch: EpochNumber, parent: CheckpointManifest | None, clock: datetime
) -> tuple[ReferencePin, ...]:
    """The pins of the next plan: the parent's copies, and new copies where tables have changed.

    New copies are written here. One that no plan comes to name is garbage, collected like an
    attempt that lost.

    Raises:
        ReferenceUnavailable: A table is unavailable, and no older copy may be used instead.
        ReferenceUnfit: A table is not what was declared; or it is never to be refreshed, its copy
            is lost, and its rows have changed since.
    """
    known = {pin.reference_id: pin for pin in (parent.references if parent else ())}
    return tuple(
        _Pinning(pipeline, table, epoch, clock).pin(known.get(table.reference_id))
        for table in sorted(pipeline.references, key=lambda each: each.reference_id)
    )


class _Pinning:
    """Pins one table for one plan."""

    def __init__(
        self, pipeline: Pipeline, table: Reference, epoch: EpochNumber, clock: datetime
    ) -> None:
        self._pipeline = pipeline
        self._store = pipeline.checkpoints.objects
        self._table = table
        self._epoch = epoch
        self._clock = clock

    def pin(self, before: ReferencePin | None) -> ReferencePin:
        if before and before.declaration != self._table.declaration:
            before = None
        lost: ReferencePin | None = None
        if before and not _is_there(self._store, before):
            log.warning("a copy of %s is lost, and made again", self._table.reference_id)
            before, lost = None, before
        if before and not self._is_due(before):
            return before
        try:
            version = self._table.version()
            if before and version is not None and version == before.version:
                return self._seen_again(before, version)
            rows = self._table.read()
        except ReferenceUnavailable as error:
            if before is None or not self._table.freshness.keeps_when_away:
                raise
            log.warning("%s; epoch %d goes on with the copy there is", error, self._epoch)
            since = before.unavailable_since or self._clock
            return structs.replace(before, unavailable_since=since)
        files = _described(rows)
        if lost and self._table.freshness.refresh_after is None and lost.files != files:
            # Retractions would be computed from other rows than the output they retract.
            problem = "it was to stay as it is, its copy is lost, and its rows are others now"
            raise ReferenceUnfit(self._table.reference_id, problem)
        if before and before.files == files:
            return self._seen_again(before, rows.version)
        return self._copied(rows, files)

    def _is_due(self, before: ReferencePin) -> bool:
        due = self._table.freshness.next_look(before.checked_at)
        return due is not None and self._clock >= due

    def _seen_again(self, before: ReferencePin, version: str) -> ReferencePin:
        return structs.replace(
            before, version=version, checked_at=self._clock, unavailable_since=None
        )

    def _copied(self, rows: ReferenceRows, files: tuple[SnapshotFile, ...]) -> ReferencePin:
        pin = ReferencePin(
            reference_id=self._table.reference_id,
            version=rows.version,
            declaration=self._table.declaration,
            epoch=self._epoch,
            copy_id=self._pipeline.mint(),
            checked_at=self._clock,
            files=files,
        )
        for file, (_, data) in zip(files, rows.files, strict=True):
            self._store.put(pin.key_of(file), data)
        return pin


def _described(rows: ReferenceRows) -> tuple[SnapshotFile, ...]:
    return tuple(
        SnapshotFile(
            name=FileName(f"rows-{number:06d}.arrow"),
            rows=count,
            size_bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
        )
        for number, (count, data) in enumerate(rows.files)
    )


def _is_there(store: ObjectStore, pin: ReferencePin) -> bool:
    """Whether every file of a copy is there, with the size in the pin."""
    found = {info.key: info.size for info in store.list(pin.folder)}
    return all(found.get(pin.key_of(file)) == file.size_bytes for file in pin.files)


def pins_standing_still(pipeline: Pipeline, parent: CheckpointManifest) -> tuple[ReferencePin, ...]:
    """The parent's pins, unchanged, for an epoch of upkeep, which reads no tables."""
    known = {table.reference_id for table in pipeline.references}
    return tuple(pin for pin in parent.references if pin.reference_id in known)


def require_pinned(pipeline: Pipeline, planned: EpochPlan) -> None:
    """Refuse a plan without a pin for every reference table as it is declared now.

    Raises:
        PipelineChanged: A table was added to the pipeline, or declared anew, after the plan.
    """
    if planned.upkeep:
        return
    pins = {pin.reference_id: pin for pin in planned.references}
    for table in pipeline.references:
        pin = pins.get(table.reference_id)
        if pin is None:
            what = f"it was planned without the reference table {table.reference_id}"
            raise PipelineChanged(planned.epoch, what)
        if pin.declaration != table.declaration:
            what = f"the reference table {table.reference_id} was declared otherwise"
            raise PipelineChanged(planned.epoch, what)


def copy_pins(source: ObjectStore, target: ObjectStore, pins: Iterable[ReferencePin]) -> None:
    """Copy pinned reference tables into another store, under the same keys. Idempotent.

    Raises:
        ObjectMissing, ChecksumMismatch: A file is gone, or damaged.
    """
    for pin in pins:
        if _is_there(target, pin):
            continue
        for file in pin.files:
            key = pin.key_of(file)
            target.put(key, read_verified(source, key, file.size_bytes, file.sha256))
