"""Staged output of any Arrow table, and the places in which the contract runs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pyarrow as pa

from laminar_dagster.core import layout
from laminar_dagster.core.ids import EpochNumber, FileName, SinkId
from laminar_dagster.core.manifest import FileEntry, SinkEntry
from laminar_dagster.core.ports import ArrowSchema, StagedOutput
from laminar_dagster.testing.sink_contract import StagedRow

SINK = SinkId("table")
COLUMNS: ArrowSchema = pa.schema([pa.field("key", pa.int64()), pa.field("value", pa.string())])

# Its first array makes pyarrow import pandas. Here that happens once, and not in every process
# that is forked to be killed.
pa.array([0])


def file_bytes(table: pa.Table) -> bytes:
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_file(buffer, table.schema) as writer:
        writer.write_table(table)
    data: bytes = buffer.getvalue().to_pybytes()
    return data


def encode(rows: Sequence[StagedRow], weights: Sequence[int] | None) -> bytes:
    columns = {
        "key": pa.array([key for key, _ in rows], pa.int64()),
        "value": pa.array([value for _, value in rows], pa.string()),
    }
    if weights is not None:
        columns["_weight"] = pa.array(weights, pa.int8())
    return file_bytes(pa.table(columns))


def staged(*tables: pa.Table, joined_at: int = 1, sink: SinkId = SINK) -> StagedOutput:
    entries, contents = [], {}
    for number, table in enumerate(tables):
        data = file_bytes(table)
        path = layout.staged_path(sink, FileName(f"part-{number}"))
        sha256 = hashlib.sha256(data).hexdigest()
        entries.append(
            FileEntry(path=path, size_bytes=len(data), sha256=sha256, rows=table.num_rows)
        )
        contents[path] = data
    entry = SinkEntry(
        sink_id=sink,
        joined_at=EpochNumber(joined_at),
        files=tuple(entries),
        output_sha256=hashlib.sha256(b"".join(contents.values())).hexdigest(),
    )
    return StagedOutput(entry, lambda file: contents[file.path])
