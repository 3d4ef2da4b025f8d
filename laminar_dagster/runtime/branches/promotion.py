"""Computes the epoch of a promotion: the branch's state, and a correction for each sink.

Everything is read from the store: the plan names the branch and its checkpoint, the branch's record
names the sinks. So any process with the promoted version can compute it, with the same result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from msgspec import structs

from laminar_dagster.core import layout
from laminar_dagster.core.branch import BranchRecord
from laminar_dagster.core.errors import BranchMismatch
from laminar_dagster.core.ids import CheckpointId, FileName, SinkId
from laminar_dagster.core.manifest import (
    CheckpointManifest,
    FileEntry,
    RecordCounts,
    SinkEntry,
)
from laminar_dagster.core.offsets import lane_of, progress_of
from laminar_dagster.core.plan import EpochPlan, ParentCheckpoint, SinkPlan
from laminar_dagster.core.ports import EpochOutput, ObjectStore
from laminar_dagster.core.succession import after_promotion
from laminar_dagster.core.upkeep import Promotion
from laminar_dagster.core.upkeep_output import NO_OUTPUT
from laminar_dagster.runtime.branches.accumulation import find_corrections
from laminar_dagster.runtime.branches.adoption import adopt_state
from laminar_dagster.runtime.branches.corrections import Correction
from laminar_dagster.runtime.branches.outputs import epochs_after
from laminar_dagster.runtime.branches.records import branch_checkpoints, require_branch
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.spark.arrow_files import file_bytes, schema_fingerprint, sha256

_FILE: Final = FileName("correction.arrow")


def compute_promotion(
    main: CheckpointStore,
    plan: EpochPlan,
    promotion: Promotion,
    parent: CheckpointManifest,
    attempt: CheckpointId,
) -> EpochOutput:
    """Carry out the plan of a promotion, below the attempt's folder.

    Raises:
        UnknownBranch: The branch was dropped.
        CannotRetract: A sink cannot be corrected.
        BranchMismatch: The branch is not at the pipeline's epoch, or another one has its name now.
        IntegrityError: A file that is needed is gone, or damaged.
    """
    # Also if a drop has marked it: all files are verified, and a drop yields to a promotion.
    record = require_branch(main.objects, promotion.branch)
    if promotion.record_checksum not in (None, record.identity):
        raise BranchMismatch(record.name, "was made anew since its promotion was planned")
    branch = branch_checkpoints(main, promotion.branch)
    manifest = branch.parent(
        ParentCheckpoint(
            checkpoint_id=promotion.checkpoint_id,
            epoch=parent.epoch,
            manifest_checksum=promotion.manifest_checksum,
        )
    )
    require_level(record, manifest, parent)
    corrections = find_corrections(main, record, parent)
    operators = adopt_state(branch, manifest, main.objects, attempt)
    return EpochOutput(
        operators=operators,
        # Without the branch's metrics of reading: this epoch has read nothing.
        sources=tuple(
            structs.replace(entry, schema_ids=(), reading=None) for entry in manifest.sources
        ),
        sinks=tuple(_stage(main.objects, attempt, sink, corrections) for sink in plan.sinks),
        dead_letters=(),
        counts=RecordCounts(),
        watermark=manifest.watermark,
        metadata=after_promotion(
            parent, corrected_versions(main, record, parent), plan.fingerprint
        ),
    )


def require_level(
    record: BranchRecord, manifest: CheckpointManifest, parent: CheckpointManifest
) -> None:
    """Refuse a checkpoint of a branch that has not read exactly what the pipeline has.

    Args:
        record: The record of the branch.
        manifest: The branch's checkpoint.
        parent: The pipeline's newest checkpoint.

    Raises:
        BranchMismatch: The branch has read less, more or something else.
    """
    if manifest.epoch != parent.epoch:
        what = f"is at epoch {manifest.epoch}, and the pipeline at {parent.epoch}"
        raise BranchMismatch(record.name, what)
    if manifest.fingerprint != record.fingerprint and manifest.epoch > record.from_epoch:
        raise BranchMismatch(record.name, "was computed by another version than it was made with")
    reached = _positions(manifest)
    for source, lanes in _positions(parent).items():
        if reached.get(source) != lanes:
            what = f"does not stand where the pipeline stands in source {source}"
            raise BranchMismatch(record.name, what)


def corrected_versions(
    main: CheckpointStore, record: BranchRecord, parent: CheckpointManifest
) -> set[str]:
    """The fingerprints of the versions whose output a promotion corrects."""
    epochs = epochs_after(record.from_epoch, parent.epoch)
    return {parent.fingerprint, *(main.winner(each).manifest.fingerprint for each in epochs)}


def _positions(manifest: CheckpointManifest) -> dict[str, dict[object, object]]:
    return {
        entry.source_id: {lane_of(each): progress_of(each) for each in entry.positions}
        for entry in manifest.sources
    }


def describe_correction(sink: SinkPlan, rows: pa.Table | None) -> tuple[SinkEntry, bytes]:
    """The manifest's entry for a correction, and the content of its file. Nothing is written."""
    if rows is None:
        nothing = SinkEntry(
            sink_id=sink.sink_id, joined_at=sink.joined_at, files=(), output_sha256=NO_OUTPUT
        )
        return nothing, b""
    path, data = layout.staged_path(sink.sink_id, _FILE), file_bytes(rows)
    digest = sha256(data)
    file = FileEntry(path=path, size_bytes=len(data), sha256=digest, rows=rows.num_rows)
    entry = SinkEntry(
        sink_id=sink.sink_id,
        joined_at=sink.joined_at,
        files=(file,),
        output_sha256=hashlib.sha256(f"{path} {digest}".encode()).hexdigest(),
        schema_fingerprint=schema_fingerprint(rows.schema),
    )
    return entry, data


def _stage(
    store: ObjectStore,
    attempt: CheckpointId,
    sink: SinkPlan,
    corrections: Mapping[SinkId, Correction],
) -> SinkEntry:
    rows = corrections.get(sink.sink_id, Correction()).rows
    entry, data = describe_correction(sink, rows)
    for file in entry.files:
        store.put(layout.checkpoint_key(attempt, file.path), data)
    return entry
