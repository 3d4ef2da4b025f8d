"""Replays a pipeline's stored plans in a branch."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from msgspec import structs

from laminar_dagster.core.branch import BranchRecord, BranchSink, replayed_plan
from laminar_dagster.core.errors import (
    BranchMismatch,
    CannotReplay,
    ObjectExists,
    PipelineChanged,
    RetentionExpired,
    SeekFailed,
    SlotNotFound,
    SourceReplaced,
    TimelineChanged,
)
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.runtime.branches.copying import copy_checkpoint
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.loop import EpochDone
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.references import copy_pins, pin_references
from laminar_dagster.runtime.survey import newest_manifest, survey


@dataclass(frozen=True, slots=True)
class Replay:
    """Replays the epochs of a pipeline in a branch.

    Attributes:
        main: The pipeline's checkpoints; only read.
        branch: The assembled branch, which executes the plans.
        on_step: Called as every step begins.
    """

    main: CheckpointStore
    branch: Pipeline
    record: BranchRecord
    on_step: Callable[[EpochNumber, str], None] | None = None

    def require_version(self, sinks: tuple[BranchSink, ...]) -> None:
        """Refuse to go on with a branch that was made with another version of the pipeline.

        Raises:
            BranchMismatch: Says what differs.
        """
        what = self.record.mismatch_with_version(self.branch.fingerprint, sinks)
        if what:
            raise BranchMismatch(self.record.name, what)

    def run(self) -> Iterator[EpochDone]:
        """Replay every epoch that the pipeline has committed, also those it commits meanwhile.

        Raises:
            CannotReplay: An epoch's plan is gone, or a source no longer holds what it read.
            LaminarError: As ``EpochRunner.run``.
        """
        if self.record.start:
            # The fork may have been interrupted. After a complete copy, this does nothing.
            start = self.main.parent(self.record.start)
            copy_checkpoint(self.main, self.branch.checkpoints, start)
        runner = EpochRunner(self.branch, self.on_step)
        while (epoch := self._next()) is not None:
            try:
                report = runner.run(epoch)
            except (
                RetentionExpired,
                SlotNotFound,
                SourceReplaced,
                TimelineChanged,
                SeekFailed,
                PipelineChanged,
            ) as error:
                raise CannotReplay(epoch, str(error)) from error
            yield EpochDone(report, self.branch.checkpoints.winner(epoch).manifest)

    def _next(self) -> EpochNumber | None:
        """Plan and return the next epoch; None when the branch has caught up, or was promoted."""
        standing = survey(self.branch.checkpoints)
        if standing.unfinished:
            return standing.unfinished[0]
        at = max(standing.newest_epoch, self.record.from_epoch)
        if at >= survey(self.main).newest_epoch:
            return None
        epoch = EpochNumber(at + 1)
        stored = self.main.plan(epoch)
        if stored is None:
            raise CannotReplay(epoch, "its plan has been collected")
        parent = newest_manifest(self.branch.checkpoints, standing)
        if parent and self.record.is_promoted_by(stored, parent.checkpoint_id):
            return None
        replayed = replayed_plan(stored, self.record, parent, self.branch.mint())
        # The epoch's clock comes from the pipeline's plan, the bounds on event time from this one.
        plan = self._pinned(replayed.bounded(self.branch.max_ahead), parent)
        if self.branch.definition:
            self.branch.checkpoints.create_definition(self.branch.definition)
        # Another process that replays the branch may have planned the same epoch.
        with contextlib.suppress(ObjectExists):
            self.branch.checkpoints.create_plan(plan)
        return epoch

    def _pinned(self, plan: EpochPlan, parent: CheckpointManifest | None) -> EpochPlan:
        """The plan with the pipeline's pins, copied to the branch's store, and the branch's own.

        A table that only the branch has, or declares otherwise, has no older copy: it is read now.
        """
        declared = {each.reference_id: each.declaration for each in self.branch.references}
        shared = tuple(
            pin for pin in plan.references if declared.get(pin.reference_id) == pin.declaration
        )
        copy_pins(self.main.objects, self.branch.checkpoints.objects, shared)
        names = {pin.reference_id for pin in shared}
        own = tuple(each for each in self.branch.references if each.reference_id not in names)
        alone = dataclasses.replace(self.branch, references=own)
        pins = (*shared, *pin_references(alone, plan.epoch, parent, plan.clock))
        return structs.replace(plan, references=pins)
