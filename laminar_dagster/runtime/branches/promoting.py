"""Promotes a branch: its state becomes the pipeline's and the sinks are corrected, in one epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from laminar_dagster.core.branch import BranchRecord
from laminar_dagster.core.errors import (
    NoCheckpointAvailable,
    PipelineMovesOn,
    UpkeepFenced,
    UpkeepWaits,
)
from laminar_dagster.core.ids import BranchName, EpochNumber, SinkId
from laminar_dagster.core.manifest import CheckpointManifest, FileEntry
from laminar_dagster.core.plan import SinkPlan
from laminar_dagster.core.ports import StagedOutput
from laminar_dagster.core.prepared import LatestPointer
from laminar_dagster.core.upkeep import Promotion
from laminar_dagster.runtime.branches.accumulation import find_corrections
from laminar_dagster.runtime.branches.corrections import Correction
from laminar_dagster.runtime.branches.outputs import sink_entry
from laminar_dagster.runtime.branches.promotion import describe_correction, require_level
from laminar_dagster.runtime.branches.records import (
    branch_checkpoints,
    read_branch,
    stored_branch,
)
from laminar_dagster.runtime.branches.replaying import Replay
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.epoch import EpochReport, EpochRunner
from laminar_dagster.runtime.loop import EpochDone
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.survey import newest_manifest, survey
from laminar_dagster.runtime.upkeep import plan_upkeep

ROUNDS: Final = 5
_PAUSE: Final = 1.0


@dataclass(frozen=True, slots=True)
class Promoted:
    """A branch that was promoted.

    Attributes:
        report: The report of the promotion's epoch; None when that was finished before.
    """

    epoch: EpochNumber
    manifest: CheckpointManifest
    report: EpochReport | None


@dataclass(frozen=True, slots=True)
class Promoter:
    """Replays a branch up to its pipeline's newest epoch, and then promotes it.

    Attributes:
        pipeline: The pipeline as the project is now: the version that computed the branch.
        on_epoch: Called with every epoch that was replayed first.
        on_step: Called with every step of the promotion's own epoch.
    """

    pipeline: Pipeline
    replay: Replay
    on_epoch: Callable[[EpochDone], None] = lambda _done: None
    on_step: Callable[[EpochNumber, str], None] | None = None
    rounds: int = ROUNDS

    @property
    def _record(self) -> BranchRecord:
        return self.replay.record

    def promote(self) -> Promoted:
        """Promote the branch. Idempotent: an unfinished promotion is continued.

        1. Replay what the pipeline has committed and the branch has not.
        2. Find every correction, before anything is written: if one sink cannot be corrected,
           nothing is promoted.
        3. Plan the epoch after the pipeline's newest as the promotion. If the pipeline has planned
           it for records meanwhile, start over.
        4. Run that epoch as any other.

        Raises:
            CannotRetract: A sink cannot be corrected. Nothing has changed.
            UnknownBranch, BranchMismatch: The branch is being dropped.
            PipelineMovesOn: The pipeline planned its next epoch first every time.
            UpkeepWaits: An epoch of the pipeline does not get finished.
            LaminarError: As ``Replay.run`` and ``EpochRunner.run``.
        """
        waits: UpkeepWaits | None = None
        for _ in range(self.rounds):
            waits = None
            epoch = self._begun()
            if epoch is None:
                try:
                    epoch = self._plan()
                except UpkeepWaits as error:
                    waits = error
                    self.pipeline.clock.sleep(_PAUSE)
            # Step 4.
            if epoch is not None:
                return self._run(epoch)
        if waits:
            raise waits
        raise PipelineMovesOn(self._record.name, survey(self.pipeline.checkpoints).newest_epoch)

    def _begun(self) -> EpochNumber | None:
        """The epoch of the promotion, if it has been planned already."""
        return promoted_at(self.pipeline.checkpoints, self._record.name)

    def _plan(self) -> EpochNumber | None:
        """Plan the promotion and return its epoch; None when the pipeline planned that first."""
        checkpoints = self.pipeline.checkpoints
        standing = survey(checkpoints)
        if standing.unfinished:
            raise UpkeepWaits(standing.unfinished[0])
        # Step 1.
        for done in self.replay.run():
            self.on_epoch(done)
        parent = newest_manifest(checkpoints, survey(checkpoints))
        replayed = self.replay.branch.checkpoints
        branch = newest_manifest(replayed, survey(replayed))
        if parent is None or branch is None:
            raise NoCheckpointAvailable(checkpoints.objects.url)
        if parent.epoch != branch.epoch:
            return None
        # Step 2.
        require_level(self._record, branch, parent)
        self._require_fit(find_corrections(checkpoints, self._record, parent), parent)
        # Step 3.
        pointer = LatestPointer.to(branch)
        promotion = Promotion(
            branch=self._record.name,
            checkpoint_id=pointer.checkpoint_id,
            manifest_checksum=pointer.manifest_checksum,
            record_checksum=self._record.identity,
        )
        # A plan that names a branch which is being dropped could never be carried out.
        read_branch(checkpoints.objects, self._record.name)
        try:
            return plan_upkeep(self.pipeline, promotion, parent.epoch.next())
        except UpkeepFenced:
            return None

    def _require_fit(
        self, corrections: dict[SinkId, Correction], parent: CheckpointManifest
    ) -> None:
        """Ask every sink whether it could take its correction, while nothing is planned.

        The gate asks the same, but there a correction that is too large stops the pipeline.

        Raises:
            InvalidConfig, BufferOverflow: A sink could not, and why.
        """
        for sink in self.pipeline.sinks:
            found = corrections.get(sink.sink_id)
            if found and found.rows is not None:
                before = sink_entry(parent, sink.sink_id)
                joined = before.joined_at if before else parent.epoch.next()
                plan = SinkPlan(sink_id=sink.sink_id, joined_at=joined)
                entry, data = describe_correction(plan, found.rows)
                sink.check(found.rows.schema, StagedOutput(entry, partial(_the_only_file, data)))

    def _run(self, epoch: EpochNumber) -> Promoted:
        checkpoints = self.pipeline.checkpoints
        report = None
        if epoch > survey(checkpoints).confirmed:
            report = EpochRunner(self.pipeline, self.on_step).run(epoch)
        return Promoted(epoch, checkpoints.winner(epoch).manifest, report)


def _the_only_file(data: bytes, _file: FileEntry) -> bytes:
    return data


def promoted_at(main: CheckpointStore, name: BranchName) -> EpochNumber | None:
    """The epoch that is the promotion of a branch, finished or not; None when there is none.

    It follows the last epoch that the branch has replayed, and names its very checkpoint and
    record: a branch of the same name that was dropped long ago is not taken for this one.

    Raises:
        IntegrityError: The record of the branch is damaged.
    """
    record = stored_branch(main.objects, name)
    latest = branch_checkpoints(main, name).latest()
    if record is None or latest is None:
        return None
    planned = main.plan(latest.epoch.next())
    if planned and record.is_promoted_by(planned, latest.checkpoint_id):
        return planned.epoch
    return None
