"""The rows of an epoch as the client of Delta Lake pulls them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from laminar_dagster.core.ports import TransactionProgress
from laminar_dagster.sinks.changes import split
from laminar_dagster.sinks.delta.columns import cast
from laminar_dagster.sinks.delta.partitions import check_partition_values


def watched(files: Iterable[pa.Table], progress: TransactionProgress) -> Iterator[pa.Table]:
    """The files; with the last of them, all is there that the commit needs."""
    for file in files:
        progress.wrote(file.num_rows)
        yield file
    progress.committing()


class RowStream:
    """Rows for the client to pull, and the error that ended them, which the client swallows."""

    def __init__(
        self, schema: pa.Schema, files: Iterable[pa.Table], partitioned_by: Sequence[str] = ()
    ) -> None:
        """Cast the files' rows to a schema, one file in memory at a time.

        Args:
            schema: As they are to be written.
            files: Of the epoch.
            partitioned_by: The table's partition columns.
        """
        self._schema = schema
        self._partitioned_by = partitioned_by
        self._files = files
        self.failure: BaseException | None = None

    def reader(self) -> pa.RecordBatchReader:
        """To be read once."""
        return pa.RecordBatchReader.from_batches(self._schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for file in self._files:
                rows = cast(split(file, ()).rows, self._schema)
                check_partition_values(self._partitioned_by, rows)
                yield from rows.to_batches()
        except GeneratorExit:
            # The client has stopped for a reason of its own.
            raise
        except BaseException as error:
            self.failure = error
            raise
