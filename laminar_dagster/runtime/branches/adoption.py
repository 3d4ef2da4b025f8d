"""Copies the state of a branch into a checkpoint of its pipeline."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from laminar_dagster.core import layout
from laminar_dagster.core.errors import RestoreFailed
from laminar_dagster.core.ids import CheckpointId, OperatorId, PartitionId
from laminar_dagster.core.manifest import (
    CheckpointManifest,
    OperatorSnapshotEntry,
    PartitionSnapshotEntry,
)
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.runtime.checked_files import read_verified
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.spark.arrow_files import file_bytes, file_table, sha256
from laminar_dagster.spark.columns import END
from laminar_dagster.spark.stored_shape import stored_shape

# Each holds one partition in memory.
_WORKERS: Final = 2
_ARROW: Final = "arrow"


def adopt_state(
    branch: CheckpointStore,
    manifest: CheckpointManifest,
    target: ObjectStore,
    attempt: CheckpointId,
) -> tuple[OperatorSnapshotEntry, ...]:
    """Write each partition of a branch's state as one full file of an attempt.

    A chain of files is merged, since a manifest can only name files of its own store; the same
    state gives the same bytes. Single partitions are in memory, never the whole state.

    Raises:
        ObjectMissing, ChecksumMismatch, RestoreFailed: A file is gone, or damaged.
    """
    return tuple(_adopt(branch, manifest, entry, target, attempt) for entry in manifest.operators)


def _adopt(
    branch: CheckpointStore,
    manifest: CheckpointManifest,
    entry: OperatorSnapshotEntry,
    target: ObjectStore,
    attempt: CheckpointId,
) -> OperatorSnapshotEntry:
    chains: defaultdict[PartitionId, list[PartitionSnapshotEntry]] = defaultdict(list)
    for part in entry.partitions:
        chains[part.partition_id].append(part)

    def read(part: PartitionSnapshotEntry) -> bytes:
        key = layout.checkpoint_key(manifest.origin_of(part).checkpoint_id, part.path)
        return read_verified(branch.objects, key, part.size_bytes, part.sha256)

    def write(chain: list[PartitionSnapshotEntry]) -> PartitionSnapshotEntry | None:
        last = chain[-1]
        if entry.state_backend == _ARROW:
            return _merged(
                entry.operator_id, chain, [read(part) for part in chain], target, attempt
            )
        if len(chain) > 1:
            reason = f"files of the state backend {entry.state_backend} cannot be merged"
            raise RestoreFailed(entry.operator_id, last.partition_id, reason)
        path = layout.snapshot_path(entry.operator_id, last.partition_id)
        target.put(layout.checkpoint_key(attempt, path), read(last))
        return structs.replace(last, path=path, is_incremental=False, origin=None)

    with ThreadPoolExecutor(_WORKERS, thread_name_prefix="adopt") as pool:
        written = [*pool.map(write, (chains[each] for each in sorted(chains)))]
    return structs.replace(entry, partitions=tuple(each for each in written if each))


def _merged(
    operator: OperatorId,
    chain: list[PartitionSnapshotEntry],
    files: list[bytes],
    target: ObjectStore,
    attempt: CheckpointId,
) -> PartitionSnapshotEntry | None:
    """The open rows of a chain as one file; None when there is none."""
    partition = chain[0].partition_id
    try:
        tables = [file_table(data) for data in files]
        # The newest file has the current columns; older ones are converted to them.
        shape = stored_shape(tables[-1].schema)
        rows = shape.merge([shape.read(table) for table in tables])
    except (ValueError, KeyError) as error:
        # Arrow's errors are subclasses of these.
        raise RestoreFailed(operator, partition, str(error)) from None
    still_open = [part.event_time[0] for part in chain if part.event_time]
    if still_open:
        # Windows that end earlier are closed in every file of the chain: leave them out.
        is_open = pc.greater_equal(rows.column(END), pa.scalar(min(still_open)))
        rows = rows.filter(pc.fill_null(is_open, True))
    if not rows.num_rows:
        return None
    path = layout.snapshot_path(operator, partition)
    data = file_bytes(rows.cast(shape.schema))
    target.put(layout.checkpoint_key(attempt, path), data)
    return PartitionSnapshotEntry(
        partition_id=partition,
        path=path,
        size_bytes=len(data),
        sha256=sha256(data),
        rows=rows.num_rows,
        event_time=shape.bounds(rows),
    )
