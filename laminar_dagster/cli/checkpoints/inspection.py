"""Reads whole checkpoints and gathers what is wrong with them.

A file that several checkpoints share is read once. Ctrl-C ends the readers at their next piece of
a file, not at its end.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType

from msgspec import structs

from laminar_dagster.cli.progress import bytes_progress
from laminar_dagster.core import layout
from laminar_dagster.core.errors import IntegrityError
from laminar_dagster.core.ids import CheckpointId, EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest, PartitionSnapshotEntry
from laminar_dagster.core.ports import Sink
from laminar_dagster.core.recovery import Candidate
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.record_checks import check_records
from laminar_dagster.runtime.verification import verify_checkpoint

# A file as a manifest names it: key, size, SHA-256.
_File = tuple[str, int, str]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it was written."""

    checkpoint_id: CheckpointId | None
    epoch: EpochNumber | None
    key: str
    error: IntegrityError


@dataclass(slots=True)
class Inspection:
    """What was read, and what was found.

    Attributes:
        collected: Checkpoints that a collector removed while they were being read.
    """

    checkpoints: int = 0
    files: int = 0
    size_bytes: int = 0
    problems: list[Problem] = field(default_factory=list)
    collected: list[CheckpointId] = field(default_factory=list)


def inspect_checkpoints(
    checkpoints: CheckpointStore,
    candidates: Sequence[Candidate],
    *,
    with_latest: bool = False,
    with_records: bool = False,
    sinks: Sequence[Sink] = (),
) -> Inspection:
    """Read every file of some checkpoints, with a progress bar.

    Args:
        checkpoints: Where they are.
        candidates: Which ones.
        with_latest: Whether to look at the pointer to the latest one as well.
        with_records: Whether to look at all documents of the store, and at its branches.
        sinks: Of the pipeline, as far as they are known: they are asked how far they are.

    Raises:
        LaminarError: The store is away, which says nothing about the files.
    """
    found = Inspection()
    manifests = []
    for candidate in candidates:
        match candidate.manifest:
            case CheckpointManifest() as manifest:
                manifests.append(manifest)
            case IntegrityError() as error:
                key = layout.manifest_key(candidate.checkpoint_id)
                found.checkpoints += 1
                found.problems.append(Problem(candidate.checkpoint_id, None, key, error))
            case other:
                raise other
    if with_latest:
        _inspect_latest(checkpoints, found)
    distinct = {file for manifest in manifests for file in manifest.files()}
    known: dict[_File, IntegrityError | None] = {}
    with (
        bytes_progress("Verifying", sum(size for _, size, _ in distinct)) as advance,
        _ended_by_interrupt(advance) as progress,
    ):
        for manifest in manifests:
            _inspect(checkpoints, manifest, known, progress, found)
    if with_records:
        _inspect_records(checkpoints, sinks, found)
    return found


def _inspect_records(
    checkpoints: CheckpointStore, sinks: Sequence[Sink], found: Inspection
) -> None:
    told = {problem.key for problem in found.problems}
    for each in check_records(checkpoints, sinks):
        if each.key not in told and each.checkpoint_id not in found.collected:
            problem = Problem(each.checkpoint_id, each.epoch, each.key, each.error)
            found.problems.append(problem)


def _inspect(
    checkpoints: CheckpointStore,
    manifest: CheckpointManifest,
    known: dict[_File, IntegrityError | None],
    progress: Callable[[int], None],
    found: Inspection,
) -> None:
    names = {key: (key, size, sha256) for key, size, sha256 in manifest.files()}
    problems = []
    files = size_bytes = 0
    for file in verify_checkpoint(checkpoints, _without(manifest, known), progress):
        files += 1
        size_bytes += file.size_bytes
        if file.key in names:
            known[names[file.key]] = file.problem
        elif file.problem:
            problems.append(_problem(manifest, file.key, file.problem))
    for name in names.values():
        error = known.get(name)
        if error:
            problems.append(_problem(manifest, name[0], error))
    if problems and _is_gone(checkpoints, manifest.checkpoint_id):
        found.collected.append(manifest.checkpoint_id)
        return
    found.checkpoints += 1
    found.files += files
    found.size_bytes += size_bytes
    found.problems.extend(problems)


def _problem(manifest: CheckpointManifest, key: str, error: IntegrityError) -> Problem:
    return Problem(manifest.checkpoint_id, manifest.epoch, key, error)


def _without(
    manifest: CheckpointManifest, known: dict[_File, IntegrityError | None]
) -> CheckpointManifest:
    """The manifest without the state files that were read for another checkpoint already."""

    def is_new(part: PartitionSnapshotEntry) -> bool:
        home = manifest.origin_of(part).checkpoint_id
        return (layout.checkpoint_key(home, part.path), part.size_bytes, part.sha256) not in known

    return structs.replace(
        manifest,
        operators=tuple(
            structs.replace(entry, partitions=tuple(filter(is_new, entry.partitions)))
            for entry in manifest.operators
        ),
    )


def _is_gone(checkpoints: CheckpointStore, checkpoint: CheckpointId) -> bool:
    try:
        return checkpoints.manifest(checkpoint) is None
    except IntegrityError:
        return False


def _inspect_latest(checkpoints: CheckpointStore, found: Inspection) -> None:
    """A pointer that cannot be read, or leads to no checkpoint or to another than it says."""
    try:
        pointer = checkpoints.latest()
    except IntegrityError as error:
        found.problems.append(Problem(None, None, layout.LATEST, error))
        return
    if pointer is None or any(
        problem.checkpoint_id == pointer.checkpoint_id for problem in found.problems
    ):
        return
    try:
        checkpoints.parent(pointer.as_parent())
    except IntegrityError as error:
        problem = Problem(pointer.checkpoint_id, pointer.epoch, layout.LATEST, error)
        found.problems.append(problem)


class _Interrupted(Exception):
    """Ends a reader in the middle of its file."""


@contextlib.contextmanager
def _ended_by_interrupt(advance: Callable[[int], None]) -> Iterator[Callable[[int], None]]:
    """Let Ctrl-C reach the threads that read: the main one waits for them to end."""
    stopped = threading.Event()

    def progress(more: int) -> None:
        if stopped.is_set():
            raise _Interrupted
        advance(more)

    def interrupt(number: int, frame: FrameType | None) -> None:
        stopped.set()
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield progress
        return
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield progress
    finally:
        signal.signal(signal.SIGINT, before)
