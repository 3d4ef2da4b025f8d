"""Finds the corrections of all sinks, from what pipeline and branch output since the fork."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from laminar_dagster.core.branch import BranchRecord, BranchSink
from laminar_dagster.core.errors import BranchMismatch, CannotRetract
from laminar_dagster.core.ids import GENESIS, EpochNumber, SinkId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.runtime.branches.comparing import is_identical
from laminar_dagster.runtime.branches.corrections import (
    Beginning,
    Correction,
    correct_append,
    correct_upsert,
)
from laminar_dagster.runtime.branches.outputs import epochs_after, read_output, sink_entry
from laminar_dagster.runtime.branches.records import branch_checkpoints
from laminar_dagster.runtime.branches.rows import comparable
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.state_reader import closed_until


@dataclass(frozen=True, slots=True)
class _Epoch:
    """An epoch as the pipeline and as the branch have computed it."""

    main: CheckpointManifest
    branch: CheckpointManifest


def find_corrections(
    main: CheckpointStore, record: BranchRecord, parent: CheckpointManifest
) -> dict[SinkId, Correction]:
    """The correction of each sink that makes it hold the branch's output.

    In memory are only epochs that differ, and of the others the rows with keys that those touch.

    Args:
        main: The pipeline's checkpoints.
        record: The record of a branch that has replayed all of the pipeline's epochs.
        parent: The pipeline's newest checkpoint.

    Raises:
        CannotRetract: Names every sink that cannot be corrected.
        BranchMismatch: Another version has computed an epoch of the branch.
        ObjectMissing, ChecksumMismatch, MalformedDocument: Staged output is gone, or damaged.
    """
    branch = branch_checkpoints(main, record.name)
    epochs = [
        _Epoch(main.winner(epoch).manifest, branch.winner(epoch).manifest)
        for epoch in epochs_after(record.from_epoch, parent.epoch)
    ]
    for each in epochs:
        if each.branch.fingerprint != record.fingerprint:
            # Left by a process that replayed an earlier branch of this name while it was dropped.
            what = f"holds an epoch {each.branch.epoch} that another version has computed"
            raise BranchMismatch(record.name, f"{what}; drop it and make it anew")
    found = {
        sink.sink_id: _correct(main, branch, record, sink, parent, epochs) for sink in record.sinks
    }
    problems = tuple(f"sink {name}: {each.problem}" for name, each in found.items() if each.problem)
    if problems:
        raise CannotRetract(record.name, problems)
    return found


def _correct(
    main: CheckpointStore,
    branch: CheckpointStore,
    record: BranchRecord,
    sink: BranchSink,
    parent: CheckpointManifest,
    epochs: list[_Epoch],
) -> Correction:
    took_part = sink_entry(parent, sink.sink_id)
    # A new sink gets the branch's whole output; one that joined late, the output from then on.
    joined = took_part.joined_at if took_part else record.from_epoch.next()
    mine = [each for each in epochs if each.main.epoch >= joined]
    differing = [each for each in mine if not is_identical(each.main, each.branch, sink.sink_id)]
    if not differing:
        return Correction()
    try:
        if sink.mode == "append":
            old = _joined(read_output(main, each.main, sink.sink_id) for each in differing)
            new = _joined(read_output(branch, each.branch, sink.sink_id) for each in differing)
            return correct_append(old, new)
        earlier = [each.branch for each in epochs if each.main.epoch < joined]
        old, new = _by_key(main, branch, sink, mine, differing, earlier)
        before = _before(main, branch, record, sink, joined)
        return correct_upsert(old, new, sink, before)
    except pa.ArrowException as error:
        return Correction(problem=f"its columns have changed: {error}")


def _by_key(
    main: CheckpointStore,
    branch: CheckpointStore,
    sink: BranchSink,
    epochs: list[_Epoch],
    differing: list[_Epoch],
    earlier: list[CheckpointManifest],
) -> tuple[pa.Table | None, pa.Table | None]:
    """The rows of either side whose keys occur in an epoch that differs, in order.

    Of the branch, rows from before the sink joined are included: without them, a key that the
    branch wrote only then would look as if only the pipeline had it.
    """
    pairs: dict[EpochNumber, tuple[pa.Table | None, pa.Table | None]] = {}
    for each in differing:
        old = read_output(main, each.main, sink.sink_id)
        new = read_output(branch, each.branch, sink.sink_id)
        pairs[each.main.epoch] = old, new
    touched = _joined(_keys(table, sink.key) for pair in pairs.values() for table in pair)
    for each in epochs:
        if each.main.epoch not in pairs and touched is not None:
            both = read_output(main, each.main, sink.sink_id)
            both = _among(both, touched, sink.key) if both is not None else None
            pairs[each.main.epoch] = both, both
    ordered = [pairs[epoch] for epoch in sorted(pairs)]
    before: list[pa.Table] = []
    for manifest in earlier if touched is not None else ():
        rows = read_output(branch, manifest, sink.sink_id)
        if rows is not None:
            before.append(_among(rows, touched, sink.key))
    return _joined(old for old, _ in ordered), _joined([*before, *(new for _, new in ordered)])


def _before(
    main: CheckpointStore,
    branch: CheckpointStore,
    record: BranchRecord,
    sink: BranchSink,
    joined: EpochNumber,
) -> Beginning:
    """What a sink held before the epochs that are corrected."""
    if record.from_epoch == GENESIS or joined > record.from_epoch:
        return Beginning(is_empty=True)
    if record.start is None or sink.window is None:
        return Beginning(is_empty=False)
    start = branch.parent(record.start)
    mark = closed_until(main, start, sink.window.operator_id)
    if not any(each.operator_id == sink.window.operator_id for each in start.operators):
        # The operator had no state then, so its older rows came from another query: none is open.
        mark = 2**63 - 1
    return Beginning(is_empty=False, closed_until=mark)


def _joined(tables: Iterable[pa.Table | None]) -> pa.Table | None:
    found = [each for each in tables if each is not None]
    return pa.concat_tables(found, promote_options="permissive") if found else None


def _keys(table: pa.Table | None, key: tuple[str, ...]) -> pa.Table | None:
    if table is None or not set(key) <= set(table.column_names):
        return None
    return pa.table({f"k{n}": comparable(table.column(name)) for n, name in enumerate(key)})


def _among(table: pa.Table, touched: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """The rows of a table whose keys are among others, in their order."""
    keys = _keys(table, key)
    if keys is None:
        return table
    numbered = keys.cast(touched.schema).append_column("row", pa.arange(0, table.num_rows))
    found = numbered.join(touched, touched.column_names, join_type="left semi", use_threads=False)
    return table.take(found.column("row").combine_chunks().sort())
