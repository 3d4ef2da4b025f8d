"""Whether a checkpoint is whole: every file there, every byte as it was written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from laminar_dagster.core import layout
from laminar_dagster.core.errors import ChecksumMismatch, IntegrityError
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.runtime.checkpoints import CheckpointStore

# Larger than any one range, small enough that eight of them in flight do not matter.
_CHUNK: Final = 8 * 1024 * 1024
_WORKERS: Final = 8


@dataclass(frozen=True, slots=True)
class VerifiedFile:
    """A file that was looked at, and what is wrong with it, if anything."""

    key: str
    size_bytes: int
    problem: IntegrityError | None


def read_verified(store: ObjectStore, key: str, size_bytes: int, sha256: str) -> bytes:
    """The bytes of a file, exactly those that a manifest names.

    Raises:
        ObjectMissing: It is gone.
        ChecksumMismatch: It is not what it was.
    """
    data = store.read(key)
    actual = hashlib.sha256(data).hexdigest()
    if len(data) != size_bytes or actual != sha256:
        raise ChecksumMismatch(key, sha256, actual)
    return data


def verify_checkpoint(
    checkpoints: CheckpointStore,
    manifest: CheckpointManifest,
    progress: Callable[[int], None] = lambda _bytes: None,
) -> Iterator[VerifiedFile]:
    """Read every file of a checkpoint and compare it with the manifest, several side by side.

    Memory stays flat: files are hashed piece by piece.

    Args:
        checkpoints: Where it is.
        manifest: Which one.
        progress: Told of every piece that was read, by its size; called from several threads.
    """

    def look(file: tuple[str, int, str]) -> VerifiedFile:
        key, size, sha256 = file
        try:
            check_file(checkpoints.objects, key, size, sha256, progress)
        except IntegrityError as problem:
            return VerifiedFile(key, size, problem)
        return VerifiedFile(key, size, None)

    with ThreadPoolExecutor(_WORKERS, thread_name_prefix="verify") as pool:
        yield from pool.map(look, manifest.files())
    for entry in manifest.sources:
        key = layout.checkpoint_key(manifest.checkpoint_id, entry.path)
        try:
            checkpoints.offsets_of(manifest, entry)
        except IntegrityError as problem:
            yield VerifiedFile(key, 0, problem)
        else:
            yield VerifiedFile(key, 0, None)


def check_file(
    store: ObjectStore, key: str, size: int, sha256: str, progress: Callable[[int], None]
) -> None:
    """Compare a file with what a manifest says of it, piece by piece.

    Raises:
        ObjectMissing: It is gone.
        ChecksumMismatch: It is not what it was.
    """
    digest = hashlib.sha256()
    position = 0
    # Asks for one byte more than there should be, so that a longer file is noticed.
    while piece := store.read_range(key, position, min(_CHUNK, size + 1 - position)):
        digest.update(piece)
        position += len(piece)
        progress(len(piece))
        if position > size:
            break
    if position != size or digest.hexdigest() != sha256:
        raise ChecksumMismatch(key, sha256, digest.hexdigest())
