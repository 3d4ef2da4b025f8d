"""Reads documents that may be intact, missing or damaged, and writes them back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from laminar_dagster.core import layout
from laminar_dagster.core.definition import PipelineDefinition
from laminar_dagster.core.document import MAX_DOCUMENT_BYTES, Document, decode, encode
from laminar_dagster.core.errors import (
    IntegrityError,
    MalformedDocument,
    ObjectExists,
    ObjectMissing,
    UnsupportedVersion,
)
from laminar_dagster.core.ids import CheckpointId, EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest, SourceOffsetEntry
from laminar_dagster.core.offsets import SourceOffsets
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.ports import ObjectStore, VersionedObject
from laminar_dagster.core.prepared import AttemptRecord, LatestPointer, Prepared

DocumentT = TypeVar("DocumentT", bound=Document)
_READS_AT_ONCE: Final = 8
# A store whose reads take more seconds than this is remote: parallel reads save time there.
_FAR: Final = 0.005


@dataclass(frozen=True, slots=True)
class Seen(Generic[DocumentT]):
    """A document as it was found.

    Attributes:
        document: What it says; None when it is missing or damaged.
        problem: What is wrong with it; a document that is missing has one too.
        version: For the conditional write that replaces it; None when it is missing, or too large
            to be read.
    """

    key: str
    document: DocumentT | None
    problem: IntegrityError | None
    version: str | None

    @property
    def is_missing(self) -> bool:
        """Whether there is no such object."""
        return isinstance(self.problem, ObjectMissing)

    @property
    def is_damaged(self) -> bool:
        """Whether there is an object, but not the right one."""
        return self.problem is not None and not self.is_missing


class Documents:
    """Reads and checks the documents of a store, without a cache.

    Only documents that were read ahead are kept, until each is asked for once.
    """

    def __init__(self, objects: ObjectStore) -> None:
        """Read from a store."""
        self.objects = objects
        self._ahead: dict[str, VersionedObject | None] = {}
        self._last_read = 0.0

    def read_ahead(self, keys: Iterable[str]) -> None:
        """Read documents that are needed next, in parallel, if the store's last read was slow."""
        if self._last_read < _FAR:
            return
        with ThreadPoolExecutor(_READS_AT_ONCE, thread_name_prefix="documents") as pool:
            reads = {key: pool.submit(self._read, key) for key in keys}
        for key, read in reads.items():
            # A read that failed is repeated, and its error raised, when it is asked for.
            if read.exception() is None:
                self._ahead[key] = read.result()

    def plan(self, epoch: EpochNumber) -> Seen[EpochPlan]:
        """The plan of an epoch."""
        key = layout.plan_key(epoch)
        return self._look(key, EpochPlan, lambda found: _other_epoch(found.epoch, epoch))

    def prepared(self, epoch: EpochNumber) -> Seen[Prepared]:
        """The prepared record of an epoch, which names its winning attempt."""

        def problem(found: Prepared) -> str:
            found.manifest.validate()
            return _other_epoch(found.epoch, epoch)

        return self._look(layout.prepared_key(epoch), Prepared, problem)

    def manifest(self, checkpoint: CheckpointId) -> Seen[CheckpointManifest]:
        """The manifest of a checkpoint."""

        def problem(found: CheckpointManifest) -> str:
            found.validate()
            is_own = found.checkpoint_id == checkpoint
            return "" if is_own else f"it is the one of {found.checkpoint_id}"

        return self._look(layout.manifest_key(checkpoint), CheckpointManifest, problem)

    def latest(self) -> Seen[LatestPointer]:
        """The pointer to the newest checkpoint that every sink has."""
        return self._look(layout.LATEST, LatestPointer, lambda _found: "")

    def attempt(self, manifest: CheckpointManifest) -> Seen[AttemptRecord]:
        """The record of the attempt that became a checkpoint."""
        wanted = attempt_of(manifest)
        key = layout.attempt_key(manifest.checkpoint_id)
        return self._look(key, AttemptRecord, lambda found: _unequal(found, wanted))

    def offsets(
        self, manifest: CheckpointManifest, entry: SourceOffsetEntry
    ) -> Seen[SourceOffsets]:
        """The file of a source's positions."""
        wanted = offsets_of(manifest, entry)
        key = layout.checkpoint_key(manifest.checkpoint_id, entry.path)
        return self._look(key, SourceOffsets, lambda found: _unequal(found, wanted))

    def definition(self, fingerprint: str) -> Seen[PipelineDefinition]:
        """The pipeline definition that a fingerprint stands for."""
        return self._look(
            layout.definition_key(fingerprint),
            PipelineDefinition,
            lambda found: "" if found.fingerprint == fingerprint else "it is another pipeline's",
        )

    def put(self, seen: Seen[DocumentT], document: DocumentT) -> None:
        """Write a document in the place of one that is missing or damaged.

        A conditional write: only the version that was seen is replaced. It also succeeds if
        another process has written the same document meanwhile.

        Raises:
            ObjectExists: Something else is there now.
        """
        data = encode(document)
        kind = type(document)
        version = seen.version
        if seen.is_damaged and version is None:
            found = self.objects.read_versioned(seen.key)
            version = found.version if found else None
        try:
            self.objects.replace(seen.key, data, version)
        except ObjectExists:
            # Another version of zlib may have compressed the same document to other bytes.
            if self._look(seen.key, kind, lambda found: _unequal(found, document)).problem:
                raise

    def _read(self, key: str) -> VersionedObject | None:
        begun = time.monotonic()
        try:
            return self.objects.read_versioned(key, limit=MAX_DOCUMENT_BYTES)
        finally:
            self._last_read = time.monotonic() - begun

    def _look(
        self, key: str, kind: type[DocumentT], problem_of: Callable[[DocumentT], str]
    ) -> Seen[DocumentT]:
        version = None
        try:
            found = self._ahead.pop(key) if key in self._ahead else self._read(key)
            if found is None:
                return Seen(key, None, ObjectMissing(key), None)
            version = found.version
            document = decode(found.data, kind, key)
            problem = problem_of(document)
        except UnsupportedVersion:
            # Not damage: a newer release wrote it.
            raise
        except IntegrityError as error:
            return Seen(key, None, error, version)
        if problem:
            return Seen(key, None, MalformedDocument(key, problem), version)
        return Seen(key, document, None, version)


def attempt_of(manifest: CheckpointManifest) -> AttemptRecord:
    """The record of the attempt that became a checkpoint."""
    return AttemptRecord(
        version=manifest.version,
        epoch=manifest.epoch,
        checkpoint_id=manifest.checkpoint_id,
        started_at=manifest.started_at,
    )


def offsets_of(manifest: CheckpointManifest, entry: SourceOffsetEntry) -> SourceOffsets:
    """The file of a source's positions, as a checkpoint has it."""
    return SourceOffsets(
        version=manifest.version,
        source_id=entry.source_id,
        epoch=manifest.epoch,
        checkpoint_id=manifest.checkpoint_id,
        positions=entry.positions,
    )


def _other_epoch(found: EpochNumber, wanted: EpochNumber) -> str:
    return "" if found == wanted else f"it is the one of epoch {found}"


def _unequal(found: Document, wanted: Document) -> str:
    return "" if found == wanted else "it is another checkpoint's"
