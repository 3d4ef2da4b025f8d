"""Reads files of a store and verifies their size and checksum."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from laminar_dagster.core.errors import ChecksumMismatch
from laminar_dagster.core.ports import ObjectStore

# Larger than any one range, small enough that eight of them in flight do not matter.
_CHUNK: Final = 8 * 1024 * 1024


def read_verified(store: ObjectStore, key: str, size_bytes: int, sha256: str) -> bytes:
    """The bytes of a file, verified against the size and checksum that a manifest names.

    Raises:
        ObjectMissing: The file is gone.
        ChecksumMismatch: The file is damaged.
    """
    data = store.read(key)
    actual = hashlib.sha256(data).hexdigest()
    if len(data) != size_bytes or actual != sha256:
        raise ChecksumMismatch(key, sha256, actual)
    return data


def check_file(
    store: ObjectStore, key: str, size: int, sha256: str, progress: Callable[[int], None]
) -> None:
    """Verify a file's size and checksum, piece by piece.

    Raises:
        ObjectMissing: The file is gone.
        ChecksumMismatch: The file is damaged.
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
