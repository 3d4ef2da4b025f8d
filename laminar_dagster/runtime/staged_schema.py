"""Reads parts of a staged file by range, such as the schema in its footer."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO

from laminar_dagster.core import layout
from laminar_dagster.core.errors import MalformedDocument
from laminar_dagster.core.ids import CheckpointId
from laminar_dagster.core.manifest import FileEntry
from laminar_dagster.core.ports import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa


def staged_schema(store: ObjectStore, checkpoint: CheckpointId, file: FileEntry) -> pa.Schema:
    """The schema of an Arrow file that an epoch has staged.

    Raises:
        ObjectMissing: The file has been collected.
        MalformedDocument: It is not an Arrow file.
    """
    import pyarrow as pa

    ranges = open_staged(store, checkpoint, file)
    try:
        with pa.PythonFile(ranges, mode="r") as opened, pa.ipc.open_file(opened) as reader:
            return reader.schema
    except pa.ArrowException as error:
        raise MalformedDocument(file.path, f"it is not an Arrow file: {error}") from error


def open_staged(store: ObjectStore, checkpoint: CheckpointId, file: FileEntry) -> BinaryIO:
    """A staged file, of which only the requested ranges are read. No checksum is verified."""
    key = layout.checkpoint_key(checkpoint, file.path)
    return io.BufferedReader(_Ranges(store, key, file.size_bytes), buffer_size=64 * 1024)


class _Ranges(io.RawIOBase):
    """An object of a store as a seekable file."""

    def __init__(self, store: ObjectStore, key: str, size: int) -> None:
        self._store, self._key, self._size = store, key, size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        wanted = min(len(buffer), self._size - self._at)
        data = self._store.read_range(self._key, self._at, wanted) if wanted > 0 else b""
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
