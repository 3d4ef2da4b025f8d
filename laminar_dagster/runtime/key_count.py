"""Finds duplicate keys in a sink, before anything is published.

Where a view's query does not show that a sink's key is unique, rows are counted by key: those that
the epoch inserts without a retraction, and those that are in the sink already. Of two rows with
one key, the sink would silently keep only one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from laminar_dagster.core import layout
from laminar_dagster.core.errors import SinkUnavailable
from laminar_dagster.core.gate import KEY_NOT_UNIQUE
from laminar_dagster.core.ids import CheckpointId, EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest, FileEntry, SinkEntry
from laminar_dagster.core.ports import EpochOutput, Searchable, Sink, StagedOutput, Violation
from laminar_dagster.runtime.checked_files import read_verified
from laminar_dagster.runtime.pipeline import CountedKey, Pipeline
from laminar_dagster.runtime.staged_schema import open_staged, staged_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from laminar_dagster.core.ports import HeldKeys

# Another process may commit an epoch while the sink is searched.
_TRIES: Final = 5


def find_repeated_keys(
    pipeline: Pipeline,
    epoch: EpochNumber,
    attempt: CheckpointId,
    parent: CheckpointManifest | None,
    output: EpochOutput,
) -> Iterator[Violation]:
    """Rows of an epoch that would overwrite each other, or rows that a sink holds.

    Args:
        pipeline: The pipeline with the sinks.
        epoch: The epoch.
        attempt: The attempt whose output is staged.
        parent: The checkpoint that the epoch builds on; sinks may still be behind it.
        output: What was computed.

    Raises:
        RetryError: A sink is unavailable, so its keys cannot be checked.
    """
    for entry in output.sinks:
        counted, sink = pipeline.counted.get(entry.sink_id), pipeline.sink(entry.sink_id)
        if counted is not None and sink is not None and entry.files:
            problem = _Count(pipeline, sink, counted, epoch).problem(attempt, entry, parent)
            if problem:
                yield Violation(KEY_NOT_UNIQUE, str(entry.sink_id), problem)


class _Count:
    """Counts the rows of one sink by key."""

    def __init__(
        self, pipeline: Pipeline, sink: Sink, counted: CountedKey, epoch: EpochNumber
    ) -> None:
        self._checkpoints = pipeline.checkpoints
        self._sink = sink
        self._counted = counted
        self._epoch = epoch

    def problem(
        self, attempt: CheckpointId, entry: SinkEntry, parent: CheckpointManifest | None
    ) -> str:
        """The duplicate keys, in words; empty if there are none."""
        # Imported here: a pipeline whose keys are known does not count.
        from laminar_dagster.sinks.key_counts import changes_by_key, repeated

        key = self._counted.key
        changes = changes_by_key([self._staged(attempt, entry)], key)
        if changes is None:
            return ""
        found = repeated(changes, key)
        if found.count:
            return self._told(f"{_keys(found)} more than one row in this epoch")
        held = self._held(changes, attempt, entry, parent)
        if held is None or not held.count:
            return ""
        return self._told(f"{_keys(held)} a row already, which is not taken back before")

    def _held(
        self,
        changes: pa.Table,
        attempt: CheckpointId,
        entry: SinkEntry,
        parent: CheckpointManifest | None,
    ) -> HeldKeys | None:
        """Keys inserted by the epoch that the sink holds already; None if that cannot be found."""
        from laminar_dagster.sinks.key_counts import changes_by_key, to_look_up

        sink, key = self._sink, self._counted.key
        if not isinstance(sink, Searchable):
            return None
        schema = staged_schema(self._checkpoints.objects, attempt, entry.files[0])
        for _ in range(_TRIES):
            ledger = sink.ledger()
            if ledger is not None and ledger >= self._epoch:
                # Another attempt at the epoch has won, and its rows are in the sink.
                return None
            behind = self._behind(ledger or entry.joined_at.previous(), parent)
            wanted, held = to_look_up(changes, changes_by_key(reversed(behind), key), key)
            if not held.count and wanted.num_rows:
                held = sink.held_keys(schema, wanted)
            if sink.ledger() == ledger:
                return held
        reason = "it is written to while its keys are counted"
        raise SinkUnavailable(self._sink.sink_id, reason)

    def _behind(self, ledger: EpochNumber, parent: CheckpointManifest | None) -> list[StagedOutput]:
        """Committed output that the sink has not taken yet, the newest epoch first."""
        found: list[StagedOutput] = []
        manifest = parent
        while manifest is not None and manifest.epoch > ledger:
            found += [
                self._staged(manifest.checkpoint_id, entry)
                for entry in manifest.sinks
                if entry.sink_id == self._sink.sink_id
            ]
            before = manifest.previous_checkpoint_id
            manifest = self._checkpoints.manifest(before) if before else None
        return found

    def _staged(self, checkpoint: CheckpointId, entry: SinkEntry) -> StagedOutput:
        store = self._checkpoints.objects

        def read(file: FileEntry) -> bytes:
            key = layout.checkpoint_key(checkpoint, file.path)
            return read_verified(store, key, file.size_bytes, file.sha256)

        return StagedOutput(entry, read, open=partial(open_staged, store, checkpoint))

    def _told(self, found: str) -> str:
        columns = ", ".join(self._counted.key)
        return (
            f"rows of view `{self._counted.view}` would overwrite each other, because"
            f" `{columns}` is not a key of them: {found}; name more columns in the key"
            f" ({self._counted.place}), or choose one row of each in the view:"
            f" ROW_NUMBER() OVER (PARTITION BY {columns} ORDER BY … DESC) = 1"
        )


def _keys(found: HeldKeys) -> str:
    if found.count == 1:
        return f"the key {found.example} has"
    return f"{found.count} keys, such as {found.example}, have"
