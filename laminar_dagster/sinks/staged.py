"""Read staged output as Arrow tables, one per file, in the order of the manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pyarrow as pa

from laminar_dagster.core.errors import MalformedDocument
from laminar_dagster.core.manifest import FileEntry
from laminar_dagster.core.ports import StagedOutput
from laminar_dagster.sinks.arrow_values import plain, plain_type

# Smaller files are read as a whole: one request takes longer than a few columns save.
_SMALL: Final = 2**20
_AT_ONCE: Final = 8


def staged_tables(staged: StagedOutput) -> Iterator[pa.Table]:
    """Read the files one by one, with one of them in memory at a time.

    Raises:
        ObjectMissing, ChecksumMismatch: From ``staged.read``.
        MalformedDocument: A file is not an Arrow file, or does not match its manifest entry.
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
        yield without_views(table)


def staged_columns(
    staged: StagedOutput, choose: Callable[[pa.Schema], Sequence[str]]
) -> Iterator[pa.Table]:
    """Read some columns of each file, in order; large files are not read as a whole.

    Args:
        staged: The staged output.
        choose: Chooses columns, given a file's schema.

    Raises:
        ObjectMissing, ChecksumMismatch: From the staged output.
        MalformedDocument: A file is not an Arrow file, or has other columns than the first one.
    """
    files, schema = staged.entry.files, None
    # In parallel, because many small files would each cost the store's latency.
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="check") as pool:
        for start in range(0, len(files), _AT_ONCE):
            some = files[start : start + _AT_ONCE]
            found = pool.map(lambda file: _read_columns(staged, file, choose), some)
            for file, table in zip(some, found, strict=True):
                schema = schema or table.schema
                if not table.schema.equals(schema):
                    reason = "its columns are not those of the files before it"
                    raise MalformedDocument(file.path, reason)
                yield without_views(table)


def without_views(table: pa.Table) -> pa.Table:
    """Convert columns of Arrow's view layout, which Arrow cannot filter or group."""
    for place, field in enumerate(table.schema):
        if _has_view(field.type):
            chunks = [plain(chunk) for chunk in table.column(place).chunks]
            column = pa.chunked_array(chunks, plain_type(field.type))
            table = table.set_column(place, field.with_type(column.type), column)
    return table


def _has_view(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _has_view(kind.value_type)
    parts = (kind.field(place).type for place in range(kind.num_fields))
    is_view = pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)
    return is_view or any(map(_has_view, parts))


def _read_columns(
    staged: StagedOutput, file: FileEntry, choose: Callable[[pa.Schema], Sequence[str]]
) -> pa.Table:
    if staged.open is None or file.size_bytes <= _SMALL:
        source = pa.BufferReader(staged.read(file))
    else:
        source = pa.PythonFile(staged.open(file), mode="r")
    try:
        with source:
            schema = pa.ipc.open_file(source).schema
            names = choose(schema)
            places = [schema.get_field_index(name) for name in names]
            if not places:
                return pa.table({})
            options = pa.ipc.IpcReadOptions(included_fields=places)
            return pa.ipc.open_file(source, options=options).read_all().select(names)
    except (pa.ArrowException, OSError) as error:
        raise MalformedDocument(file.path, f"it is not an Arrow file: {error}") from error


def _read(file: FileEntry, data: bytes) -> pa.Table:
    try:
        with pa.ipc.open_file(pa.BufferReader(data)) as reader:
            return reader.read_all()
    except (pa.ArrowException, OSError) as error:
        raise MalformedDocument(file.path, f"it is not an Arrow file: {error}") from error
