"""Rebuilds lost files, by running the epochs that wrote them again.

A file of epoch k is rebuilt from the stored plan of k on top of checkpoint k-1, as
``laminar verify`` does it. Every hash must equal the committed one; then the bytes are written
back under the key that they had. Manifests that name the file stay valid; nothing else changes.
Files of checkpoint k-1 may be lost as well, so epochs are run again in ascending order.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

from laminar_dagster.core import layout
from laminar_dagster.core.document import FORMAT_VERSION, checksum, encode
from laminar_dagster.core.errors import (
    AllCheckpointsCorrupt,
    CannotRebuild,
    IntegrityError,
    LaminarError,
    NotReproduced,
    ObjectExists,
    ObjectMissing,
    RecoveryTimeout,
    RefusedError,
    UnknownBranch,
)
from laminar_dagster.core.ids import CheckpointId, EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.ports import EpochOutput
from laminar_dagster.core.prepared import AttemptRecord
from laminar_dagster.core.recovery import (
    Damage,
    KeptFile,
    Need,
    Repair,
    RepairKind,
    describe_ranges,
)
from laminar_dagster.core.upkeep import Promotion
from laminar_dagster.runtime.branches.records import branch_checkpoints, read_branch
from laminar_dagster.runtime.carrying_out import check_sources
from laminar_dagster.runtime.checked_files import read_verified
from laminar_dagster.runtime.deployment import require_fit
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.recovery.deadline import Deadline
from laminar_dagster.runtime.recovery.documents import Documents
from laminar_dagster.runtime.recovery.found import Discovery
from laminar_dagster.runtime.recovery.inspection import DamagedFile, Inspector, state_files
from laminar_dagster.runtime.recovery.progress import ProgressReporter
from laminar_dagster.runtime.rerun import (
    absent_sinks,
    carried_out_again,
    compare,
    require_same_code,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EpochRun:
    """An epoch that is to be run again, and the files that this rebuilds.

    Attributes:
        manifest: The committed one; None when that is lost as well, so that only the hashes of the
            files can be compared.
    """

    planned: EpochPlan
    parent: CheckpointManifest | None
    manifest: CheckpointManifest | None
    files: tuple[DamagedFile, ...]


@dataclass(frozen=True, slots=True)
class Rebuild:
    """What is to be done about damaged files.

    Attributes:
        runs: In ascending order of their epochs.
        fallback_attempts: How many epochs the oldest base is behind the wanted checkpoint.
        scaffold: Files of collected checkpoints, rebuilt only as a base and removed afterwards.
        left: Damaged files that are not needed now, or only by people and cannot be rebuilt.
    """

    runs: tuple[EpochRun, ...] = ()
    fallback_attempts: int = 0
    scaffold: frozenset[str] = frozenset()
    left: tuple[DamagedFile, ...] = ()

    def repairs(self) -> Iterator[Repair]:
        """The repairs that the runs make."""
        for run in self.runs:
            for each in run.files:
                if each.file.key in self.scaffold:
                    continue
                yield Repair(
                    Damage(each.file.key, each.file.epoch, each.problem),
                    RepairKind.REBUILT,
                    f"epoch {run.planned.epoch} run again",
                )


class Rebuilder:
    """Decides which epochs to run again, and runs them."""

    def __init__(
        self,
        pipeline: Pipeline,
        found: Discovery,
        inspector: Inspector,
        deadline: Deadline,
        max_fallbacks: int | None,
    ) -> None:
        """Work on what was discovered; bases are read by the inspector."""
        self._pipeline = pipeline
        self._found = found
        self._documents = Documents(pipeline.checkpoints.objects)
        self._inspector = inspector
        self._deadline = deadline
        self._max_fallbacks = max_fallbacks

    def decide(self, damaged: Iterable[DamagedFile], wanted: EpochNumber) -> Rebuild:
        """Which epochs have to be run again. Reads, and changes nothing.

        Args:
            damaged: All damaged files.
            wanted: The epoch of the checkpoint that is restored.

        Raises:
            CannotRebuild: A file that is needed cannot be rebuilt.
            AllCheckpointsCorrupt: It could only be rebuilt from a checkpoint that is older than
                the limit allows.
        """
        damaged = list({each.file.key: each for each in damaged}.values())
        by_need: defaultdict[Need, list[DamagedFile]] = defaultdict(list)
        for each in damaged:
            by_need[each.file.need].append(each)
        runs = self._runs_for(by_need[Need.TO_GO_ON], wanted)
        left: list[DamagedFile] = []
        for each in by_need[Need.FOR_PEOPLE]:
            try:
                more = self._runs_for([each], wanted, Need.FOR_PEOPLE)
            except RecoveryTimeout:
                raise
            except LaminarError:
                left.append(each)
            else:
                runs = _joined(runs, more)
        for each in by_need[Need.NOT_NOW]:
            if each.file.epoch in runs:
                runs = _joined(runs, {each.file.epoch: _with(runs[each.file.epoch], [each])})
            else:
                left.append(each)
        ordered = tuple(runs[epoch] for epoch in sorted(runs))
        back = wanted - (ordered[0].planned.epoch - 1) if ordered else 0
        wished = {each.file.key for each in damaged}
        made = {each.file.key for run in ordered for each in run.files}
        scaffold = made - wished - self._reachable(wanted)
        return Rebuild(ordered, max(0, back), frozenset(scaffold), tuple(left))

    def carry_out(self, rebuild: Rebuild, progress: ProgressReporter) -> tuple[DamagedFile, ...]:
        """Run the epochs again, and write the files back.

        Returns:
            Files that could not be rebuilt, or came out different, and are not needed to go on.

        Raises:
            NotReproduced: An epoch that is needed came out different; nothing is written back.
            LaminarError: An epoch that is needed cannot be run.
            RecoveryTimeout: There is no time left for the next epoch.
        """
        failed: list[DamagedFile] = []
        marked: list[str] = []
        try:
            for number, run in enumerate(rebuild.runs):
                self._deadline.remaining()
                progress.rebuilt(number, len(rebuild.runs))
                try:
                    for each in run.files:
                        if each.file.key in rebuild.scaffold:
                            marked += self._mark(each.file, run)
                    self._run(run)
                except LaminarError as error:
                    if any(each.file.need is Need.TO_GO_ON for each in run.files):
                        raise
                    log.warning("epoch %d is not run again: %s", run.planned.epoch, error)
                    failed += run.files
        finally:
            objects = self._pipeline.checkpoints.objects
            objects.delete(sorted(rebuild.scaffold))
            objects.delete(marked)
        progress.rebuilt(len(rebuild.runs), len(rebuild.runs))
        return tuple(failed)

    def _reachable(self, wanted: EpochNumber) -> set[str]:
        """The files that checkpoints name which are not collected."""
        return {
            key
            for records in self._found.epochs.values()
            if records.winner and self._found.is_kept(records, wanted)
            for key, _, _ in records.winner.files()
        }

    # --- deciding -------------------------------------------------------------------------------

    def _runs_for(
        self, damaged: Iterable[DamagedFile], wanted: EpochNumber, need: Need = Need.TO_GO_ON
    ) -> dict[EpochNumber, EpochRun]:
        needed: defaultdict[EpochNumber, dict[str, DamagedFile]] = defaultdict(dict)
        for each in damaged:
            needed[each.file.epoch][each.file.key] = each
        runs: dict[EpochNumber, EpochRun] = {}
        while needed:
            # From the newest down: what an epoch builds on is older than itself.
            epoch = max(needed)
            files = tuple(needed.pop(epoch).values())
            self._require_recent(epoch, wanted, files[0])
            run = self._run_of(epoch, files)
            runs[epoch] = run
            for each in self._inspector.damaged(state_files(run.parent) if run.parent else ()):
                # A file of the base is needed as much as the files built on it.
                file = replace(each.file, need=need)
                needed[file.epoch][file.key] = DamagedFile(file, each.problem)
        return runs

    def _require_recent(self, epoch: EpochNumber, wanted: EpochNumber, lost: DamagedFile) -> None:
        back = wanted - (epoch - 1)
        if self._max_fallbacks is not None and back > self._max_fallbacks:
            reason = (
                f"{lost.problem}, and to make it again takes the checkpoint of epoch {epoch - 1}, "
                f"{back} before the newest"
            )
            raise AllCheckpointsCorrupt(self._max_fallbacks + 1, reason)

    def _run_of(self, epoch: EpochNumber, files: tuple[DamagedFile, ...]) -> EpochRun:
        lost = files[0].file.key
        prepared = self._documents.prepared(epoch).document
        records = self._found.epochs.get(epoch)
        known = prepared.manifest if prepared else None
        manifest = records.winner if records else known
        seen = self._documents.plan(epoch)
        planned = seen.document
        if planned is None or (manifest and checksum(planned) != manifest.plan_checksum):
            planned = prepared.plan if prepared else None
        if planned is None:
            problem = seen.problem or "it is not the plan that was carried out"
            raise CannotRebuild(epoch, lost, f"the plan of the epoch is lost: {problem}")
        ranges = describe_ranges(planned)
        try:
            code = manifest.fingerprint if manifest else planned.fingerprint
            require_same_code(self._pipeline, epoch, code)
            require_fit(self._pipeline, planned)
            check_sources(self._pipeline, planned)
            self._require_branch(planned)
        except (RefusedError, UnknownBranch, IntegrityError) as error:
            raise CannotRebuild(epoch, lost, str(error), ranges) from error
        parent = self._base(planned)
        if planned.parent and parent is None:
            reason = f"the checkpoint of epoch {planned.parent.epoch}, its base, is gone"
            raise CannotRebuild(epoch, lost, reason, ranges)
        return EpochRun(planned, parent, manifest, files)

    def _require_branch(self, planned: EpochPlan) -> None:
        """Refuse to rebuild a promotion whose branch, which it copies state from, is gone."""
        if isinstance(planned.upkeep, Promotion):
            objects, upkeep = self._pipeline.checkpoints.objects, planned.upkeep
            read_branch(objects, upkeep.branch)
            checkpoints = branch_checkpoints(self._pipeline.checkpoints, upkeep.branch)
            if checkpoints.manifest(upkeep.checkpoint_id) is None:
                raise ObjectMissing(layout.manifest_key(upkeep.checkpoint_id))

    def _base(self, planned: EpochPlan) -> CheckpointManifest | None:
        """The manifest that a plan builds on, from whichever record still has it."""
        if planned.parent is None:
            return None
        known = self._found.winner(planned.parent.epoch)
        stored = self._documents.manifest(planned.parent.checkpoint_id).document
        prepared = self._documents.prepared(planned.parent.epoch).document
        for each in (known, stored, prepared.manifest if prepared else None):
            if each and checksum(each) == planned.parent.manifest_checksum:
                return each
        return None

    def _mark(self, file: KeptFile, run: EpochRun) -> Iterator[str]:
        """Write an attempt's record into the folder of a scaffold file, which no manifest names.

        If this process is killed, garbage collection finds the file by that record.
        """
        checkpoint = _checkpoint_of(file)
        key, objects = layout.attempt_key(checkpoint), self._pipeline.checkpoints.objects
        if objects.read_versioned(key):
            return  # it is there for other files of the folder, and stays
        record = AttemptRecord(
            version=FORMAT_VERSION,
            epoch=file.epoch,
            checkpoint_id=checkpoint,
            started_at=run.manifest.started_at if run.manifest else self._pipeline.clock.now(),
        )
        try:
            objects.replace(key, encode(record), None)
        except ObjectExists:
            return  # another recovery's
        yield key

    # --- running --------------------------------------------------------------------------------

    def _run(self, run: EpochRun) -> None:
        objects = self._pipeline.checkpoints.objects
        with carried_out_again(self._pipeline, run.planned, run.parent, run.manifest) as (
            attempt,
            output,
        ):
            made = dict(_written(output))
            self._require_reproduced(run, output, made)
            for each in run.files:
                data = read_verified(
                    objects,
                    layout.checkpoint_key(attempt, _path_of(each.file)),
                    each.file.size_bytes,
                    each.file.sha256,
                )
                # An unconditional write is safe: the bytes have the hash of the lost file.
                objects.put(each.file.key, data)
                self._inspector.mended(each.file)

    def _require_reproduced(self, run: EpochRun, output: EpochOutput, made: dict[str, str]) -> None:
        epoch = run.planned.epoch
        if run.manifest:
            absent = absent_sinks(self._pipeline, run.manifest, run.planned)
            _, differences = compare(run.manifest, output, absent)
            if differences:
                raise NotReproduced(epoch, differences[0].name)
        for each in run.files:
            if made.get(_path_of(each.file)) != each.file.sha256:
                raise NotReproduced(epoch, each.file.key)


def _written(output: EpochOutput) -> Iterator[tuple[str, str]]:
    """The path and SHA-256 of every file that a run has written itself."""
    for operator in output.operators:
        for part in operator.partitions:
            if part.origin is None:
                yield part.path, part.sha256
    written = [entry.files for entry in output.sinks]
    written += [entry.files for entry in output.dead_letters]
    for file in chain.from_iterable(written):
        yield file.path, file.sha256


def _path_of(file: KeptFile) -> str:
    parsed = layout.parse_checkpoint_key(file.key)
    assert parsed is not None
    return parsed[1]


def _checkpoint_of(file: KeptFile) -> CheckpointId:
    parsed = layout.parse_checkpoint_key(file.key)
    assert parsed is not None
    return parsed[0]


def _with(run: EpochRun, files: Iterable[DamagedFile]) -> EpochRun:
    # For a file in both, ``run``'s entry wins: it is needed at least as much.
    both = {each.file.key: each for each in (*files, *run.files)}
    return EpochRun(run.planned, run.parent, run.manifest, tuple(both.values()))


def _joined(
    one: dict[EpochNumber, EpochRun], other: dict[EpochNumber, EpochRun]
) -> dict[EpochNumber, EpochRun]:
    both = dict(one)
    for epoch, run in other.items():
        both[epoch] = _with(both[epoch], run.files) if epoch in both else run
    return both
