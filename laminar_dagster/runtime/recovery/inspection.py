"""Reads every file that a recovery needs, once: verifies it, and passes state to its restorer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from laminar_dagster.core import layout
from laminar_dagster.core.errors import IntegrityError
from laminar_dagster.core.ids import OperatorId, PartitionId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.ports import ObjectStore, Restorable
from laminar_dagster.core.recovery import (
    KeptFile,
    OperatorRecoveryResult,
    OperatorSnapshotRef,
    RecoveryConfig,
    RecoveryPlan,
)
from laminar_dagster.runtime.checked_files import check_file, read_verified
from laminar_dagster.runtime.history import unknown_operator
from laminar_dagster.runtime.recovery.deadline import Deadline, side_by_side
from laminar_dagster.runtime.recovery.progress import ProgressReporter


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """A file that is missing or damaged."""

    file: KeptFile
    problem: IntegrityError


@dataclass(frozen=True, slots=True)
class Chain:
    """The files of one partition of an operator's state, in the order in which they apply."""

    operator_id: OperatorId
    partition_id: PartitionId
    files: tuple[OperatorSnapshotRef, ...]

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class RestoredChain:
    """A partition that was read: either restored, or not because of damaged files."""

    chain: Chain
    seconds: float
    rows: int | None
    damaged: tuple[DamagedFile, ...]


def chains_of(
    plan: RecoveryPlan, config: RecoveryConfig, operators: Collection[str] | None
) -> list[Chain]:
    """The partitions to restore.

    Raises:
        UnknownOperator: The checkpoint has no operator of that name.
    """
    known = {entry.operator_id for entry in plan.manifest.operators}
    for wanted in sorted(operators or ()):
        if wanted not in known:
            raise unknown_operator(plan.manifest, wanted)
    found: defaultdict[tuple[OperatorId, PartitionId], list[OperatorSnapshotRef]]
    found = defaultdict(list)
    for file in plan.operator_snapshots:
        is_wanted = operators is None or file.operator_id in operators
        if is_wanted and config.is_assigned(file.operator_id, file.partition_id):
            found[file.operator_id, file.partition_id].append(file)
    return [Chain(*place, tuple(files)) for place, files in sorted(found.items())]


def state_files(manifest: CheckpointManifest) -> Iterator[KeptFile]:
    """Every file of a checkpoint's state, also those of earlier checkpoints."""
    for operator in manifest.operators:
        for part in operator.partitions:
            origin = manifest.origin_of(part)
            key = layout.checkpoint_key(origin.checkpoint_id, part.path)
            yield KeptFile(key, part.size_bytes, part.sha256, origin.epoch)


class Inspector:
    """Reads files in parallel, and remembers which are intact."""

    def __init__(
        self, objects: ObjectStore, deadline: Deadline, progress: ProgressReporter
    ) -> None:
        """Read from a store, until the deadline."""
        self._objects = objects
        self._deadline = deadline
        self._progress = progress
        self._known: dict[str, DamagedFile | None] = {}
        self._waiting: defaultdict[OperatorId, set[PartitionId]] = defaultdict(set)

    def read(
        self,
        chains: Iterable[Chain],
        restorers: Mapping[OperatorId, Restorable],
        others: Iterable[KeptFile],
    ) -> list[RestoredChain]:
        """Restore partitions, and verify other files, whose damage ``damaged`` returns later.

        Raises:
            RestoreFailed: A file is intact, but not state of its operator.
            RecoveryTimeout: It takes too long.
        """
        chains, others = list(chains), list(others)
        for chain in chains:
            self._waiting[chain.operator_id].add(chain.partition_id)
        sizes = [chain.size_bytes for chain in chains] + [file.size_bytes for file in others]
        self._progress.expect(sum(sizes))
        tasks: list[Callable[[], RestoredChain | None]] = [
            partial(self._restore, chain, restorers[chain.operator_id]) for chain in chains
        ]
        tasks += [partial(self._check, file) for file in others]
        restored = []
        for done in side_by_side(tasks, self._deadline):
            if done is None:
                continue
            restored.append(done)
            waiting = self._waiting[done.chain.operator_id]
            if not done.damaged:
                waiting.discard(done.chain.partition_id)
            if not waiting:
                self._progress.restored()
        return restored

    def damaged(self, files: Iterable[KeptFile]) -> list[DamagedFile]:
        """The damaged ones among some files. A file that was read before is not read again."""
        wanted = list({file.key: file for file in files}.values())
        new = [file for file in wanted if file.key not in self._known]
        self._progress.expect(sum(file.size_bytes for file in new))
        tasks = [partial(self._check, file) for file in new]
        for _ in side_by_side(tasks, self._deadline):
            pass
        found = (self._known[file.key] for file in wanted)
        return [each for each in found if each is not None]

    def mended(self, file: KeptFile) -> None:
        """Remember that a file was rebuilt, and is intact."""
        self._known[file.key] = None

    def _check(self, file: KeptFile) -> None:
        self._deadline.remaining()
        try:
            check_file(self._objects, file.key, file.size_bytes, file.sha256, self._progress.read)
        except IntegrityError as problem:
            self._known[file.key] = DamagedFile(file, problem)
        else:
            self._known[file.key] = None

    def _restore(self, chain: Chain, restorer: Restorable) -> RestoredChain:
        begun = self._deadline.elapsed
        damaged: list[DamagedFile] = []
        for file in chain.files:
            self._deadline.remaining()
            try:
                data = read_verified(self._objects, file.key, file.size_bytes, file.sha256)
            except IntegrityError as problem:
                kept = KeptFile(file.key, file.size_bytes, file.sha256, file.epoch)
                damaged.append(DamagedFile(kept, problem))
                self._known[file.key] = damaged[-1]
                continue
            self._known[file.key] = None
            self._progress.read(len(data))
            if damaged:
                continue  # deltas cannot be applied without the file below: only verify the rest
            if file.is_incremental:
                restorer.apply_delta(chain.partition_id, data)
            else:
                restorer.restore(chain.partition_id, data)
        rows = None if damaged else restorer.complete(chain.partition_id)
        return RestoredChain(chain, self._deadline.elapsed - begun, rows, tuple(damaged))


def by_operator(
    manifest: CheckpointManifest, restored: Iterable[RestoredChain]
) -> tuple[OperatorRecoveryResult, ...]:
    """What was restored, operator by operator."""
    whole: defaultdict[OperatorId, list[RestoredChain]] = defaultdict(list)
    for each in restored:
        if not each.damaged:
            whole[each.chain.operator_id].append(each)
    results = []
    for entry in manifest.operators:
        parts = whole.get(entry.operator_id)
        if not parts:
            continue
        rows = [each.rows for each in parts if each.rows is not None]
        results.append(
            OperatorRecoveryResult(
                operator_id=entry.operator_id,
                partitions_restored=tuple(sorted(each.chain.partition_id for each in parts)),
                bytes_restored=sum(each.chain.size_bytes for each in parts),
                restore_duration=sum(each.seconds for each in parts),
                rows=sum(rows) if rows else None,
            )
        )
    return tuple(results)
