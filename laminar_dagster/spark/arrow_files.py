"""Tables as files of canonical bytes: the same rows always give the same file.

Arrow does not define the value bytes in null slots, and how columns are cut into chunks depends on
how they were made. Both are made canonical here before a file is written.
"""

from __future__ import annotations

import hashlib
import io
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

BATCH_ROWS: Final = 64 * 1024


def file_bytes(table: pa.Table) -> bytes:
    """An Arrow IPC file with the table's rows, in batches of a fixed size."""
    whole = canonical(table)
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, whole.schema) as writer:
        for batch in whole.to_batches(max_chunksize=BATCH_ROWS):
            writer.write_batch(batch)
    return sink.getvalue()


def file_table(data: bytes) -> pa.Table:
    """The rows of a file, without copying them."""
    return pa.ipc.open_file(pa.py_buffer(data)).read_all()


def sha256(data: bytes) -> str:
    """The SHA-256 digest that manifests record for a file."""
    return hashlib.sha256(data).hexdigest()


def schema_fingerprint(schema: pa.Schema) -> str:
    """A hash of the names and types of the columns."""
    text = "\n".join(f"{column.name}: {column.type}" for column in schema)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def canonical(table: pa.Table) -> pa.Table:
    """The same rows with one chunk per column, and zeros as the values of null slots."""
    columns = [_canonical_array(column) for column in table.columns]
    fields = [pa.field(each.name, each.type) for each in table.schema]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, table.schema.metadata))


def _canonical_array(column: pa.ChunkedArray) -> pa.Array:
    chunks = column.chunks
    array = pa.concat_arrays(chunks) if chunks else pa.array([], column.type)
    zero = _zero(array.type)
    if zero is None:
        return array.take(pa.array(np.arange(len(array))))
    validity = None
    if array.null_count:
        validity = _bitmap(pc.is_valid(array))
        array = pc.fill_null(array, zero)
    if pa.types.is_boolean(array.type):
        return pa.Array.from_buffers(array.type, len(array), [validity, _bitmap(array)])
    if array.offset:
        array = array.take(pa.array(np.arange(len(array))))
    return pa.Array.from_buffers(array.type, len(array), [validity, *array.buffers()[1:]])


def _bitmap(booleans: pa.Array) -> pa.Buffer:
    """One bit per row; bits past the last row are zero, which Arrow does not guarantee."""
    return pa.py_buffer(np.packbits(booleans.to_numpy(zero_copy_only=False), bitorder="little"))


def _zero(kind: pa.DataType) -> Any:
    if pa.types.is_boolean(kind):
        return pa.scalar(False)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.scalar("", kind)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.scalar(b"", kind)
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        return None
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(0), kind)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return pa.scalar(0, pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)
    return pa.scalar(0).cast(kind)
