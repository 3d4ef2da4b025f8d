"""Whether the documents of a store are all there, intact, and consistent with each other.

The store alone cannot tell a lost manifest of the newest epoch from one that is still to be
written; the ledgers of the sinks can, if the caller passes the sinks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from laminar_dagster.core import layout
from laminar_dagster.core.document import checksum
from laminar_dagster.core.errors import (
    IntegrityError,
    InvalidName,
    MalformedDocument,
    ObjectMissing,
)
from laminar_dagster.core.ids import GENESIS, BranchName, CheckpointId, EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest, FileEntry
from laminar_dagster.core.ports import Sink
from laminar_dagster.core.prepared import LatestPointer
from laminar_dagster.runtime.branches.records import branch_checkpoints, stored_branch
from laminar_dagster.runtime.checked_files import check_file
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.ledgers import Ledgers
from laminar_dagster.runtime.recovery.documents import Documents
from laminar_dagster.runtime.snapshots import finished_snapshots
from laminar_dagster.runtime.verification import verify_checkpoint

# The fingerprint of a pipeline that was made from files: its definition is always stored.
_MADE_FROM_FILES: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class RecordProblem:
    """An object that is missing, damaged, or inconsistent with another."""

    key: str
    error: IntegrityError
    epoch: EpochNumber | None = None
    checkpoint_id: CheckpointId | None = None


def check_records(
    checkpoints: CheckpointStore, sinks: Iterable[Sink] = ()
) -> tuple[RecordProblem, ...]:
    """The problems in the documents of a store and of its branches.

    Epochs or garbage collection that run meanwhile may make a document look lost, so only problems
    that a second look finds again are returned.

    Args:
        checkpoints: The checkpoints of the pipeline.
        sinks: Its sinks, to read their ledgers; an unavailable one is ignored.
    """
    reached = Ledgers.read(sinks).newest() or GENESIS
    found = {each.key: each for each in _look(checkpoints, reached)}
    if found:
        checkpoints.forget()
        still = {each.key for each in _look(checkpoints, reached)}
        found = {key: each for key, each in found.items() if key in still}
    return tuple(found.values())


def _look(checkpoints: CheckpointStore, reached: EpochNumber) -> Iterator[RecordProblem]:
    yield from _Records(checkpoints, reached).problems()
    yield from _branches(checkpoints)


def _branches(checkpoints: CheckpointStore) -> Iterator[RecordProblem]:
    """Problems in every branch that is complete and not dropped, files of checkpoints included."""
    for folder in checkpoints.objects.list_folders(layout.BRANCHES):
        try:
            name = BranchName(folder)
        except InvalidName:
            continue  # not a branch's folder
        try:
            record = stored_branch(checkpoints.objects, name)
        except IntegrityError as error:
            yield RecordProblem(layout.branch_key(name), error)
            continue
        if record is None or record.dropped_at:
            continue
        branch = branch_checkpoints(checkpoints, record.name)
        start = record.start.checkpoint_id if record.start else None
        if start is not None and Documents(branch.objects).latest().is_missing:
            # The branch is still being made: its pointer is written after the copied checkpoint.
            continue
        inside = layout.branch_folder(record.name)
        for each in _Records(branch, GENESIS, start).problems(with_files=True):
            yield RecordProblem(inside + each.key, each.error, each.epoch, each.checkpoint_id)


@dataclass(slots=True)
class _Records:
    """One pass over the documents of a store.

    Attributes:
        reached: The newest epoch that a sink is known to have.
        start: A branch's first checkpoint, copied from its pipeline without the record of its
            attempt, staged output and dead letters.
    """

    checkpoints: CheckpointStore
    reached: EpochNumber
    start: CheckpointId | None = None
    _documents: Documents = field(init=False)
    _planned: set[EpochNumber] = field(default_factory=set)
    _prepared: set[EpochNumber] = field(default_factory=set)
    _manifests: dict[EpochNumber, CheckpointManifest] = field(default_factory=dict)

    def problems(self, *, with_files: bool = False) -> Iterator[RecordProblem]:
        """Every problem.

        Args:
            with_files: Whether to verify the files of every checkpoint, too.
        """
        self._documents = Documents(self.checkpoints.objects)
        for info in self.checkpoints.objects.list(layout.EPOCHS):
            key = layout.parse_epoch_key(info.key)
            if key:
                (self._planned if key.is_plan else self._prepared).add(key.epoch)
        for candidate in self.checkpoints.candidates():
            manifest = candidate.manifest
            if isinstance(manifest, CheckpointManifest):
                self._manifests[manifest.epoch] = manifest
                if with_files:
                    yield from self._files(manifest)
            elif isinstance(manifest, IntegrityError):
                key_of_manifest = layout.manifest_key(candidate.checkpoint_id)
                yield RecordProblem(key_of_manifest, manifest, None, candidate.checkpoint_id)
            else:
                raise manifest
        latest = self._documents.latest()
        yield from self._pointer(latest.problem, latest.document)
        for number in range(self._oldest(), self._decided() + 1):
            yield from self._epoch(EpochNumber(number), latest.document)
        yield from self._before_the_oldest()
        yield from self._undecided()
        yield from self._definitions()
        yield from self._snapshots()
        yield from self._old_letters()

    def _oldest(self) -> EpochNumber:
        """The oldest epoch that has a manifest, or else a plan."""
        return min([*self._manifests] or [*self._planned] or [GENESIS.next()])

    def _decided(self) -> EpochNumber:
        return max([*self._prepared, *self._manifests, self.reached])

    def _pointer(
        self, problem: IntegrityError | None, pointer: LatestPointer | None
    ) -> Iterator[RecordProblem]:
        if pointer is None:
            # Before the first epoch has reached every sink, there is none.
            was_confirmed = len(self._manifests) > 1 or self._oldest() > GENESIS.next()
            if problem and (was_confirmed or not isinstance(problem, ObjectMissing)):
                yield RecordProblem(layout.LATEST, problem)
            return
        there = self._manifests.get(pointer.epoch)
        seen = self._documents.manifest(pointer.checkpoint_id)
        if seen.problem:
            # Reported under the manifest's key, with the epoch that the pointer names.
            yield RecordProblem(seen.key, seen.problem, pointer.epoch, pointer.checkpoint_id)
        elif there is None or LatestPointer.to(there) != pointer:
            record = self._documents.prepared(pointer.epoch).document
            if record is None or LatestPointer.to(record.manifest) != pointer:
                error = MalformedDocument(layout.LATEST, "it leads to another checkpoint")
                yield RecordProblem(layout.LATEST, error, pointer.epoch, pointer.checkpoint_id)

    def _epoch(self, epoch: EpochNumber, latest: LatestPointer | None) -> Iterator[RecordProblem]:
        """The documents of an epoch that is kept, and has a winner."""
        plan, prepared = self._documents.plan(epoch), self._documents.prepared(epoch)
        if prepared.problem:
            yield RecordProblem(prepared.key, prepared.problem, epoch)
        record = prepared.document
        winner = record.manifest if record else self._manifests.get(epoch)
        own = winner.checkpoint_id if winner else None
        if plan.problem:
            yield RecordProblem(plan.key, plan.problem, epoch, own)
        elif plan.document and winner and checksum(plan.document) != winner.plan_checksum:
            error = MalformedDocument(plan.key, "it is not the plan that was carried out")
            yield RecordProblem(plan.key, error, epoch, own)
        if winner is None:
            return
        manifest = self._documents.manifest(winner.checkpoint_id)
        if manifest.is_missing:
            is_committed = epoch < self._decided() or epoch.next() in self._planned
            is_committed |= self.reached >= epoch
            if is_committed or (latest is not None and latest.epoch >= epoch):
                yield RecordProblem(manifest.key, ObjectMissing(manifest.key), epoch, own)
            else:
                # The epoch's next step writes the manifest: its files have to be there.
                yield from self._files(winner)
        elif manifest.document and manifest.document != winner:
            error = MalformedDocument(manifest.key, "it differs from the one that was prepared")
            yield RecordProblem(manifest.key, error, epoch, own)
        rival = self._manifests.get(epoch)
        if rival and rival.checkpoint_id != own:
            key = layout.manifest_key(rival.checkpoint_id)
            error = MalformedDocument(key, "another attempt has won the epoch")
            yield RecordProblem(key, error, epoch, rival.checkpoint_id)
        if own != self.start:
            attempt = self._documents.attempt(winner)
            if attempt.problem:
                yield RecordProblem(attempt.key, attempt.problem, epoch, own)

    def _before_the_oldest(self) -> Iterator[RecordProblem]:
        """Lost manifests whose files are all there: a collector would have removed those, too."""
        if not self._manifests:
            return
        epoch = self._oldest()
        while (epoch := epoch.previous()) in self._planned:
            record = self._documents.prepared(epoch).document
            if record is None:
                return
            winner = record.manifest
            if self._documents.attempt(winner).problem or any(self._files(winner)):
                return
            key = layout.manifest_key(winner.checkpoint_id)
            yield RecordProblem(key, ObjectMissing(key), epoch, winner.checkpoint_id)

    def _undecided(self) -> Iterator[RecordProblem]:
        """Problems of epochs that were begun after the newest one with a winner."""
        begun = [each for each in self._planned if each > self._decided()]
        for number in range(self._decided() + 1, max(begun, default=GENESIS) + 1):
            epoch = EpochNumber(number)
            plan = self._documents.plan(epoch)
            if plan.problem:
                yield RecordProblem(plan.key, plan.problem, epoch)
            for pin in plan.document.references if plan.document else ():
                for file in pin.files:
                    yield from self._file(pin.key_of(file), file.size_bytes, file.sha256, epoch)
            if epoch < max(begun):
                key = layout.prepared_key(epoch)
                yield RecordProblem(key, ObjectMissing(key), epoch)

    def _definitions(self) -> Iterator[RecordProblem]:
        """Damaged definitions of checkpoints, and the newest one's if it is missing."""
        newest = max(self._manifests, default=None)
        wanted = {each.fingerprint for each in self._manifests.values()}
        for fingerprint in sorted(wanted):
            seen = self._documents.definition(fingerprint)
            if seen.is_damaged or (
                seen.is_missing
                and newest is not None
                and self._manifests[newest].fingerprint == fingerprint
                and _MADE_FROM_FILES.fullmatch(fingerprint)
            ):
                assert seen.problem is not None
                yield RecordProblem(seen.key, seen.problem)

    def _snapshots(self) -> Iterator[RecordProblem]:
        """Damaged descriptions of source snapshots; their files are verified with checkpoints."""
        objects = self.checkpoints.objects
        for info in objects.list(layout.SNAPSHOTS):
            try:
                finished_snapshots(objects, [info])
            except IntegrityError as error:
                yield RecordProblem(info.key, error)

    def _old_letters(self) -> Iterator[RecordProblem]:
        """Damaged dead letters of collected checkpoints, which the prepared records still name."""
        kept = {each.checkpoint_id for each in self._manifests.values()}
        letters: dict[CheckpointId, set[str]] = {}
        for info in self.checkpoints.objects.list(layout.CHECKPOINTS):
            parsed = layout.parse_checkpoint_key(info.key)
            if parsed and layout.is_letter_path(parsed[1]) and parsed[0] not in kept:
                letters.setdefault(parsed[0], set()).add(parsed[1])
        for folder, epoch in self.checkpoints.attempts(letters).items():
            record = self._documents.prepared(epoch).document
            if record is None or record.checkpoint_id != folder:
                continue
            for path, file in _letters_of(record.manifest).items():
                if path in letters[folder]:
                    key = layout.checkpoint_key(folder, path)
                    yield from self._file(key, file.size_bytes, file.sha256, epoch)

    def _files(self, manifest: CheckpointManifest) -> Iterator[RecordProblem]:
        copied = manifest.checkpoint_id == self.start
        for file in verify_checkpoint(self.checkpoints, manifest):
            parsed = layout.parse_checkpoint_key(file.key)
            left_behind = copied and parsed and layout.is_output_path(parsed[1])
            if file.problem and not left_behind:
                yield RecordProblem(file.key, file.problem, manifest.epoch, manifest.checkpoint_id)

    def _file(
        self, key: str, size: int, sha256: str, epoch: EpochNumber
    ) -> Iterator[RecordProblem]:
        try:
            check_file(self.checkpoints.objects, key, size, sha256, lambda _bytes: None)
        except IntegrityError as error:
            yield RecordProblem(key, error, epoch)


def _letters_of(manifest: CheckpointManifest) -> Mapping[str, FileEntry]:
    return {file.path: file for entry in manifest.dead_letters for file in entry.files}
