"""Makes a branch: checks that it can be made, writes its record, copies the first checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from laminar_dagster.core import layout
from laminar_dagster.core.branch import BranchRecord, BranchSink
from laminar_dagster.core.deployment import OperatorChange
from laminar_dagster.core.document import FORMAT_VERSION
from laminar_dagster.core.errors import (
    BranchMismatch,
    CannotFork,
    CannotReplay,
    EpochNotCommitted,
)
from laminar_dagster.core.ids import GENESIS, BranchName, EpochNumber, PipelineName
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.prepared import LatestPointer
from laminar_dagster.runtime.branches.copying import copy_checkpoint
from laminar_dagster.runtime.branches.records import create_branch, look_for_branch
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.deployment import changes_since
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.survey import find_epoch, survey


@dataclass(frozen=True, slots=True)
class Fork:
    """A branch that was made.

    Attributes:
        changes: Each operator's verdict (keep, new, …) on its state at the starting checkpoint.
    """

    record: BranchRecord
    changes: tuple[OperatorChange, ...]


def fork(
    main: CheckpointStore,
    branch: Pipeline,
    name: BranchName,
    pipeline: PipelineName,
    from_epoch: EpochNumber,
    sinks: tuple[BranchSink, ...],
    progress: Callable[[int], None] = lambda _bytes: None,
) -> Fork:
    """Make a branch, or finish one that was begun with the same arguments.

    1. Check that the pipeline can be replayed from there, with the version at hand.
    2. Write the record. From here on nothing that the branch needs is collected.
    3. Copy the checkpoint it starts from.

    Args:
        main: The pipeline's checkpoints. Nothing but the branch's folder is written to.
        branch: The assembled branch, which will replay the plans into the branch's store.
        name: The name of the branch.
        pipeline: The name of its pipeline.
        from_epoch: The last epoch that it shares with the pipeline; 0 for none.
        sinks: The sinks of the version at hand.
        progress: Called with the number of bytes that were copied, from several threads.

    Raises:
        EpochNotCommitted: The pipeline is not that far.
        CannotReplay: An epoch that would have to be replayed is gone; says which.
        CannotFork: The version at hand cannot go on with the state of that epoch.
        BranchMismatch: Another branch has the name, or has left files behind.
    """
    # Step 1.
    # Files before the record: a process that makes the same branch now writes the record first.
    folder = layout.branch_folder(name)
    has_files = next(iter(main.objects.list(folder)), None) is not None
    found = look_for_branch(main.objects, name)
    if has_files and found is None:
        what = f"has no record, and there are files in {folder}, left by one that was dropped"
        raise BranchMismatch(name, f"{what}; remove them or take another name")
    if found and found.from_epoch != from_epoch:
        raise BranchMismatch(name, f"was made from epoch {found.from_epoch}, not {from_epoch}")
    start = _start(main, from_epoch)
    changes = _changes(main, branch, start)
    # Step 2.
    record = create_branch(
        main.objects,
        BranchRecord(
            version=FORMAT_VERSION,
            name=name,
            pipeline=pipeline,
            from_epoch=from_epoch,
            start=LatestPointer.to(start).as_parent() if start else None,
            fingerprint=branch.fingerprint,
            created_at=branch.clock.now(),
            sinks=sinks,
        ),
    )
    # Step 3.
    if start:
        copy_checkpoint(main, branch.checkpoints, start, progress)
    return Fork(record, changes)


def _start(main: CheckpointStore, from_epoch: EpochNumber) -> CheckpointManifest | None:
    """The checkpoint to start from, after checking that the next epoch can be replayed."""
    newest = survey(main).newest_epoch
    if from_epoch > newest or newest == GENESIS:
        raise EpochNotCommitted(from_epoch if from_epoch > newest else GENESIS.next())
    start = None
    if from_epoch > GENESIS:
        start = find_epoch(main, from_epoch).manifest
        if start is None:
            reason = "its checkpoint, from which the branch would start, has been collected"
            raise CannotReplay(from_epoch, reason)
    following = from_epoch.next()
    if following <= newest and not (main.plan(following) and find_epoch(main, following).manifest):
        raise CannotReplay(following, "its plan and its output have been collected")
    return start


def _changes(
    main: CheckpointStore, branch: Pipeline, start: CheckpointManifest | None
) -> tuple[OperatorChange, ...]:
    if branch.definition is None:
        return ()
    changes = changes_since(branch.definition, start, main)
    for change in changes:
        if start and change.verdict not in ("keep", "migrate", "new", "drop"):
            raise CannotFork(start.epoch, change.operator_id, "; ".join(change.reasons))
    return changes
