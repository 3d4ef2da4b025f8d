"""Reads the output that an epoch has staged for a sink."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from laminar_dagster.core import layout
from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.core.manifest import CheckpointManifest, FileEntry, SinkEntry
from laminar_dagster.core.ports import StagedOutput
from laminar_dagster.runtime.checked_files import read_verified
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.sinks.staged import staged_tables


def sink_entry(manifest: CheckpointManifest, sink_id: SinkId) -> SinkEntry | None:
    """The manifest's entry of a sink; None when the sink took no part in the epoch."""
    return next((each for each in manifest.sinks if each.sink_id == sink_id), None)


def read_output(
    checkpoints: CheckpointStore, manifest: CheckpointManifest, sink_id: SinkId
) -> pa.Table | None:
    """The rows that an epoch has output for a sink, in order; None when it staged no file.

    Raises:
        ObjectMissing, ChecksumMismatch, MalformedDocument: A file is gone, or damaged.
    """
    entry = sink_entry(manifest, sink_id)
    if entry is None or not entry.files:
        return None

    def read(file: FileEntry) -> bytes:
        key = layout.checkpoint_key(manifest.checkpoint_id, file.path)
        return read_verified(checkpoints.objects, key, file.size_bytes, file.sha256)

    return pa.concat_tables(staged_tables(StagedOutput(entry, read)))


def epochs_after(first: EpochNumber, last: EpochNumber) -> Iterator[EpochNumber]:
    """The epochs after ``first``, up to and including ``last``."""
    return (EpochNumber(each) for each in range(first + 1, last + 1))
