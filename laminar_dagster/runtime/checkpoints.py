"""The documents of a store, typed: plans, prepared epochs, manifests and the latest pointer.

Reads trust nothing: every document is decoded strictly, its seal checked, and a manifest
validated. Writes decode their own bytes first, so that nothing is written that cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from laminar_dagster.core import layout
from laminar_dagster.core.definition import PipelineDefinition
from laminar_dagster.core.document import MAX_DOCUMENT_BYTES, Document, checksum, decode, encode
from laminar_dagster.core.errors import (
    IntegrityError,
    InvalidCheckpointId,
    InvalidManifest,
    LaminarError,
    MalformedDocument,
    ManifestWriteFailed,
    ObjectExists,
    ObjectMissing,
    RetryError,
    UnsupportedVersion,
)
from laminar_dagster.core.ids import CheckpointId, EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest, SourceOffsetEntry
from laminar_dagster.core.offsets import SourceOffsets
from laminar_dagster.core.plan import EpochPlan, ParentCheckpoint
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.core.prepared import AttemptRecord, LatestPointer, Prepared
from laminar_dagster.core.recovery import Candidate

DocumentT = TypeVar("DocumentT", bound=Document)
_REMEMBERED: Final = 64


class CheckpointStore:
    """Reads and writes a pipeline's documents in an object store.

    Plans, prepared records and manifests never change, so the last few that were read or written
    are cached: finding out how far an epoch is would otherwise read them after every step.
    """

    def __init__(self, store: ObjectStore, snapshots: ObjectStore | None = None) -> None:
        """Work on a store; ``store.probe()`` is the caller's to call once.

        Args:
            store: Where the documents are.
            snapshots: Where the snapshots of the sources are, if elsewhere: a branch uses its
                pipeline's.
        """
        self.objects = store
        self.snapshots = snapshots or store
        self._remembered: dict[str, Document] = {}

    # --- epochs ---------------------------------------------------------------------------------

    def forget(self) -> None:
        """Empty the cache of documents, so that all are read from the store again."""
        self._remembered.clear()

    def plan(self, epoch: EpochNumber) -> EpochPlan | None:
        """The plan of an epoch, if there is one.

        Raises:
            MalformedDocument: The document there is another epoch's.
        """
        plan = self._read_fixed(layout.plan_key(epoch), EpochPlan)
        if plan:
            _require_epoch(layout.plan_key(epoch), plan.epoch, epoch)
        return plan

    def stored_plan(self, epoch: EpochNumber) -> EpochPlan | None:
        """The plan of an epoch, read from the store and not from this process's cache."""
        self._remembered.pop(layout.plan_key(epoch), None)
        return self.plan(epoch)

    def plan_of(self, manifest: CheckpointManifest) -> EpochPlan:
        """The plan that a checkpoint is the outcome of.

        Raises:
            ObjectMissing: The plan is gone.
            MalformedDocument: The stored plan is another one.
        """
        key = layout.plan_key(manifest.epoch)
        plan = self.plan(manifest.epoch)
        if plan is None:
            raise ObjectMissing(key)
        if checksum(plan) != manifest.plan_checksum:
            raise MalformedDocument(key, "it is not the plan that was carried out")
        return plan

    def create_plan(self, plan: EpochPlan) -> None:
        """Write an epoch's plan, unless there is one.

        Raises:
            ObjectExists: Another process planned the epoch; use its plan.
        """
        self._create(layout.plan_key(plan.epoch), plan)

    def prepared(self, epoch: EpochNumber) -> Prepared | None:
        """The record of an epoch's winning attempt, if there is one.

        Raises:
            MalformedDocument: The document there is another epoch's.
        """
        prepared = self._read_fixed(layout.prepared_key(epoch), Prepared)
        if prepared:
            _require_epoch(layout.prepared_key(epoch), prepared.epoch, epoch)
            prepared.manifest.validate()
        return prepared

    def winner(self, epoch: EpochNumber) -> Prepared:
        """The winning attempt of an epoch that has one.

        Raises:
            ObjectMissing: It has none.
        """
        prepared = self.prepared(epoch)
        if prepared is None:
            raise ObjectMissing(layout.prepared_key(epoch))
        return prepared

    def stored_winner(self, epoch: EpochNumber) -> Prepared:
        """The winning attempt, read from the store and not from this process's cache."""
        self._remembered.pop(layout.prepared_key(epoch), None)
        return self.winner(epoch)

    def create_prepared(self, prepared: Prepared) -> None:
        """Try to make an attempt the winner.

        Raises:
            ObjectExists: Another attempt won.
        """
        prepared.manifest.validate()
        self._create(layout.prepared_key(prepared.epoch), prepared)

    def definition(self, fingerprint: str) -> PipelineDefinition | None:
        """The pipeline definition that a fingerprint stands for, if it was stored."""
        return self._read_fixed(layout.definition_key(fingerprint), PipelineDefinition)

    def create_definition(self, definition: PipelineDefinition) -> None:
        """Store the definition that a fingerprint stands for, unless it is there.

        One that an earlier release stored may lack fields; it is kept as it is.
        """
        key = layout.definition_key(definition.fingerprint)
        if key not in self._remembered:
            try:
                self._create(key, definition)
            except ObjectExists:
                self.definition(definition.fingerprint)

    # --- checkpoints ----------------------------------------------------------------------------

    def begin_attempt(self, record: AttemptRecord) -> None:
        """Write the attempt's record, the first object in its folder."""
        self._create(layout.attempt_key(record.checkpoint_id), record)

    def attempts(self, ids: Iterable[CheckpointId]) -> dict[CheckpointId, EpochNumber]:
        """The epochs of attempts; those without a readable record are left out."""
        keys = {layout.attempt_key(each): each for each in ids}
        found = {}
        for key, data in self.objects.read_many(keys, limit=MAX_DOCUMENT_BYTES):
            if isinstance(data, LaminarError):
                continue
            try:
                record = decode(data, AttemptRecord, key)
            except LaminarError:
                continue
            if record.checkpoint_id == keys[key]:
                found[record.checkpoint_id] = record.epoch
        return found

    def write_offsets(self, offsets: SourceOffsets) -> None:
        """Write a source's offsets into the attempt's folder."""
        path = layout.offsets_path(offsets.source_id)
        self._create(layout.checkpoint_key(offsets.checkpoint_id, path), offsets)

    def offsets_of(self, manifest: CheckpointManifest, entry: SourceOffsetEntry) -> SourceOffsets:
        """The offset file of one source, checked against the manifest.

        Raises:
            ObjectMissing, MalformedDocument, ChecksumMismatch: as their names say.
            InvalidManifest: The file is intact, but belongs to another checkpoint.
        """
        key = layout.checkpoint_key(manifest.checkpoint_id, entry.path)
        found = decode(self.objects.read(key, limit=MAX_DOCUMENT_BYTES), SourceOffsets, key)
        stored = (found.checkpoint_id, found.source_id, found.positions)
        if stored != (manifest.checkpoint_id, entry.source_id, entry.positions):
            raise InvalidManifest(manifest.checkpoint_id, f"{key} is another checkpoint's")
        return found

    def manifest(self, checkpoint: CheckpointId) -> CheckpointManifest | None:
        """The manifest of a checkpoint, or None when the checkpoint does not exist."""
        manifest = self._read_fixed(layout.manifest_key(checkpoint), CheckpointManifest)
        return _checked(manifest, checkpoint) if manifest else None

    def parent(self, parent: ParentCheckpoint) -> CheckpointManifest:
        """The manifest that a plan builds on, verified by the checksum in the plan.

        Raises:
            ObjectMissing: The manifest is gone.
            InvalidManifest: It is not the one that was planned with.
        """
        manifest = self.manifest(parent.checkpoint_id)
        if not manifest:
            raise ObjectMissing(layout.manifest_key(parent.checkpoint_id))
        if checksum(manifest) != parent.manifest_checksum:
            raise InvalidManifest(parent.checkpoint_id, "it is not the one that was planned with")
        return manifest

    def write_manifest(self, prepared: Prepared) -> None:
        """Write the manifest: the commit point. Idempotent: every process writes the same bytes.

        Raises:
            ManifestWriteFailed: The store is unavailable; the epoch stays prepared.
            InvalidManifest: Another manifest is there.
        """
        key = layout.manifest_key(prepared.checkpoint_id)
        try:
            self._create(key, prepared.manifest)
        except ObjectExists:
            reason = "it differs from the one that was prepared"
            raise InvalidManifest(prepared.checkpoint_id, reason) from None
        except RetryError as error:
            raise ManifestWriteFailed(key, str(error)) from error

    def candidates(self, limit: int | None = None) -> Iterator[Candidate]:
        """Checkpoints, the newest id first; incomplete ones are skipped, damaged ones reported.

        One listing request for a thousand checkpoints; manifests are read side by side, and only
        as many as are asked for.
        """
        ids = sorted(self.checkpoint_ids(), reverse=True)
        keys = {layout.manifest_key(each): each for each in ids}
        found = 0
        for key, data in self.objects.read_many(keys, limit=MAX_DOCUMENT_BYTES):
            if limit is not None and found >= limit:
                return
            if isinstance(data, ObjectMissing):
                continue
            found += 1
            yield Candidate(keys[key], _read_candidate(key, data, keys[key]))

    def checkpoint_ids(self) -> Iterator[CheckpointId]:
        """The id of every folder whose name is a checkpoint id, complete or not."""
        for name in self.objects.list_folders(layout.CHECKPOINTS):
            try:
                yield CheckpointId(name)
            except InvalidCheckpointId:
                continue

    # --- the latest pointer ---------------------------------------------------------------------

    def latest(self) -> LatestPointer | None:
        """The newest checkpoint that every sink has confirmed."""
        return self._read(layout.LATEST, LatestPointer)

    def advance_latest(self, manifest: CheckpointManifest) -> LatestPointer:
        """Point ``_latest`` at a checkpoint, unless it is already there or further.

        Returns:
            Where the pointer is now.

        Raises:
            UnsupportedVersion: A newer release has moved it.
        """
        pointer = LatestPointer.to(manifest)
        while True:
            current = self.objects.read_versioned(layout.LATEST, limit=MAX_DOCUMENT_BYTES)
            if current:
                there = _readable_pointer(current.data)
                if there and there.epoch >= pointer.epoch:
                    return there
            try:
                version = current.version if current else None
                self.objects.replace(layout.LATEST, encode(pointer), version)
            except ObjectExists:
                continue  # another process moved it meanwhile: read it again
            return pointer

    # --- bytes ----------------------------------------------------------------------------------

    def _read(self, key: str, kind: type[DocumentT]) -> DocumentT | None:
        try:
            data = self.objects.read(key, limit=MAX_DOCUMENT_BYTES)
        except ObjectMissing:
            return None
        return decode(data, kind, key)

    def _read_fixed(self, key: str, kind: type[DocumentT]) -> DocumentT | None:
        """A document that never changes once it exists, from the cache or the store."""
        known = self._remembered.get(key)
        if isinstance(known, kind):
            return known
        found = self._read(key, kind)
        if found:
            self._remember(key, found)
        return found

    def _remember(self, key: str, document: Document) -> None:
        self._remembered[key] = document
        while len(self._remembered) > _REMEMBERED:
            self._remembered.pop(next(iter(self._remembered)), None)

    def _create(self, key: str, document: Document) -> None:
        data = encode(document)
        decode(data, type(document), key)
        try:
            self.objects.create(key, data)
        except ObjectExists:
            # Another version of zlib may compress the same document to other bytes.
            if self._read(key, type(document)) != document:
                raise
        self._remember(key, document)


def _require_epoch(key: str, found: EpochNumber, wanted: EpochNumber) -> None:
    """Refuse an intact document at another epoch's key, which its seal does not reveal."""
    if found != wanted:
        raise MalformedDocument(key, f"it is the one of epoch {found}")


def _checked(manifest: CheckpointManifest, checkpoint: CheckpointId) -> CheckpointManifest:
    if manifest.checkpoint_id != checkpoint:
        raise InvalidManifest(checkpoint, f"it is the one of {manifest.checkpoint_id}")
    manifest.validate()
    return manifest


def _read_candidate(
    key: str, data: bytes | LaminarError, checkpoint: CheckpointId
) -> CheckpointManifest | LaminarError:
    if isinstance(data, LaminarError):
        return data
    try:
        return _checked(decode(data, CheckpointManifest, key), checkpoint)
    except LaminarError as error:
        return error


def _readable_pointer(data: bytes) -> LatestPointer | None:
    """The pointer; None if it is damaged, so that it is overwritten.

    Raises:
        UnsupportedVersion: A newer release wrote it, and may be further.
    """
    try:
        return decode(data, LatestPointer, layout.LATEST)
    except UnsupportedVersion:
        raise
    except IntegrityError:
        return None
