"""Cut an epoch's rows into portions for one statement each, and into batches that fit in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import pyarrow as pa

from laminar_dagster.sinks.changes import Unwritable

# The size of one statement, so that a statement time-out does not limit the size of an epoch.
_BYTES_PER_STATEMENT: Final = 64 * 2**20
_ROWS_PER_BATCH: Final = 16_384
# A batch is assembled in memory, and its offsets have 32 bits.
_BYTES_PER_BATCH: Final = 32 * 2**20

_T = TypeVar("_T")


def portions(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows of all files in their order: small files together, large ones in slices."""
    waiting: list[pa.Table] = []
    size = 0
    for table in tables:
        if waiting and size + table.nbytes > _BYTES_PER_STATEMENT:
            yield from _slices(pa.concat_tables(waiting))
            waiting, size = [], 0
        waiting.append(table)
        size += table.nbytes
    if waiting:
        yield from _slices(pa.concat_tables(waiting))


def batches(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """The rows of a portion in batches, none of them empty."""
    for batch in rows.to_batches(max_chunksize=_ROWS_PER_BATCH):
        yield from _halves(batch)


def ahead(items: Iterator[_T]) -> Iterator[_T]:
    """Compute the next item in a thread while the caller handles the last one."""
    nothing = object()
    with ThreadPoolExecutor(1, thread_name_prefix="encode") as pool:
        following = pool.submit(next, items, nothing)
        while (item := following.result()) is not nothing:
            following = pool.submit(next, items, nothing)
            yield item  # type: ignore[misc]


def check_count(taken: int, sent: int) -> None:
    """Check that all rows were inserted.

    Raises:
        Unwritable: Rows are missing, such as because of a trigger.
    """
    if taken != sent:
        raise Unwritable(
            f"the table took {taken} of {sent} rows; a trigger or a rule leaves rows out"
        )


def _slices(table: pa.Table) -> Iterator[pa.Table]:
    """A table in slices of about the same number of bytes."""
    count = max(1, -(-table.nbytes // _BYTES_PER_STATEMENT))
    rows = max(1, -(-table.num_rows // count))
    yield table.slice(0, rows)
    for start in range(rows, table.num_rows, rows):
        yield table.slice(start, rows)


def _halves(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Halve a batch until its parts are small enough, or have one row."""
    if not batch.num_rows:
        return
    if batch.nbytes <= _BYTES_PER_BATCH or batch.num_rows == 1:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _halves(batch.slice(0, middle))
    yield from _halves(batch.slice(middle))
