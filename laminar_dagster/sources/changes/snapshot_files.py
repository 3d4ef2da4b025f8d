"""Writes rows of a snapshot to Arrow IPC files, and reads them back.

A file holds the decoded rows with all columns, ``_weight`` included, and among them the
records that could not be decoded: where ``_reason`` is set, all columns but ``_raw`` are null.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.core.errors import SeekFailed
from laminar_dagster.core.ports import ReadingCost, SnapshotKeeper
from laminar_dagster.core.snapshot import SourceSnapshot
from laminar_dagster.sources.decoded import BadRecord, PlacedChunk, chunk_of

RAW: Final = "_raw"
REASON: Final = "_reason"

# The number of rows in one chunk of the reader.
_CHUNK_ROWS: Final = 64 * 1024
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")


def file_bytes(rows: pa.RecordBatch, bad: list[BadRecord], places: list[int]) -> bytes:
    """Encode a file of rows.

    Args:
        rows: The decoded rows.
        bad: The records that could not be decoded.
        places: The row of the file at which each bad record stands, ascending.
    """
    count = rows.num_rows + len(bad)
    is_bad = np.zeros(count, np.bool_)
    is_bad[places] = True
    # A null index where a bad row stands: ``take`` then yields null.
    taken = pa.array(np.cumsum(~is_bad) - 1, mask=is_bad)
    columns = [column.take(taken) for column in rows.columns]
    raw: list[bytes | None] = [None] * count
    reasons: list[str | None] = [None] * count
    for place, each in zip(places, bad, strict=True):
        raw[place], reasons[place] = each.raw, each.reason
    columns += [pa.array(raw, pa.binary()), pa.array(reasons, pa.string())]
    fields = [pa.field(each.name, each.type) for each in rows.schema]
    schema = pa.schema([*fields, pa.field(RAW, pa.binary()), pa.field(REASON, pa.string())])
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, options=_OPTIONS) as writer:
        writer.write_table(pa.Table.from_batches([batch]), max_chunksize=_CHUNK_ROWS)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def read_snapshot(
    source_id: str,
    schema: pa.Schema,
    keeper: SnapshotKeeper,
    snapshot: SourceSnapshot,
    start: int,
    end: int,
) -> Iterator[PlacedChunk]:
    """The rows ``start`` to ``end`` of a snapshot, in order.

    Args:
        source_id: The source's name, for errors.
        schema: The columns to read.
        keeper: Reads the snapshot's files.
        snapshot: The snapshot to read.
        start: The first row.
        end: The row after the last.

    Raises:
        SeekFailed: The snapshot was taken with other columns.
        ObjectMissing, ChecksumMismatch: A file is missing or corrupt.
    """
    first = start
    for file, begin, until in snapshot.pieces(start, end):
        began = time.perf_counter()
        data = keeper.read(snapshot, file)
        fetched = time.perf_counter() - began
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        share = len(data) * (until - begin) // max(1, file.rows)
        for place in range(begin, until, _CHUNK_ROWS):
            piece = table.slice(place, min(_CHUNK_ROWS, until - place)).combine_chunks()
            part = share * piece.num_rows // (until - begin)
            yield _chunk(source_id, schema, snapshot.number, piece, first, part, fetched)
            first, fetched = first + piece.num_rows, 0.0


def _chunk(
    source_id: str,
    schema: pa.Schema,
    number: int,
    table: pa.Table,
    first: int,
    size: int,
    fetch_seconds: float,
) -> PlacedChunk:
    began = time.perf_counter()
    missing = [each.name for each in schema if each.name not in table.schema.names]
    if missing:
        reason = f"snapshot {number} was taken without the column `{missing[0]}`"
        raise SeekFailed(source_id, f"{reason}; undo the change, or begin a new pipeline")
    places = np.arange(first, first + table.num_rows)
    is_bad = pc.is_valid(table.column(REASON))
    flags = is_bad.to_numpy()
    told = table.filter(is_bad).select([RAW, REASON]).to_pylist()
    bad = [
        BadRecord(int(place), each[RAW] or b"", each[REASON])
        for place, each in zip(places[flags], told, strict=True)
    ]
    good = table.filter(pc.invert(is_bad)) if bad else table
    try:
        columns = [
            pa.concat_arrays(good.column(each.name).cast(each.type).chunks)
            if good.num_rows
            else pa.nulls(0, each.type)
            for each in schema
        ]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = f"snapshot {number} was taken with other types: {error}"
        raise SeekFailed(source_id, f"{reason}; undo the change, or begin a new pipeline") from None
    return chunk_of(
        f"snapshot {number}",
        pa.RecordBatch.from_arrays(columns, schema=schema),
        pa.array(places[~flags], pa.int64()),
        bad,
        size,
        cost=ReadingCost(fetch_seconds, time.perf_counter() - began),
    )
