"""Runs a committed epoch again from its plan, and compares every hash. Publishes nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from msgspec import structs

from laminar_dagster.core import layout
from laminar_dagster.core.document import encode_part
from laminar_dagster.core.errors import EpochNotCommitted, ObjectMissing, PipelineChanged
from laminar_dagster.core.ids import CheckpointId, EpochNumber, SinkId
from laminar_dagster.core.manifest import (
    CheckpointManifest,
    RecordCounts,
    SourceOffsetEntry,
)
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.ports import EpochOutput
from laminar_dagster.core.prepared import AttemptRecord
from laminar_dagster.runtime.carrying_out import carry_out, check_sources
from laminar_dagster.runtime.deployment import require_fit
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.references import require_pinned
from laminar_dagster.runtime.steps import begin_attempt
from laminar_dagster.runtime.survey import find_epoch

Kind = Literal["operator", "sink", "dead letters", "source", "counts"]


@dataclass(frozen=True, slots=True)
class Difference:
    """A hash or position that differs between the committed epoch and its rerun.

    Attributes:
        name: The name of the operator, sink or source.
        committed: The value in the manifest.
        again: The value of the rerun.
    """

    kind: Kind
    name: str
    committed: str
    again: str


@dataclass(frozen=True, slots=True)
class Rerun:
    """The outcome of running an epoch again.

    Attributes:
        compared: How many hashes and positions were compared.
        absent: Sinks that the pipeline no longer has. Their output is not computed again.
    """

    epoch: EpochNumber
    manifest: CheckpointManifest
    compared: int
    differences: tuple[Difference, ...]
    absent: tuple[SinkId, ...] = ()

    @property
    def is_identical(self) -> bool:
        """Whether everything came out as it was committed."""
        return not self.differences


def rerun(pipeline: Pipeline, epoch: EpochNumber) -> Rerun:
    """Execute a committed epoch's plan again, as an attempt of its own that is removed afterwards.

    Raises:
        EpochNotCommitted: The epoch is not committed.
        PipelineChanged: Another version of the pipeline computed it.
        ObjectMissing: Its checkpoint, or the one it builds on, has been collected.
        SourceReplaced, RetentionExpired: A source no longer holds what the epoch read.
    """
    manifest, planned = _committed(pipeline, epoch)
    require_same_code(pipeline, epoch, manifest.fingerprint)
    parent = pipeline.checkpoints.parent(planned.parent) if planned.parent else None
    absent = absent_sinks(pipeline, manifest, planned)
    with carried_out_again(pipeline, planned, parent, manifest) as (_, output):
        compared, found = compare(manifest, output, absent)
    return Rerun(epoch, manifest, compared, found, absent)


@contextlib.contextmanager
def carried_out_again(
    pipeline: Pipeline,
    planned: EpochPlan,
    parent: CheckpointManifest | None,
    committed: CheckpointManifest | None,
) -> Iterator[tuple[CheckpointId, EpochOutput]]:
    """Execute a plan as an attempt of its own, whose files are there until the block ends.

    Args:
        pipeline: The pipeline that executes it.
        planned: The plan.
        parent: The checkpoint that it builds on.
        committed: The outcome of the first time, if that is known. A sink that took no part in it
            takes none now: the version that computed it may have lacked the sink.

    Raises:
        SourceReplaced, RetentionExpired: A source no longer holds what was planned.
        PipelineChanged: The pipeline no longer has a source that was planned, or is not the one
            that the upkeep is for.
    """
    require_fit(pipeline, planned)
    check_sources(pipeline, planned)
    require_pinned(pipeline, planned)
    record = begin_attempt(pipeline, planned.epoch)
    try:
        if committed:
            planned = planned.narrowed_to({sink.sink_id for sink in committed.sinks})
        output = carry_out(pipeline, planned, parent, record)
        yield record.checkpoint_id, output
    finally:
        _remove(pipeline, record)


def require_same_code(pipeline: Pipeline, epoch: EpochNumber, fingerprint: str) -> None:
    """Refuse to run an epoch again with another version than the one that computed it.

    Raises:
        PipelineChanged: The fingerprints differ.
    """
    if fingerprint != pipeline.fingerprint:
        was, now = fingerprint[:12], pipeline.fingerprint[:12]
        raise PipelineChanged(epoch, f"its fingerprint is {was}, and the pipeline's is {now}")


def absent_sinks(
    pipeline: Pipeline, manifest: CheckpointManifest, planned: EpochPlan
) -> tuple[SinkId, ...]:
    """The sinks of an epoch that the pipeline no longer has: their output is not recomputed."""
    if planned.upkeep:
        return ()
    known = {sink.sink_id for sink in pipeline.sinks}
    return tuple(sink.sink_id for sink in manifest.sinks if sink.sink_id not in known)


def compare(
    manifest: CheckpointManifest, output: EpochOutput, absent: Collection[SinkId] = ()
) -> tuple[int, tuple[Difference, ...]]:
    """How many hashes and positions were compared, and those that differ.

    Args:
        manifest: What was committed.
        output: What the rerun computed.
        absent: Sinks that took no part in the rerun. Views that only they need were not computed,
            so record counts and sources are not comparable: only state and the other sinks are.
    """
    committed, again = _digests(manifest), _digests(output)
    names = sorted(
        (kind, name)
        for kind, name in {*committed, *again}
        if not absent or kind == "operator" or (kind == "sink" and name not in absent)
    )
    found = (
        Difference(kind, name, committed.get((kind, name), ""), again.get((kind, name), ""))
        for kind, name in names
        if committed.get((kind, name)) != again.get((kind, name))
    )
    return len(names), tuple(found)


def _committed(pipeline: Pipeline, epoch: EpochNumber) -> tuple[CheckpointManifest, EpochPlan]:
    found = find_epoch(pipeline.checkpoints, epoch)
    planned = pipeline.checkpoints.plan(epoch)
    if not found.prepared or not planned:
        raise EpochNotCommitted(epoch)
    if not found.manifest:
        raise ObjectMissing(layout.manifest_key(found.prepared.checkpoint_id))
    return found.manifest, planned


def _remove(pipeline: Pipeline, record: AttemptRecord) -> None:
    """Delete an attempt's files. What a crash leaves is collected like an attempt that lost."""
    objects = pipeline.checkpoints.objects
    folder = layout.checkpoint_folder(record.checkpoint_id)
    objects.delete([info.key for info in objects.list(folder)])


def _digests(found: CheckpointManifest | EpochOutput) -> dict[tuple[Kind, str], str]:
    """Every hash, position and count in which two runs of an epoch can differ."""
    digests: dict[tuple[Kind, str], str] = {("counts", "records"): _spelled(found.counts)}
    for operator in found.operators:
        for part in operator.partitions:
            since = f" of epoch {part.origin.epoch}" if part.origin else ""
            digests["operator", f"{operator.operator_id}: {part.path}{since}"] = part.sha256
    for sink in found.sinks:
        digests["sink", str(sink.sink_id)] = sink.output_sha256
    for letters in found.dead_letters:
        for file in letters.files:
            digests["dead letters", f"{letters.source_id}: {file.path}"] = file.sha256
    for source in found.sources:
        # Without timings, which differ between runs that read the same records.
        digests["source", str(source.source_id)] = _spelled(structs.replace(source, reading=None))
    return digests


def _spelled(record: RecordCounts | SourceOffsetEntry) -> str:
    return encode_part(record).decode()
