"""Compares the output of a branch with its pipeline's, epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from laminar_dagster.core.branch import BranchRecord
from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.runtime.branches.outputs import epochs_after, read_output, sink_entry
from laminar_dagster.runtime.branches.records import branch_checkpoints, replayed_until
from laminar_dagster.runtime.branches.rows import compare_rows
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.survey import survey


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """How the output of one epoch for one sink differs between pipeline and branch.

    Attributes:
        only_main: Rows that only the pipeline has output; None when there are none.
        only_branch: Rows that only the branch has output.
    """

    sink_id: SinkId
    epoch: EpochNumber
    rows_main: int
    rows_branch: int
    only_main: pa.Table | None = None
    only_branch: pa.Table | None = None

    @property
    def removed(self) -> int:
        """How many rows only the pipeline has."""
        return self.only_main.num_rows if self.only_main is not None else 0

    @property
    def added(self) -> int:
        """How many rows only the branch has."""
        return self.only_branch.num_rows if self.only_branch is not None else 0

    @property
    def is_same(self) -> bool:
        """Whether both have the same rows, in whatever order."""
        return not self.removed and not self.added


def compare_outputs(main: CheckpointStore, record: BranchRecord) -> Iterator[OutputDifference]:
    """Compare every epoch that both have, for every sink of the branch, in order.

    One epoch of one sink is in memory at a time. Where the hashes are equal, nothing is read.

    Raises:
        ObjectMissing, ChecksumMismatch, MalformedDocument: Staged output is gone, or damaged.
    """
    branch = branch_checkpoints(main, record.name)
    last = min(survey(main).newest_epoch, replayed_until(main, record))
    for epoch in epochs_after(record.from_epoch, last):
        ours, theirs = main.winner(epoch).manifest, branch.winner(epoch).manifest
        for sink in record.sinks:
            yield _compare(main, ours, branch, theirs, sink.sink_id)


def _compare(
    main: CheckpointStore,
    ours: CheckpointManifest,
    branch: CheckpointStore,
    theirs: CheckpointManifest,
    sink_id: SinkId,
) -> OutputDifference:
    rows = _rows(ours, sink_id), _rows(theirs, sink_id)
    if is_identical(ours, theirs, sink_id):
        return OutputDifference(sink_id, ours.epoch, *rows)
    old, new = read_output(main, ours, sink_id), read_output(branch, theirs, sink_id)
    if old is not None and new is not None:
        found = compare_rows(old, new)
        old, new = found.only_old, found.only_new
    return OutputDifference(sink_id, ours.epoch, *rows, old, new)


def is_identical(one: CheckpointManifest, other: CheckpointManifest, sink_id: SinkId) -> bool:
    """Whether two checkpoints have the same output for a sink, by its hash."""
    entries = sink_entry(one, sink_id), sink_entry(other, sink_id)
    hashes = {each.output_sha256 for each in entries if each and each.files}
    return len(hashes) <= 1 and len({bool(each and each.files) for each in entries}) == 1


def _rows(manifest: CheckpointManifest, sink_id: SinkId) -> int:
    entry = sink_entry(manifest, sink_id)
    return sum(file.rows for file in entry.files) if entry else 0
