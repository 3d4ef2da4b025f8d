"""The only code that builds an object key.

::

    {base}/
    ├── pipelines/{fingerprint}.json
    ├── epochs/{epoch, 20 digits}/plan.json · prepared.json
    ├── snapshots/{source}/{number, 20 digits}/snapshot.json · {draft id}/{file}
    ├── references/{table}/{epoch, 20 digits}/{copy id}/{file}
    ├── checkpoints/
    │   ├── {checkpoint id}/
    │   │   ├── attempt.json · manifest.json
    │   │   ├── operators/{operator}/{partition}.snap | .delta
    │   │   ├── sources/{source}.offsets
    │   │   ├── staged/{sink}/{file}
    │   │   └── dead_letters/{source}/{file}
    │   └── _latest
    └── branches/{branch}/branch.json, and all of the above once more

Keys are relative to the store's base, with ``/`` between segments. Every segment is a constant or
an identifier that was checked where it was made, so no key can leave the base.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from laminar_dagster.core.errors import InvalidCheckpointId, InvalidName
from laminar_dagster.core.ids import (
    MAX_EPOCH,
    BranchName,
    CheckpointId,
    EpochNumber,
    FileName,
    OperatorId,
    PartitionId,
    ReferenceId,
    SinkId,
    SourceId,
)

EPOCHS: Final = "epochs/"
CHECKPOINTS: Final = "checkpoints/"
LATEST: Final = "checkpoints/_latest"
BRANCHES: Final = "branches/"
SNAPSHOTS: Final = "snapshots/"
REFERENCES: Final = "references/"


# --- paths within a checkpoint's folder, as manifests name them --------------------------------


def snapshot_path(operator: OperatorId, partition: PartitionId) -> str:
    """A full snapshot of one partition of an operator's state."""
    return f"operators/{operator}/{partition:d}.snap"


def delta_path(operator: OperatorId, partition: PartitionId) -> str:
    """What one epoch changed in one partition of an operator's state."""
    return f"operators/{operator}/{partition:d}.delta"


def offsets_path(source: SourceId) -> str:
    """The file of a source's position at the end of the epoch."""
    return f"sources/{source}.offsets"


def staged_path(sink: SinkId, file: FileName) -> str:
    """A file of output that waits for a sink to commit it."""
    return f"staged/{sink}/{file}"


def dead_letter_path(source: SourceId, file: FileName) -> str:
    """A file of dead letters."""
    return f"dead_letters/{source}/{file}"


def bad_records_file(part: int, number: int) -> FileName:
    """The name of a file of bad records."""
    return FileName(f"bad-{part:06d}-{number:04d}.arrow")


def late_records_file(part: int, number: int) -> FileName:
    """The name of a file of records that came too late."""
    return FileName(f"late-{part:06d}-{number:04d}.arrow")


def is_late_path(path: str) -> bool:
    """Whether a path below ``dead_letters/`` is of late records, not of bad ones."""
    return path.rpartition("/")[2].startswith("late-")


# --- keys ---------------------------------------------------------------------------------------


def checkpoint_folder(checkpoint: CheckpointId) -> str:
    """The prefix of everything one attempt writes."""
    return f"checkpoints/{checkpoint}/"


def checkpoint_key(checkpoint: CheckpointId, path: str) -> str:
    """The key of a path that a manifest names.

    Raises:
        InvalidName: The path is none that this module builds.
    """
    check_path(path)
    return f"checkpoints/{checkpoint}/{path}"


def manifest_key(checkpoint: CheckpointId) -> str:
    """The manifest: the checkpoint exists if and only if this object does."""
    return f"checkpoints/{checkpoint}/manifest.json"


def attempt_key(checkpoint: CheckpointId) -> str:
    """The first object of an attempt: which epoch it is for."""
    return f"checkpoints/{checkpoint}/attempt.json"


def definition_key(fingerprint: str) -> str:
    """The definition of the pipeline with a fingerprint.

    Raises:
        InvalidName: The fingerprint cannot be part of a key.
    """
    return f"pipelines/{FileName(fingerprint)}.json"


def plan_key(epoch: EpochNumber) -> str:
    """The plan of an epoch."""
    return f"epochs/{epoch:020d}/plan.json"


def prepared_key(epoch: EpochNumber) -> str:
    """The record that names an epoch's winning attempt."""
    return f"epochs/{epoch:020d}/prepared.json"


def epoch_start(epoch: EpochNumber) -> str:
    """A key that sorts just before everything of an epoch, to list from there on."""
    return f"epochs/{epoch:020d}/"


def branch_folder(branch: BranchName) -> str:
    """The base of everything that belongs to a branch: a store within the store."""
    return f"branches/{branch}/"


def branch_key(branch: BranchName) -> str:
    """The record of a branch: the branch exists if and only if this object does."""
    return f"branches/{branch}/branch.json"


def snapshot_folder(source: SourceId, number: int) -> str:
    """The prefix of a snapshot and of all drafts of it."""
    return f"snapshots/{source}/{number:020d}/"


def snapshot_key(source: SourceId, number: int) -> str:
    """The description of a snapshot: it is whole if and only if this object exists."""
    return f"snapshots/{source}/{number:020d}/snapshot.json"


def snapshot_file_key(source: SourceId, number: int, draft: CheckpointId, file: FileName) -> str:
    """A file of rows of a snapshot, or of a draft of one."""
    return f"snapshots/{source}/{number:020d}/{draft}/{file}"


def reference_folder(table: ReferenceId, epoch: EpochNumber, copy_id: CheckpointId) -> str:
    """The prefix of a copy of a reference table."""
    return f"references/{table}/{epoch:020d}/{copy_id}/"


def reference_file_key(
    table: ReferenceId, epoch: EpochNumber, copy_id: CheckpointId, file: FileName
) -> str:
    """A file of rows of a reference table, copied for the plan of an epoch."""
    return f"references/{table}/{epoch:020d}/{copy_id}/{file}"


# --- reading keys back --------------------------------------------------------------------------


class EpochKey(NamedTuple):
    """What a key below ``epochs/`` stands for."""

    epoch: EpochNumber
    is_plan: bool


def parse_epoch_key(key: str) -> EpochKey | None:
    """What a key below ``epochs/`` stands for, or None if this module does not build it."""
    match key.split("/"):
        case ["epochs", number, "plan.json" | "prepared.json" as name] if _is_epoch(number):
            return EpochKey(EpochNumber(int(number)), name == "plan.json")
        case _:
            return None


class SnapshotKey(NamedTuple):
    """What a key below ``snapshots/`` stands for; ``draft`` is None for the description."""

    source: SourceId
    number: int
    draft: CheckpointId | None


def parse_snapshot_key(key: str) -> SnapshotKey | None:
    """What a key below ``snapshots/`` stands for, or None if this module does not build it."""
    try:
        match key.split("/"):
            case ["snapshots", source, number, "snapshot.json"] if _is_epoch(number):
                return SnapshotKey(SourceId(source), int(number), None)
            case ["snapshots", source, number, draft, file] if _is_epoch(number):
                FileName(file)
                return SnapshotKey(SourceId(source), int(number), CheckpointId(draft))
            case _:
                return None
    except (InvalidName, InvalidCheckpointId):
        return None


class ReferenceKey(NamedTuple):
    """What a key below ``references/`` stands for: a file of a copy, and for which plan it is."""

    table: ReferenceId
    epoch: EpochNumber
    copy_id: CheckpointId


def parse_reference_key(key: str) -> ReferenceKey | None:
    """What a key below ``references/`` stands for, or None if this module does not build it."""
    try:
        match key.split("/"):
            case ["references", table, number, copy_id, file] if _is_epoch(number):
                FileName(file)
                epoch = EpochNumber(int(number))
                return ReferenceKey(ReferenceId(table), epoch, CheckpointId(copy_id))
            case _:
                return None
    except (InvalidName, InvalidCheckpointId):
        return None


def parse_checkpoint_key(key: str) -> tuple[CheckpointId, str] | None:
    """The checkpoint and path of a key below ``checkpoints/``, or None if it is no such key."""
    root, _, rest = key.partition("/")
    folder, _, path = rest.partition("/")
    if root != "checkpoints" or not path:
        return None
    try:
        return CheckpointId(folder), path
    except InvalidCheckpointId:
        return None


def is_manifest_path(path: str) -> bool:
    """Whether a path within a checkpoint's folder is its manifest."""
    return path == "manifest.json"


def is_attempt_path(path: str) -> bool:
    """Whether a path within a checkpoint's folder is the record of its attempt."""
    return path == "attempt.json"


def is_letter_path(path: str) -> bool:
    """Whether a path within a checkpoint's folder holds dead letters."""
    return path.startswith("dead_letters/")


def is_output_path(path: str) -> bool:
    """Whether a path within a checkpoint's folder is output, not state."""
    return path.startswith(("dead_letters/", "staged/"))


def check_path(path: str) -> None:
    """Refuse a path within a checkpoint's folder that this module does not build.

    Raises:
        InvalidName: with the path.
    """
    match path.split("/"):
        case ["operators", operator, file]:
            stem, _, suffix = file.rpartition(".")
            if suffix in ("snap", "delta") and stem.isascii() and stem.isdigit():
                OperatorId(operator), PartitionId(int(stem[:20]))
                if str(int(stem[:20])) == stem:
                    return
        case ["sources", file] if file.endswith(".offsets"):
            SourceId(file.removesuffix(".offsets"))
            return
        case ["staged", sink, file]:
            SinkId(sink), FileName(file)
            return
        case ["dead_letters", source, file]:
            SourceId(source), FileName(file)
            return
    raise InvalidName("path", path[:200], "is none of a checkpoint's paths")


def _is_epoch(text: str) -> bool:
    return len(text) == 20 and text.isascii() and text.isdigit() and int(text) <= MAX_EPOCH
