"""Verifies that a checkpoint is intact: every file is there, with its size and checksum."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from laminar_dagster.core import layout
from laminar_dagster.core.errors import IntegrityError
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.runtime.checked_files import check_file
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.snapshots import files_to_come

_WORKERS: Final = 8


@dataclass(frozen=True, slots=True)
class VerifiedFile:
    """A file that was verified, and its problem, if it has one."""

    key: str
    size_bytes: int
    problem: IntegrityError | None


def verify_checkpoint(
    checkpoints: CheckpointStore,
    manifest: CheckpointManifest,
    progress: Callable[[int], None] = lambda _bytes: None,
) -> Iterator[VerifiedFile]:
    """Read every file of a checkpoint and compare it with the manifest, several side by side.

    Memory stays flat: files are hashed piece by piece.

    Args:
        checkpoints: The store with the checkpoint.
        manifest: The manifest of the checkpoint.
        progress: Called with the size of every piece that was read, from several threads.
    """

    def look(store: ObjectStore, file: tuple[str, int, str]) -> VerifiedFile:
        key, size, sha256 = file
        try:
            check_file(store, key, size, sha256, progress)
        except IntegrityError as problem:
            return VerifiedFile(key, size, problem)
        return VerifiedFile(key, size, None)

    with ThreadPoolExecutor(_WORKERS, thread_name_prefix="verify") as pool:
        yield from pool.map(partial(look, checkpoints.objects), manifest.files())
        pinned = manifest.pinned_files()
        yield from pool.map(partial(look, checkpoints.objects), pinned)
        try:
            of_sources = partial(look, checkpoints.snapshots)
            yield from pool.map(of_sources, files_to_come(checkpoints.snapshots, manifest))
        except IntegrityError as problem:
            yield VerifiedFile(layout.SNAPSHOTS, 0, problem)
    for entry in manifest.sources:
        key = layout.checkpoint_key(manifest.checkpoint_id, entry.path)
        try:
            checkpoints.offsets_of(manifest, entry)
        except IntegrityError as problem:
            yield VerifiedFile(key, 0, problem)
        else:
            yield VerifiedFile(key, 0, None)
