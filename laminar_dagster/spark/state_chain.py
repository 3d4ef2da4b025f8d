"""The state of one partition of a window operator: a chain of immutable files.

An epoch adds one file with the partials of its own input and rewrites nothing. Old files are read
only when windows close, and only those that hold such windows. A file whose windows are all closed
leaves the chain. When the chain gets long, its newest files are folded into one; how many is chosen
by size, so that a large old file is rewritten only when as much has come on top of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from laminar_dagster.core import layout
from laminar_dagster.core.errors import ChecksumMismatch, RestoreFailed
from laminar_dagster.core.ids import CheckpointId, OperatorId, PartitionId
from laminar_dagster.core.manifest import PartitionSnapshotEntry
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.spark.aggregates import PartialColumn, merge_partials
from laminar_dagster.spark.arrow_files import file_bytes, file_table, schema_fingerprint, sha256

END: Final = "_end"
MAX_FILES: Final = 8
_METADATA: Final = b"laminar.state"


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A key: its column in the state, the expression it is, and its type."""

    name: str
    sql: str
    arrow_type: pa.DataType


@dataclass(frozen=True, slots=True)
class StateShape:
    """What the rows of a state look like: window end, keys, partials.

    It is kept with the rows, in the metadata of each file's schema.
    """

    operator: OperatorId
    keys: tuple[KeyColumn, ...]
    columns: tuple[PartialColumn, ...]

    @property
    def group(self) -> tuple[str, ...]:
        """What identifies a row."""
        return (END, *(key.name for key in self.keys))

    @property
    def schema(self) -> pa.Schema:
        """Of a file of state."""
        fields = [(END, pa.int64())]
        fields += [(key.name, key.arrow_type) for key in self.keys]
        fields += [(column.name, column.arrow_type) for column in self.columns]
        about = {
            "operator": self.operator,
            "keys": {key.name: key.sql for key in self.keys},
            "partials": {column.name: column.merge for column in self.columns},
        }
        return pa.schema(fields, {_METADATA: json.dumps(about, ensure_ascii=False)})

    @classmethod
    def of_file(cls, schema: pa.Schema) -> StateShape:
        """The shape that a file was written with."""
        about = json.loads(schema.metadata[_METADATA])
        return cls(
            OperatorId(about["operator"]),
            tuple(
                KeyColumn(name, sql, schema.field(name).type) for name, sql in about["keys"].items()
            ),
            tuple(
                PartialColumn(name, None, "count", merge, schema.field(name).type)
                for name, merge in about["partials"].items()
            ),
        )

    @property
    def fingerprint(self) -> str:
        """Changes when a column's name or type does."""
        return schema_fingerprint(self.schema)

    def read(self, table: pa.Table) -> pa.Table:
        """Stored rows as rows of this shape: columns left out, and widened, where it changed.

        Raises:
            ValueError: They cannot be read so.
        """
        wanted = self.schema
        missing = [name for name in wanted.names if name not in table.column_names]
        if missing:
            raise ValueError(f"it holds no {', '.join(missing)}")
        found = table.select(wanted.names)
        try:
            return found.cast(wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ValueError(f"its columns have other types: {error}") from None

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """One row for each window and key, sorted; parts are merged in the order given."""
        names = self.schema.names
        table = pa.concat_tables([part.select(names) for part in parts])
        merged = merge_partials(table, self.group, self.columns, self.operator)
        return merged.sort_by([(name, "ascending") for name in self.group])


@dataclass(frozen=True, slots=True)
class Closing:
    """Windows that end after ``previous`` and not after ``now`` close in this epoch."""

    previous: int | None
    now: int | None

    def has_closed(self, end: int) -> bool:
        """Whether a window is closed after this epoch."""
        return self.now is not None and end <= self.now


@dataclass(frozen=True, slots=True)
class StateChain:
    """The files of one partition, with the origin of each written down."""

    store: ObjectStore
    attempt: CheckpointId
    shape: StateShape
    partition: PartitionId
    files: tuple[PartitionSnapshotEntry, ...]

    def closing_rows(self, closing: Closing) -> list[pa.Table]:
        """The stored rows of windows that close now, file by file."""
        if closing.now is None:
            return []
        found = []
        for entry in self.files:
            if entry.event_time and entry.event_time[0] <= closing.now:
                table = self._read(entry)
                found.append(table.filter(_ends_within(table, closing)))
        return found

    def advance(self, added: pa.Table, closing: Closing) -> tuple[PartitionSnapshotEntry, ...]:
        """The chain after this epoch: without closed files, with the new rows, folded if long.

        Args:
            added: Sorted partials of windows that stay open.
            closing: What closes now.
        """
        kept = tuple(
            entry
            for entry in self.files
            if not (entry.event_time and closing.has_closed(entry.event_time[1]))
        )
        fold = _how_many_to_fold(kept, added.nbytes) if added.num_rows else 0
        if fold:
            older = [_open_rows(self._read(entry), closing) for entry in kept[-fold:]]
            added = self.shape.merge([*older, added])
            kept = kept[:-fold]
        if added.num_rows:
            kept = (*kept, self._write(added, is_incremental=bool(kept)))
        return tuple(
            structs.replace(entry, is_incremental=index > 0) for index, entry in enumerate(kept)
        )

    def _read(self, entry: PartitionSnapshotEntry) -> pa.Table:
        home = entry.origin.checkpoint_id if entry.origin else self.attempt
        key = layout.checkpoint_key(home, entry.path)
        data = self.store.read(key)
        digest = sha256(data)
        if len(data) != entry.size_bytes or digest != entry.sha256:
            raise ChecksumMismatch(key, entry.sha256, digest)
        try:
            return self.shape.read(file_table(data))
        except ValueError as error:
            # Arrow's own errors are among them.
            reason = f"{key} is no state of this shape: {error}"
            raise RestoreFailed(self.shape.operator, self.partition, reason) from None

    def _write(self, rows: pa.Table, *, is_incremental: bool) -> PartitionSnapshotEntry:
        build = layout.delta_path if is_incremental else layout.snapshot_path
        path = build(self.shape.operator, self.partition)
        data = file_bytes(rows.cast(self.shape.schema))
        self.store.put(layout.checkpoint_key(self.attempt, path), data)
        ends = rows.column(END)
        return PartitionSnapshotEntry(
            partition_id=self.partition,
            path=path,
            size_bytes=len(data),
            sha256=sha256(data),
            is_incremental=is_incremental,
            rows=rows.num_rows,
            event_time=(ends[0].as_py(), ends[-1].as_py()),
        )


def _how_many_to_fold(files: tuple[PartitionSnapshotEntry, ...], added_bytes: int) -> int:
    """None while the chain is short; then the newest files, up to the first that outweighs them.

    So every byte is rewritten once for each doubling of what lies on top of it, not in every epoch.
    """
    if len(files) < MAX_FILES:
        return 0
    total, count = added_bytes, 0
    for entry in reversed(files):
        if count and entry.size_bytes > total:
            break
        total += entry.size_bytes
        count += 1
    return count


def _ends_within(table: pa.Table, closing: Closing) -> pa.ChunkedArray:
    closes = pc.less_equal(table.column(END), closing.now)
    if closing.previous is None:
        return closes
    return pc.and_(closes, pc.greater(table.column(END), closing.previous))


def _open_rows(table: pa.Table, closing: Closing) -> pa.Table:
    if closing.now is None:
        return table
    return table.filter(pc.greater(table.column(END), closing.now))
