"""The columns of a staged file are read without reading the file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pytest

from laminar_dagster.core import layout
from laminar_dagster.core.errors import MalformedDocument, ObjectMissing
from laminar_dagster.core.ids import CheckpointId
from laminar_dagster.core.manifest import FileEntry
from laminar_dagster.runtime.staged_schema import staged_schema
from laminar_dagster.stores.local import LocalStore

HOME = CheckpointId.from_parts(1, 1)
PATH = "staged/table/0.arrow"


class CountingStore(LocalStore):
    taken = 0

    def read_range(self, key: str, start: int, length: int) -> bytes:
        data = super().read_range(key, start, length)
        self.taken += len(data)
        return data


def entry(data: bytes) -> FileEntry:
    digest = hashlib.sha256(data).hexdigest()
    return FileEntry(path=PATH, size_bytes=len(data), sha256=digest, rows=1)


def test_the_end_of_the_file_is_enough(tmp_path: Path) -> None:
    table = pa.table({"page": ["/"] * 200_000, "views": pa.array(range(200_000), pa.int64())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    data = sink.getvalue().to_pybytes()
    store = CountingStore(tmp_path)
    store.create(layout.checkpoint_key(HOME, PATH), data)
    assert staged_schema(store, HOME, entry(data)) == table.schema
    assert store.taken < len(data) / 10


def test_a_file_that_is_gone_or_is_none_is_named(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with pytest.raises(ObjectMissing):
        staged_schema(store, HOME, entry(b"x" * 100))
    store.create(layout.checkpoint_key(HOME, PATH), b"x" * 100)
    with pytest.raises(MalformedDocument, match="not an Arrow file"):
        staged_schema(store, HOME, entry(b"x" * 100))
