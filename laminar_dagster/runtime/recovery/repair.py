"""Which documents are damaged, and what they can be restored from.

The prepared record contains the manifest and the plan, and can be made from them. Offset files and
the attempt's record can be made from the manifest. A plan without a winner has no second copy: it
is made anew, also when the copy of a reference table that it pins is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from laminar_dagster.core import layout
from laminar_dagster.core.document import Document
from laminar_dagster.core.errors import (
    CannotRebuild,
    GateFailed,
    IntegrityError,
    LedgerMismatch,
    MalformedDocument,
    ObjectExists,
    ObjectMissing,
)
from laminar_dagster.core.ids import GENESIS, EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.prepared import LatestPointer, Prepared
from laminar_dagster.core.recovery import Damage, Repair, RepairKind
from laminar_dagster.core.reference import ReferencePin
from laminar_dagster.runtime import steps
from laminar_dagster.runtime.checked_files import check_file
from laminar_dagster.runtime.ledgers import Ledgers
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.recovery.deadline import Deadline
from laminar_dagster.runtime.recovery.documents import Documents, Seen, attempt_of, offsets_of
from laminar_dagster.runtime.recovery.found import Discovery, EpochRecords

DocumentT = TypeVar("DocumentT", bound=Document)


@dataclass(frozen=True, slots=True)
class DocumentRepair:
    """A repair of a document, and the function that makes it."""

    repair: Repair
    carry_out: Callable[[], None]


@dataclass(frozen=True, slots=True)
class DocumentRepairs:
    """The repairs of damaged documents.

    Attributes:
        ordered: In the order in which they are to be made: the pointer comes last.
        left: Damage that is not repaired, and not needed to go on.
    """

    ordered: tuple[DocumentRepair, ...] = ()
    left: tuple[Damage, ...] = ()


class DocumentMender:
    """Checks every document of a discovered history, and decides how to repair it."""

    def __init__(
        self, pipeline: Pipeline, found: Discovery, wanted: EpochNumber, deadline: Deadline
    ) -> None:
        """Check a discovery.

        Args:
            pipeline: The pipeline.
            found: What was discovered.
            wanted: The epoch of the checkpoint that is restored.
            deadline: The time limit of the check.
        """
        self._pipeline = pipeline
        self._deadline = deadline
        self._found = found
        self._wanted = wanted
        self._documents = Documents(pipeline.checkpoints.objects)
        self._left: list[Damage] = []

    def decide(self) -> DocumentRepairs:
        """The repairs to make. Reads, and changes nothing.

        Raises:
            CannotRebuild: Something that is needed to go on is lost for good.
            RecoveryTimeout: It takes too long.
        """
        self._left = []
        self._require_line()
        ordered = [
            *self._definition(),
            *(each for records in self._found.epochs.values() for each in self._epoch(records)),
            *self._pointer(),
        ]
        return DocumentRepairs(tuple(ordered), tuple(self._left))

    # --- one kind of document after the other ---------------------------------------------------

    def _require_line(self) -> None:
        """Refuse if an epoch that a sink still needs has no manifest and no prepared record."""
        for records in self._found.epochs.values():
            if records.winner or records.epoch > self._found.newest:
                continue
            problem = ObjectMissing(records.prepared.key)
            if records.epoch > self._found.confirmed:
                reason = "neither its manifest nor the record of its winner is left"
                raise CannotRebuild(records.epoch, records.prepared.key, reason)
            self._left.append(Damage(records.prepared.key, records.epoch, problem))

    def _epoch(self, records: EpochRecords) -> Iterator[DocumentRepair]:
        self._deadline.remaining()
        if records.winner is None:
            if records.epoch > self._found.newest:
                yield from self._undecided(records)
            return
        winner = records.winner
        if records.prepared.problem:
            document = Prepared.of(winner, records.known_plan)
            yield self._put(records.prepared, document, winner, "from its manifest")
        if not self._found.is_kept(records, self._wanted):
            return
        if records.epoch <= self._found.newest and records.manifest and records.manifest.problem:
            # For an epoch after the newest, writing the manifest is the protocol's next step.
            yield self._put(records.manifest, winner, winner, "from the record of the winner")
        offset_keys = (layout.checkpoint_key(winner.checkpoint_id, e.path) for e in winner.sources)
        self._documents.read_ahead([layout.attempt_key(winner.checkpoint_id), *offset_keys])
        attempt = self._documents.attempt(winner)
        if attempt.problem:
            yield self._put(attempt, attempt_of(winner), winner, "from the manifest")
        for entry in winner.sources:
            offsets = self._documents.offsets(winner, entry)
            if offsets.problem:
                yield self._put(offsets, offsets_of(winner, entry), winner, "from the manifest")
        yield from self._plan(records, winner)
        yield from self._copies(winner)

    def _plan(self, records: EpochRecords, winner: CheckpointManifest) -> Iterator[DocumentRepair]:
        """Restore the plan of an epoch with a winner from the prepared record, or give it up."""
        problem = records.plan.problem
        if problem is None:
            return
        if records.known_plan:
            plan = records.known_plan
            yield self._put(records.plan, plan, winner, "from the record of the winner")
        elif records.epoch >= self._found.newest:
            reason = (
                f"{problem}; with it went what the sources were, so that the next epoch could not "
                "tell another source in their place"
            )
            raise CannotRebuild(records.epoch, records.plan.key, reason)
        else:
            self._left.append(Damage(records.plan.key, records.epoch, problem))

    def _undecided(self, records: EpochRecords) -> Iterator[DocumentRepair]:
        """An epoch without a winner: nothing of it is published, so it may begin anew."""
        epoch = records.epoch
        plan, prepared = records.plan, records.prepared
        if plan.is_damaged or (plan.is_missing and prepared.is_damaged):
            assert plan.problem is not None
            yield DocumentRepair(
                Repair(
                    Damage(plan.key, epoch, plan.problem),
                    RepairKind.MADE_ANEW,
                    "planned again: nothing had come of it",
                ),
                lambda: self._documents.put(plan, self._new_plan(epoch)),
            )
        elif plan.document and prepared.is_missing:
            lost = tuple(self._lost_copies(plan.document.references))
            if lost:
                origin = "copied and planned again: nothing had come of it"

                def plan_again() -> None:
                    self._forget(lost)
                    self._documents.put(plan, self._new_plan(epoch))

                yield DocumentRepair(Repair(lost[0], RepairKind.MADE_ANEW, origin), plan_again)
        if prepared.is_damaged:
            assert prepared.problem is not None
            yield DocumentRepair(
                Repair(
                    Damage(prepared.key, epoch, prepared.problem),
                    RepairKind.MADE_ANEW,
                    "computed again: nothing of it was published",
                ),
                lambda: self._documents.put(prepared, self._new_winner(epoch)),
            )

    def _copies(self, winner: CheckpointManifest) -> Iterator[DocumentRepair]:
        """Remove damaged reference tables of the newest checkpoint: the next plan may pin them."""
        if winner.epoch != self._found.newest:
            return
        lost = tuple(self._lost_copies(winner.references))
        if lost:
            origin = "removed: the next plan copies the table again"
            yield DocumentRepair(
                Repair(lost[0], RepairKind.MADE_ANEW, origin), partial(self._forget, lost)
            )

    def _lost_copies(self, pins: tuple[ReferencePin, ...]) -> Iterator[Damage]:
        for pin in pins:
            for file in pin.files:
                self._deadline.remaining()
                objects, key = self._pipeline.checkpoints.objects, pin.key_of(file)
                try:
                    check_file(objects, key, file.size_bytes, file.sha256, lambda _bytes: None)
                except IntegrityError as problem:
                    yield Damage(key, pin.epoch, problem)

    def _forget(self, lost: tuple[Damage, ...]) -> None:
        """Delete copies of tables, so that planning finds them missing and copies them again."""
        self._pipeline.checkpoints.objects.delete([each.key for each in lost])

    def _definition(self) -> Iterator[DocumentRepair]:
        """Restore the definition that the newest checkpoint's fingerprint stands for."""
        newest, own = self._found.winner(self._found.newest), self._pipeline.definition
        if newest is None or own is None:
            return
        seen = self._documents.definition(newest.fingerprint)
        if seen.problem is None:
            return
        if newest.fingerprint != own.fingerprint:
            reason = "it says what the pipeline was, and the pipeline has changed since"
            raise CannotRebuild(newest.epoch, seen.key, reason)
        damage = Damage(seen.key, None, seen.problem)
        yield DocumentRepair(
            Repair(damage, RepairKind.PUT_BACK, "from the pipeline itself"),
            lambda: self._documents.put(seen, own),
        )

    def _pointer(self) -> Iterator[DocumentRepair]:
        latest, confirmed = self._found.latest, self._found.confirmed
        if self._found.is_pointer_right:
            return
        target, why = self._found.winner(confirmed), f"every sink has epoch {confirmed}"
        if target is None and latest.document:
            # A run can do without a pointer, but not with a wrong one.
            target = self._collected_last()
            why = "the checkpoint before the oldest that is left"
        if target is None:
            # No sink has confirmed anything, or none can be asked: the next run writes it.
            if not latest.is_missing:
                self._left.append(Damage(latest.key, None, _wrong(latest)))
            return
        damage = Damage(latest.key, target.epoch, _wrong(latest))
        yield DocumentRepair(
            Repair(damage, RepairKind.PUT_BACK, why), partial(self._point_at, target)
        )

    def _point_at(self, target: CheckpointManifest) -> None:
        """Move the pointer to a checkpoint, unless another process has moved it further since."""
        seen = self._found.latest
        if seen.document:
            # An intact but wrong pointer is replaced even if it is further, unless it has changed.
            try:
                self._documents.put(seen, LatestPointer.to(target))
            except ObjectExists:
                pass
            else:
                return
        self._pipeline.checkpoints.advance_latest(target)

    def _collected_last(self) -> CheckpointManifest | None:
        """The collected checkpoint before the oldest that is left: every sink has confirmed it."""
        oldest = next(iter(self._found.epochs.values()), None)
        if oldest is None or oldest.winner is None or not oldest.has_manifest:
            return None
        if oldest.epoch == GENESIS.next():
            return None
        record = self._documents.prepared(oldest.epoch.previous()).document
        if record is None or record.checkpoint_id != oldest.winner.previous_checkpoint_id:
            return None
        return record.manifest

    # --- making ---------------------------------------------------------------------------------

    def _put(
        self, seen: Seen[DocumentT], document: DocumentT, winner: CheckpointManifest, origin: str
    ) -> DocumentRepair:
        assert seen.problem is not None
        damage = Damage(seen.key, winner.epoch, seen.problem)

        def carry_out() -> None:
            if not self._was_collected(winner):
                self._documents.put(seen, document)

        return DocumentRepair(Repair(damage, RepairKind.PUT_BACK, origin), carry_out)

    def _was_collected(self, winner: CheckpointManifest) -> bool:
        """Whether a collector has removed an old checkpoint since: then nothing is put back."""
        if winner.epoch >= self._found.newest:
            return False
        is_planned = not self._documents.plan(winner.epoch).is_missing
        has_manifest = not self._documents.manifest(winner.checkpoint_id).is_missing
        was_there = self._found.epochs[winner.epoch]
        had_plan, had_manifest = not was_there.plan.is_missing, was_there.has_manifest
        return (had_plan or had_manifest) and not (is_planned or has_manifest)

    def _new_plan(self, epoch: EpochNumber) -> EpochPlan:
        self._pipeline.checkpoints.forget()
        parent = self._found.winner(epoch.previous())
        steps.prepare_sources(self._pipeline, parent)
        return steps.make_plan(self._pipeline, epoch, parent)

    def _new_winner(self, epoch: EpochNumber) -> Prepared:
        self._pipeline.checkpoints.forget()
        attempt = steps.compute(self._pipeline, epoch)
        verdict = steps.gate(self._pipeline, attempt)
        if isinstance(verdict, GateFailed):
            raise verdict
        made = steps.make_prepared(self._pipeline, attempt)
        self._require_uncommitted(epoch)
        return made

    def _require_uncommitted(self, epoch: EpochNumber) -> None:
        """Refuse a new winner if another process has committed the epoch meanwhile.

        Raises:
            ObjectExists: There is a manifest of the epoch now.
            LedgerMismatch: A sink has committed it.
        """
        for candidate in self._pipeline.checkpoints.candidates():
            manifest = candidate.manifest
            if isinstance(manifest, CheckpointManifest) and manifest.epoch >= epoch:
                raise ObjectExists(layout.manifest_key(candidate.checkpoint_id))
        ahead = Ledgers.read(self._pipeline.sinks).furthest()
        if ahead and ahead[1] >= epoch:
            raise LedgerMismatch(ahead[0], epoch, ahead[1])


def _wrong(latest: Seen[LatestPointer]) -> IntegrityError:
    reason = "it leads to a checkpoint that is not there, or to another one"
    return latest.problem or MalformedDocument(latest.key, reason)
