"""The recovery manager: from a store in any state to one that the next run can go on with.

It reads everything that is needed before it changes anything; it refuses, naming what is lost, if
that cannot be repaired; and whatever it writes is what was there before. So it may be run twice,
beside a running pipeline, and again after it was killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from laminar_dagster.core import layout, protocol
from laminar_dagster.core.errors import (
    EpochNotCommitted,
    IntegrityError,
    NoCheckpointAvailable,
    ObjectMissing,
    RecoveryOvertaken,
    RefusedError,
    UnknownSource,
)
from laminar_dagster.core.ids import GENESIS, EpochNumber, OperatorId
from laminar_dagster.core.manifest import CheckpointManifest, OperatorSnapshotEntry
from laminar_dagster.core.ports import CheckpointIndex, Restorable
from laminar_dagster.core.recovery import (
    KeptFile,
    RecoveryConfig,
    RecoveryPhase,
    RecoveryPlan,
    RecoveryProgress,
    RecoveryResult,
    Repair,
    UnfinishedEpoch,
    check_operators,
    facts_of,
    other_files,
)
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.recovery.deadline import Deadline, beside
from laminar_dagster.runtime.recovery.discovery import discover, uncommitted_sinks
from laminar_dagster.runtime.recovery.finding import Finding, Remedy
from laminar_dagster.runtime.recovery.found import Discovery
from laminar_dagster.runtime.recovery.inspection import (
    Chain,
    Inspector,
    RestoredChain,
    by_operator,
    chains_of,
    state_files,
)
from laminar_dagster.runtime.recovery.progress import ProgressReporter
from laminar_dagster.runtime.recovery.rebuilding import Rebuilder
from laminar_dagster.runtime.recovery.repair import DocumentMender, DocumentRepairs
from laminar_dagster.runtime.recovery.state_restorer import restorer_of
from laminar_dagster.runtime.survey import survey

RestorerFactory = Callable[[OperatorSnapshotEntry], Restorable]


# How often a pipeline is examined that commits epochs meanwhile, before the recovery gives up.
_LOOKS: Final = 5


@dataclass(slots=True)
class _Case:
    """The time limit, progress and restorers of one recovery."""

    deadline: Deadline
    reporter: ProgressReporter
    make_restorer: RestorerFactory
    newest: EpochNumber | None = None


class RecoveryManager:
    """Recovers a pipeline from its store."""

    def __init__(
        self,
        pipeline: Pipeline,
        config: RecoveryConfig | None = None,
        index: CheckpointIndex | None = None,
    ) -> None:
        """Recover a pipeline whose store has been probed.

        Args:
            pipeline: The pipeline. Its engine is used only when an epoch has to be run again.
            config: Limits.
            index: A record of committed checkpoints outside the store, to compare it with.
        """
        self._pipeline = pipeline
        self._config = config or RecoveryConfig()
        self._index = index

    def recover(
        self,
        epoch: EpochNumber | None = None,
        operators: tuple[str, ...] | None = None,
        *,
        dry_run: bool = False,
        progress: Callable[[RecoveryProgress], None] | None = None,
        restorers: RestorerFactory | None = None,
        into: Path | None = None,
    ) -> RecoveryResult:
        """Find the newest checkpoint, restore it, and repair what is damaged.

        1. Discover what is committed, from whatever records are left.
        2. Choose the checkpoint, and check that the pipeline still has its operators and sources.
        3. Read every file that is needed, against its hash, and restore the state.
        4. Seek: ask every source whether reading can go on where the checkpoint ends.
        5. Decide what can be repaired and which epochs have to be run again, or refuse.
        6. Rebuild lost files, the oldest epoch first.
        7. Write lost documents back, the pointer to the latest checkpoint last.
        8. Restore what could not be restored before.

        Steps 1 to 5 change nothing; a dry run ends after them.

        Args:
            epoch: Restore the checkpoint of this epoch; by default the newest. The pipeline is not
                rolled back: the next run still goes on from the newest checkpoint.
            operators: Restore the state of these operators only.
            dry_run: Say what would be done.
            progress: Called with the progress of the recovery.
            restorers: Makes the restorer of an operator; the default only checks state and counts.
            into: A folder that the default restorer writes the state to, for people.

        Raises:
            NoCheckpointAvailable: The store is empty.
            AllCheckpointsCorrupt, CannotRebuild, NotReproduced: Something that is needed is lost.
            StoreSetBack, LedgerMismatch: The index, or a sink, is ahead of the store.
            OperatorMismatch, UnknownSource: The pipeline lacks operators or sources of the
                checkpoint.
            UnknownOperator, EpochNotCommitted: There is no such operator or checkpoint.
            RestoreFailed: A file is intact, but not state of its operator.
            RetentionExpired, SourceReplaced, SlotNotFound, SeekFailed: A source cannot go on.
            RecoveryTimeout: It takes too long.
            RecoveryOvertaken: Something seems damaged, but the pipeline committed epochs during
                every examination.
            RetryError: A service is unavailable.
        """
        deadline = Deadline.from_now(self._pipeline.clock, self._config.recovery_timeout)
        reporter = ProgressReporter(
            progress, self._pipeline.clock, self._config.progress_report_interval
        )
        case = _Case(deadline, reporter, restorers or partial(restorer_of, into=into))
        finding = self._examine(case, epoch, operators)  # steps 1 to 5
        failed, earlier = set[str](), tuple[Repair, ...]()
        if not dry_run:
            # Step 6. Rebuild.
            finding, failed, earlier = self._rebuild(case, finding, epoch, operators)
        target, remedy, restored = finding.target, finding.remedy, finding.restored
        if not dry_run:
            # Step 7. Write documents back.
            for each in remedy.documents.ordered:
                deadline.remaining()
                each.carry_out()
            self._pipeline.checkpoints.forget()
            # Step 8. Restore the rest.
            restored = _restore_rest(finding)
        reporter.enter(RecoveryPhase.COMPLETE)
        return RecoveryResult(
            checkpoint_id=target.checkpoint_id if target else None,
            epoch=target.epoch if target else GENESIS,
            source_offsets={
                entry.source_id: entry.positions for entry in (target.sources if target else ())
            },
            operator_results=by_operator(target, restored) if target else (),
            recovery_duration=deadline.elapsed,
            bytes_downloaded=reporter.bytes_downloaded,
            fallback_attempts=remedy.rebuild.fallback_attempts,
            repairs=(
                *earlier,
                *(each for each in remedy.repairs if each.damage.key not in failed),
            ),
            not_repaired=(
                *remedy.left,
                *(each.damage for each in remedy.repairs if each.damage.key in failed),
            ),
            unfinished=tuple(self._unfinished(finding, dry_run or operators is not None)),
            is_dry_run=dry_run,
        )

    def _rebuild(
        self,
        case: _Case,
        finding: Finding,
        epoch: EpochNumber | None,
        operators: tuple[str, ...] | None,
    ) -> tuple[Finding, set[str], tuple[Repair, ...]]:
        """Run epochs again; examine and try again when a file that they build on disappears.

        Another recovery may have rebuilt that file only as a base, and removed it since.

        Returns:
            The last finding, its files that were not rebuilt, and the repairs of earlier tries.
        """
        done: dict[str, Repair] = {}
        for look in range(_LOOKS):
            if not finding.remedy.rebuild.runs:
                break
            case.reporter.enter(RecoveryPhase.REBUILDING)
            try:
                missed = finding.rebuilder.carry_out(finding.remedy.rebuild, case.reporter)
            except ObjectMissing:
                if look == _LOOKS - 1:
                    raise
                done |= {each.damage.key: each for each in finding.remedy.rebuild.repairs()}
                finding = self._examine(case, epoch, operators)
                remedy = finding.remedy
                for each in (*(repair.damage for repair in remedy.repairs), *remedy.left):
                    done.pop(each.key, None)
            else:
                return finding, {each.file.key for each in missed}, tuple(done.values())
        return finding, set(), tuple(done.values())

    # --- examining ------------------------------------------------------------------------------

    def _examine(
        self, case: _Case, epoch: EpochNumber | None, operators: tuple[str, ...] | None
    ) -> Finding:
        """Steps 1 to 5, repeated if the pipeline commits an epoch meanwhile.

        Beside a running pipeline, a checkpoint may be collected while it is read; its missing files
        are not damage.

        Raises:
            RecoveryOvertaken: The pipeline committed an epoch every time.
        """
        for _ in range(_LOOKS):
            refusal: IntegrityError | RefusedError | None = None
            try:
                finding = self._examine_once(case, epoch, operators)
                if not finding.remedy.is_needed:
                    return finding
            except (IntegrityError, RefusedError) as error:
                refusal = error
            if not self._has_gone_on(case.newest):
                if refusal:
                    raise refusal
                return finding
        if refusal is None and not finding.remedy.repairs:
            return finding
        raise RecoveryOvertaken(case.newest or GENESIS) from refusal

    def _has_gone_on(self, newest: EpochNumber | None) -> bool:
        """Whether another process has committed an epoch since."""
        if newest is None:
            return False
        try:
            return discover(self._pipeline, None).newest > newest
        except (IntegrityError, RefusedError, NoCheckpointAvailable):
            return False

    def _examine_once(
        self, case: _Case, epoch: EpochNumber | None, operators: tuple[str, ...] | None
    ) -> Finding:
        # Step 1. Discover.
        case.reporter.enter(RecoveryPhase.READING_MANIFEST)
        self._pipeline.checkpoints.forget()
        found = discover(self._pipeline, self._index, case.deadline)
        case.newest = found.newest
        # Step 2. Choose.
        target = self._choose(found, epoch)
        chains = self._chains(target, operators)
        takers = _restorers(target, chains, case.make_restorer)
        others = self._other_files(found, target, operators)
        # Step 3. Read and restore; check the documents in parallel. A call for some operators only
        # restores their state, and repairs no documents.
        case.reporter.begin(len(takers))
        case.reporter.enter(RecoveryPhase.DOWNLOADING_SNAPSHOTS)
        objects = self._pipeline.checkpoints.objects
        inspector = Inspector(objects, case.deadline, case.reporter)
        wanted = target.epoch if target else GENESIS
        mender = DocumentMender(self._pipeline, found, wanted, case.deadline)
        decide = mender.decide if operators is None else DocumentRepairs
        with beside(decide, case.deadline) as decided:
            restored = inspector.read(chains, takers, others)
            case.reporter.enter(RecoveryPhase.RESTORING_STATE)
            # Step 4. Seek.
            case.reporter.enter(RecoveryPhase.SEEKING_SOURCES)
            if target and target.epoch == found.newest:
                self._seek(target)
            documents = decided()
        # Step 5. Decide.
        damaged = [each for chain in restored for each in chain.damaged]
        damaged += inspector.damaged(others)
        rebuilder = Rebuilder(
            self._pipeline,
            found,
            inspector,
            case.deadline,
            self._config.max_fallback_attempts,
        )
        remedy = Remedy(documents, rebuilder.decide(damaged, wanted))
        return Finding(found, target, takers, restored, inspector, rebuilder, remedy)

    # --- choosing -------------------------------------------------------------------------------

    def _choose(self, found: Discovery, epoch: EpochNumber | None) -> CheckpointManifest | None:
        """The checkpoint to restore; None when only an epoch that was begun is left to repair."""
        if epoch is None:
            return found.winner(found.newest)
        if not GENESIS < epoch <= found.newest:
            raise EpochNotCommitted(epoch)
        records = found.epochs.get(epoch)
        if records is None or records.winner is None:
            raise EpochNotCommitted(epoch)
        if not records.has_manifest and records.plan.is_missing and epoch < found.confirmed:
            raise ObjectMissing(layout.manifest_key(records.winner.checkpoint_id))
        return records.winner

    def _chains(
        self, target: CheckpointManifest | None, operators: tuple[str, ...] | None
    ) -> list[Chain]:
        """The partitions to restore, after checking that the pipeline fits the checkpoint."""
        if target is None:
            if operators:
                raise NoCheckpointAvailable(self._pipeline.checkpoints.objects.url)
            return []
        plan = RecoveryPlan.from_manifest(target)
        chains = chains_of(plan, self._config, operators)
        allowed = self._config.allow_operator_mismatch
        definition = self._pipeline.definition
        if definition:
            current = [each.operator_id for each in definition.operators]
            check_operators(target, current, allow_mismatch=allowed)
        known = {source.source_id for source in self._pipeline.sources}
        for entry in target.sources:
            if entry.source_id not in known and not allowed:
                raise UnknownSource(entry.source_id)
        return chains

    def _other_files(
        self,
        found: Discovery,
        target: CheckpointManifest | None,
        operators: tuple[str, ...] | None,
    ) -> list[KeptFile]:
        """Files needed besides the restored state: output for sinks, dead letters."""
        if operators is not None:
            return []
        files: list[KeptFile] = []
        for records in found.epochs.values():
            winner = records.winner
            if winner is None:
                continue
            if winner is target or records.epoch > found.confirmed:
                files += other_files(winner, uncommitted_sinks(found, winner))
            if records.epoch > found.newest:
                # Prepared, not yet committed: the state that the next epoch builds on.
                files += state_files(winner)
        return list({file.key: file for file in files}.values())

    def _seek(self, target: CheckpointManifest) -> None:
        sources = {source.source_id: source for source in self._pipeline.sources}
        for entry in target.sources:
            source = sources.get(entry.source_id)
            if source is None:
                continue  # ``allow_operator_mismatch`` allows it to be missing
            for position in entry.positions:
                source.check_seek(position)

    def _unfinished(self, finding: Finding, leaves_documents: bool) -> Iterator[UnfinishedEpoch]:
        """Epochs that the next run finishes; if documents stay damaged, as if they were intact."""
        ledgers = finding.found.ledgers
        standing = None if finding.remedy.is_needed else finding.found.standing()
        if standing is None and leaves_documents:
            standing = finding.found.standing_when_mended()
        try:
            standing = standing or survey(self._pipeline.checkpoints)
        except (IntegrityError, NoCheckpointAvailable):
            return
        for epoch in standing.unfinished:
            manifest = standing.find(epoch).manifest
            known = {entry.sink_id: epoch for entry in (manifest.sinks if manifest else ())}
            facts = facts_of(
                standing, epoch, known | dict(ledgers.found), frozenset(ledgers.errors)
            )
            yield UnfinishedEpoch(epoch, protocol.next_step(facts))


def _restorers(
    target: CheckpointManifest | None, chains: list[Chain], make: RestorerFactory
) -> dict[OperatorId, Restorable]:
    wanted = {each.operator_id for each in chains}
    entries = target.operators if target else ()
    return {each.operator_id: make(each) for each in entries if each.operator_id in wanted}


def _restore_rest(finding: Finding) -> list[RestoredChain]:
    """Restore the partitions with files that were damaged, and are rebuilt now."""
    broken = [each.chain for each in finding.restored if each.damaged]
    again = finding.inspector.read(broken, finding.takers, ())
    for each in again:
        if each.damaged:
            # It was rebuilt a moment ago: the store loses files faster than they are repaired.
            raise each.damaged[0].problem
    return [each for each in finding.restored if not each.damaged] + again
