"""Files of a store, compared with what a document says of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from laminar_dagster.core.errors import ChecksumMismatch
from laminar_dagster.core.ports import ObjectStore

# Larger than any one range, small enough that eight of them in flight do not matter.
_CHUNK: Final = 8 * 1024 * 1024


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
