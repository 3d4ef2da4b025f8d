"""Copies a checkpoint into another store, under the same keys."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from laminar_dagster.core import layout
from laminar_dagster.core.document import encode
from laminar_dagster.core.errors import ChecksumMismatch, ObjectMissing
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.core.prepared import Prepared
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.references import copy_pins

_WORKERS: Final = 8
_CHUNK: Final = 1024 * 1024


def copy_checkpoint(
    source: CheckpointStore,
    target: CheckpointStore,
    manifest: CheckpointManifest,
    progress: Callable[[int], None] = lambda _bytes: None,
) -> None:
    """Copy what is needed to go on from a checkpoint; ``_latest`` last, as the mark of completion.

    Staged output and dead letters are not copied: they stay with the source. State is verified on
    its way, through temporary files, so that memory stays flat. Idempotent, also after a crash
    halfway.

    Args:
        source: The store with the checkpoint.
        target: The store to copy it to.
        manifest: The manifest of the checkpoint.
        progress: Called with the size of every file that was copied, from several threads.

    Raises:
        ObjectMissing, ChecksumMismatch: A file is gone, or damaged.
    """
    if target.latest():
        return
    planned = source.plan(manifest.epoch)
    if planned is None:
        raise ObjectMissing(layout.plan_key(manifest.epoch))
    with (
        tempfile.TemporaryDirectory(prefix="laminar-fork-") as folder,
        ThreadPoolExecutor(_WORKERS, thread_name_prefix="copy") as pool,
    ):

        def copy(numbered: tuple[int, tuple[str, int, str]]) -> None:
            number, (key, size, sha256) = numbered
            _copy_file(source.objects, target.objects, key, sha256, Path(folder) / str(number))
            progress(size)

        for _ in pool.map(copy, enumerate(_state_files(manifest))):
            pass
    copy_pins(source.objects, target.objects, manifest.references)
    for entry in manifest.sources:
        offsets = source.offsets_of(manifest, entry)
        target.objects.put(
            layout.checkpoint_key(manifest.checkpoint_id, entry.path), encode(offsets)
        )
    definition = source.definition(manifest.fingerprint)
    if definition:
        target.create_definition(definition)
    target.create_plan(planned)
    prepared = Prepared.of(manifest)
    target.create_prepared(prepared)
    target.write_manifest(prepared)
    target.advance_latest(manifest)


def _state_files(manifest: CheckpointManifest) -> Iterator[tuple[str, int, str]]:
    for operator in manifest.operators:
        for part in operator.partitions:
            home = manifest.origin_of(part).checkpoint_id
            yield layout.checkpoint_key(home, part.path), part.size_bytes, part.sha256


def _copy_file(
    source: ObjectStore, target: ObjectStore, key: str, sha256: str, through: Path
) -> None:
    source.download(key, through)
    digest = hashlib.sha256()
    with open(through, "rb") as file:
        while piece := file.read(_CHUNK):
            digest.update(piece)
    if digest.hexdigest() != sha256:
        raise ChecksumMismatch(key, sha256, digest.hexdigest())
    target.put_file(key, through)
    through.unlink()
