"""Staged output as Arrow tables: one for each file, in the order of the manifest."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from laminar_dagster.core.errors import MalformedDocument
from laminar_dagster.core.manifest import FileEntry
from laminar_dagster.core.ports import StagedOutput


def staged_tables(staged: StagedOutput) -> Iterator[pa.Table]:
    """Read the files one after the other, so that one of them is in memory at a time.

    Raises:
        ObjectMissing, ChecksumMismatch: From ``staged.read``, as they are.
        MalformedDocument: A file is no Arrow file, or not the one that the manifest describes.
    """
    schema = None
    for file in staged.entry.files:
        table = _read(file, staged.read(file))
        if table.num_rows != file.rows:
            reason = f"it holds {table.num_rows} rows and should hold {file.rows}"
            raise MalformedDocument(file.path, reason)
        schema = schema or table.schema
        if not table.schema.equals(schema):
            raise MalformedDocument(file.path, "its columns are not those of the files before it")
        yield table


def _read(file: FileEntry, data: bytes) -> pa.Table:
    try:
        with pa.ipc.open_file(pa.BufferReader(data)) as reader:
            return reader.read_all()
    except (pa.ArrowException, OSError) as error:
        raise MalformedDocument(file.path, f"it is not an Arrow file: {error}") from error
