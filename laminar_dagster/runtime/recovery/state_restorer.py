"""Restores operator state: Arrow files, or files of an unknown state backend as plain bytes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from laminar_dagster.core.errors import RestoreFailed
from laminar_dagster.core.ids import OperatorId, PartitionId
from laminar_dagster.core.manifest import OperatorSnapshotEntry
from laminar_dagster.core.ports import Restorable

if TYPE_CHECKING:
    import pyarrow as pa


def restorer_of(entry: OperatorSnapshotEntry, into: Path | None = None) -> Restorable:
    """The restorer for an operator, by its state backend.

    Args:
        entry: The operator, as a manifest has it.
        into: A folder to write the restored state to, for people.
    """
    if entry.state_backend == "arrow":
        return ArrowState(entry.operator_id, into)
    return OpaqueState(entry.operator_id, into)


class ArrowState:
    """Checks that files are state of the operator, and that they fit together.

    An epoch reads the files by itself, so the rows are not kept. Only when there is a folder are
    the files of a partition merged, and the result written to it.
    """

    def __init__(self, operator_id: OperatorId, into: Path | None = None) -> None:
        """Restore an operator; see ``restorer_of``."""
        self.operator_id = operator_id
        self._into = into
        self._rows: dict[PartitionId, int] = {}
        self._schemas: dict[PartitionId, list[pa.Schema]] = {}
        self._kept: dict[PartitionId, list[pa.Table]] = {}
        # Most files of an operator have one schema, which need not be read more than once.
        self._own_schema: pa.Schema | None = None

    def restore(self, partition: PartitionId, data: bytes) -> None:
        """See ``Restorable.restore``."""
        self._rows[partition] = 0
        self._kept[partition] = []
        self._schemas[partition] = []
        self._take(partition, data)

    def apply_delta(self, partition: PartitionId, data: bytes) -> None:
        """See ``Restorable.apply_delta``."""
        self._take(partition, data)

    def complete(self, partition: PartitionId) -> int | None:
        """See ``Restorable.complete``. Without a folder, a key of several files counts in each."""
        tables, schemas = self._kept.pop(partition, []), self._schemas.pop(partition, [])
        rows = self._rows.pop(partition, 0)
        if not schemas or (self._into is None and all(schemas[-1] == each for each in schemas)):
            return rows
        from laminar_dagster.spark.stored_shape import stored_shape

        try:
            # The newest file says what the rows look like; the older ones have to fit.
            shape = stored_shape(schemas[-1])
            if self._into is None:
                for each in schemas:
                    shape.read(each.empty_table())
                return rows
            merged = shape.merge([shape.read(table) for table in tables])
        except ValueError as error:
            raise RestoreFailed(self.operator_id, partition, str(error)) from None
        from laminar_dagster.spark.arrow_files import file_bytes

        folder = self._into / self.operator_id
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{partition:d}.arrow").write_bytes(file_bytes(merged))
        return int(merged.num_rows)

    def _take(self, partition: PartitionId, data: bytes) -> None:
        # Imported here: only needed when there is state to restore.
        from laminar_dagster.spark.arrow_files import file_table
        from laminar_dagster.spark.stored_shape import stored_shape

        try:
            table = file_table(data)
            known = self._own_schema
            if known is None or not table.schema.equals(known, check_metadata=True):
                shape = stored_shape(table.schema)
                if shape.operator != self.operator_id:
                    raise ValueError(f"it is the state of operator {shape.operator}")
                self._own_schema = table.schema
        except (ValueError, KeyError, TypeError) as error:
            # Arrow's errors are subclasses of these.
            reason = f"the bytes are no state of it: {error}"
            raise RestoreFailed(self.operator_id, partition, reason) from None
        self._schemas.setdefault(partition, []).append(table.schema)
        self._rows[partition] = self._rows.get(partition, 0) + table.num_rows
        if self._into is not None:
            self._kept.setdefault(partition, []).append(table)


class OpaqueState:
    """State of an unknown backend: its files have the right hashes, and nothing else is checked."""

    def __init__(self, operator_id: OperatorId, into: Path | None = None) -> None:
        """Restore an operator; with a folder, its files are copied there as they are."""
        self.operator_id = operator_id
        self._into = into
        self._files: dict[PartitionId, int] = {}

    def restore(self, partition: PartitionId, data: bytes) -> None:
        """See ``Restorable.restore``."""
        self._files[partition] = 0
        self._take(partition, data)

    def apply_delta(self, partition: PartitionId, data: bytes) -> None:
        """See ``Restorable.apply_delta``."""
        self._take(partition, data)

    def complete(self, partition: PartitionId) -> int | None:
        """See ``Restorable.complete``."""
        self._files.pop(partition, None)
        return None

    def _take(self, partition: PartitionId, data: bytes) -> None:
        number = self._files.get(partition, 0)
        self._files[partition] = number + 1
        if self._into is None:
            return
        folder = self._into / self.operator_id
        folder.mkdir(parents=True, exist_ok=True)
        suffix = "delta" if number else "snap"
        (folder / f"{partition:d}-{number}.{suffix}").write_bytes(data)
