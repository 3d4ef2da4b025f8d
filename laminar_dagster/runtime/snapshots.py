"""Snapshots of sources, kept in the pipeline's store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from laminar_dagster.core import layout
from laminar_dagster.core.document import FORMAT_VERSION, MAX_DOCUMENT_BYTES, decode, encode
from laminar_dagster.core.errors import InvalidState, MalformedDocument, ObjectMissing
from laminar_dagster.core.ids import CheckpointId, FileName, SourceId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.offsets import (
    MysqlPosition,
    PostgresPosition,
    SourceIdentity,
    SourcePosition,
)
from laminar_dagster.core.points import Point, reach
from laminar_dagster.core.ports import (
    Clock,
    ObjectInfo,
    ObjectStore,
    SnapshotDraft,
)
from laminar_dagster.core.snapshot import FIRST_SNAPSHOT, SnapshotFile, SourceSnapshot
from laminar_dagster.runtime.checked_files import read_verified
from laminar_dagster.runtime.clock import SystemClock, mint_checkpoint_id

_SYSTEM_CLOCK: Final = SystemClock()


@dataclass(frozen=True, slots=True)
class StoredSnapshots:
    """Implements ``core.ports.SnapshotKeeper``.

    Attributes:
        store: None where the pipeline has no store yet: then there is no snapshot to find, and
            none can be taken.
    """

    store: ObjectStore | None
    source_id: SourceId
    clock: Clock = _SYSTEM_CLOCK
    mint: Callable[[], CheckpointId] = mint_checkpoint_id

    def newest(self) -> SourceSnapshot | None:
        """See ``SnapshotKeeper.newest``."""
        # Key by key, as a listing may be stale; a source seldom has more than one snapshot.
        found: SourceSnapshot | None = None
        number = FIRST_SNAPSHOT
        while (further := self._find(number)) is not None:
            found, number = further, number + 1
        return found

    def find(self, number: int) -> SourceSnapshot:
        """See ``SnapshotKeeper.find``."""
        found = self._find(number)
        if found is None:
            raise ObjectMissing(layout.snapshot_key(self.source_id, number))
        return found

    def begin(self, number: int) -> SnapshotDraft:
        """See ``SnapshotKeeper.begin``."""
        return SnapshotDraft(number, self.mint())

    def marks(self, number: int, name: FileName) -> tuple[bytes, ...]:
        """See ``SnapshotKeeper.marks``."""
        if self.store is None:
            return ()
        folder = layout.snapshot_folder(self.source_id, number)
        keys = [info.key for info in self.store.list(folder) if info.key.endswith(f"/{name}")]
        # Missing ones were collected meanwhile, with a draft that another draft has overtaken.
        found = [self.store.read_versioned(key, limit=MAX_DOCUMENT_BYTES) for key in keys]
        return tuple(each.data for each in found if each is not None)

    def write(self, draft: SnapshotDraft, name: FileName, rows: int, data: bytes) -> SnapshotFile:
        """See ``SnapshotKeeper.write``."""
        key = layout.snapshot_file_key(self.source_id, draft.number, draft.draft_id, name)
        self._objects.put(key, data)
        reach(Point.SNAPSHOT_FILE_KEPT, name)
        digest = hashlib.sha256(data).hexdigest()
        return SnapshotFile(name=name, rows=rows, size_bytes=len(data), sha256=digest)

    def finish(
        self,
        draft: SnapshotDraft,
        position: SourcePosition,
        identity: SourceIdentity,
        files: tuple[SnapshotFile, ...],
    ) -> SourceSnapshot:
        """See ``SnapshotKeeper.finish``."""
        snapshot = SourceSnapshot(
            version=FORMAT_VERSION,
            source_id=self.source_id,
            number=draft.number,
            draft_id=draft.draft_id,
            taken_at=self.clock.now(),
            position=position,
            identity=identity,
            files=files,
        )
        self._objects.create(layout.snapshot_key(self.source_id, draft.number), encode(snapshot))
        return snapshot

    def read(self, snapshot: SourceSnapshot, file: SnapshotFile) -> bytes:
        """See ``SnapshotKeeper.read``."""
        key = file_key(snapshot, file)
        return read_verified(self._objects, key, file.size_bytes, file.sha256)

    def _find(self, number: int) -> SourceSnapshot | None:
        if self.store is None:
            return None
        key = layout.snapshot_key(self.source_id, number)
        stored = self.store.read_versioned(key, limit=MAX_DOCUMENT_BYTES)
        return _decoded(key, stored.data) if stored else None

    @property
    def _objects(self) -> ObjectStore:
        if self.store is None:
            raise InvalidState(f"source {self.source_id}", "without a store", "take a snapshot")
        return self.store


def file_key(snapshot: SourceSnapshot, file: SnapshotFile) -> str:
    """The key of a file of a snapshot."""
    return layout.snapshot_file_key(
        snapshot.source_id, snapshot.number, snapshot.draft_id, file.name
    )


def finished_snapshots(store: ObjectStore, objects: list[ObjectInfo]) -> tuple[SourceSnapshot, ...]:
    """The finished snapshots among the objects of a store.

    Raises:
        IntegrityError: The description of a snapshot is damaged.
    """
    keys = [
        info.key
        for info in objects
        if (parsed := layout.parse_snapshot_key(info.key)) and parsed.draft is None
    ]
    found = []
    for key in dict.fromkeys(keys):
        stored = store.read_versioned(key, limit=MAX_DOCUMENT_BYTES)
        if stored is not None:
            found.append(_decoded(key, stored.data))
    return tuple(found)


def files_to_come(
    store: ObjectStore, manifest: CheckpointManifest
) -> Iterator[tuple[str, int, str]]:
    """The key, size and digest of every snapshot file that the next epochs will still read.

    Raises:
        ObjectMissing, IntegrityError: The description of a snapshot is gone, or damaged.
    """
    for entry in manifest.sources:
        for position in entry.positions:
            if not isinstance(position, PostgresPosition | MysqlPosition):
                continue
            progress = position.snapshot
            if progress is None:
                continue
            snapshot = StoredSnapshots(store, entry.source_id).find(progress.number)
            for file, _, _ in snapshot.pieces(progress.rows, snapshot.rows):
                yield file_key(snapshot, file), file.size_bytes, file.sha256


def _decoded(key: str, data: bytes) -> SourceSnapshot:
    snapshot = decode(data, SourceSnapshot, key)
    if layout.snapshot_key(snapshot.source_id, snapshot.number) != key:
        raise MalformedDocument(key, "it is the description of another snapshot")
    return snapshot
