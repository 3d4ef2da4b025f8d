"""The rows of an epoch as a stream that the Delta client pulls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from laminar_dagster.core.ports import TransactionProgress
from laminar_dagster.sinks.changes import split
from laminar_dagster.sinks.delta.columns import cast
from laminar_dagster.sinks.delta.partitions import check_partition_values


def watched(files: Iterable[pa.Table], progress: TransactionProgress) -> Iterator[pa.Table]:
    """Yield the files, and report their rows; report ``committing`` after the last one."""
    for file in files:
        progress.wrote(file.num_rows)
        yield file
    progress.committing()


class RowStream:
    """Rows for the client to pull. Keeps the error that ended them: the client would lose it."""

    def __init__(
        self, schema: pa.Schema, files: Iterable[pa.Table], partitioned_by: Sequence[str] = ()
    ) -> None:
        """Cast the files' rows to a schema, one file in memory at a time.

        Args:
            schema: The schema in which rows are written.
            files: The epoch's staged files.
            partitioned_by: The table's partition columns.
        """
        self._schema = schema
        self._partitioned_by = partitioned_by
        self._files = files
        self.failure: BaseException | None = None

    def reader(self) -> pa.RecordBatchReader:
        """A reader of all rows, which can be consumed once."""
        return pa.RecordBatchReader.from_batches(self._schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for file in self._files:
                rows = cast(split(file, ()).rows, self._schema)
                check_partition_values(self._partitioned_by, rows)
                yield from rows.to_batches()
        except GeneratorExit:
            # The client stopped pulling; the rows are not at fault, so this is no failure.
            raise
        except BaseException as error:
            self.failure = error
            raise
