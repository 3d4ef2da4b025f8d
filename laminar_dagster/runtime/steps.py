"""The steps of the protocol, carried out. In the order of ``core.protocol``, one function each.

Every step may be taken twice, by two processes, or half and then again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from laminar_dagster.core import layout
from laminar_dagster.core.document import FORMAT_VERSION, checksum
from laminar_dagster.core.errors import (
    AcknowledgeFailed,
    FailedError,
    GateFailed,
    LaminarError,
    LedgerMismatch,
    ObjectExists,
    ObjectMissing,
    PipelineChanged,
    RetryError,
    UnknownOutcome,
)
from laminar_dagster.core.gate import refusal
from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.core.manifest import CheckpointManifest, FileEntry, ManifestBuilder
from laminar_dagster.core.offsets import SourceOffsets
from laminar_dagster.core.plan import EpochPlan, SinkPlan
from laminar_dagster.core.ports import EpochOutput, Sink, StagedOutput
from laminar_dagster.core.prepared import AttemptRecord, LatestPointer, Prepared
from laminar_dagster.runtime.collector import collect
from laminar_dagster.runtime.deployment import require_compatible
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.survey import newest_manifest, survey
from laminar_dagster.runtime.verification import read_verified

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that this process has computed, and that nobody else may rely on yet."""

    record: AttemptRecord
    plan: EpochPlan
    output: EpochOutput


def plan(pipeline: Pipeline, epoch: EpochNumber) -> None:
    """Step 1. Fix what the epoch reads."""
    standing = survey(pipeline.checkpoints)
    if standing.newest_epoch >= epoch:
        log.info("epoch %d was committed by another process meanwhile", epoch)
        return
    parent = newest_manifest(pipeline.checkpoints, standing)
    require_compatible(pipeline, parent)
    previous = pipeline.checkpoints.plan(parent.epoch) if parent else None
    now = pipeline.clock.now()
    # The logical clock never runs backwards, whatever the machine's does.
    clock = max(now, previous.clock) if previous else now
    before = {source.source_id: source for source in previous.sources} if previous else {}
    stood = {source.source_id: source.positions for source in parent.sources} if parent else {}
    joined = {sink.sink_id: sink.joined_at for sink in parent.sinks} if parent else {}
    planned = EpochPlan(
        version=FORMAT_VERSION,
        plan_id=pipeline.mint(),
        pipeline=pipeline.name,
        epoch=epoch,
        clock=clock,
        fingerprint=pipeline.fingerprint,
        parent=LatestPointer.to(parent).as_parent() if parent else None,
        sources=tuple(
            source.plan(
                before.get(source.source_id),
                stood.get(source.source_id, ()),
                pipeline.limits,
                clock,
            )
            for source in pipeline.sources
        ),
        sinks=tuple(
            SinkPlan(sink_id=sink.sink_id, joined_at=joined.get(sink.sink_id) or _join(sink, epoch))
            for sink in pipeline.sinks
        ),
    )
    if pipeline.definition:
        pipeline.checkpoints.create_definition(pipeline.definition)
    try:
        pipeline.checkpoints.create_plan(planned)
    except ObjectExists:
        log.info("epoch %d was planned by another process; its plan is used", epoch)


def _join(sink: Sink, epoch: EpochNumber) -> EpochNumber:
    """A sink takes part from this epoch on.

    Raises:
        LedgerMismatch: It took part before, and would miss the epochs in between.
    """
    try:
        ledger = sink.ledger()
    except RetryError:
        # It holds back no other. Should it turn out to have missed epochs, its commit is refused.
        return epoch
    if ledger is not None and ledger != epoch.previous():
        raise LedgerMismatch(sink.sink_id, epoch, ledger)
    return epoch


def compute(pipeline: Pipeline, epoch: EpochNumber) -> Attempt:
    """Step 2. Run the job under a name of its own, so that two attempts never share a file."""
    planned = pipeline.checkpoints.plan(epoch)
    if not planned:
        raise ObjectMissing(layout.plan_key(epoch))
    parent = pipeline.checkpoints.parent(planned.parent) if planned.parent else None
    require_compatible(pipeline, parent)
    check_sources(pipeline, planned)
    record = begin_attempt(pipeline, epoch)
    if pipeline.definition:
        # Another version may have planned the epoch; this one computes it.
        pipeline.checkpoints.create_definition(pipeline.definition)
    output = pipeline.engine.compute(planned, parent, record.checkpoint_id)
    for source in output.sources:
        pipeline.checkpoints.write_offsets(
            SourceOffsets(
                version=FORMAT_VERSION,
                source_id=source.source_id,
                epoch=epoch,
                checkpoint_id=record.checkpoint_id,
                positions=source.positions,
            )
        )
    return Attempt(record, planned, output)


def begin_attempt(pipeline: Pipeline, epoch: EpochNumber) -> AttemptRecord:
    """Mint a name that nobody else has, and leave the first object below it."""
    record = AttemptRecord(
        version=FORMAT_VERSION,
        epoch=epoch,
        checkpoint_id=pipeline.mint(),
        started_at=pipeline.clock.now(),
    )
    pipeline.checkpoints.begin_attempt(record)
    return record


def check_sources(pipeline: Pipeline, planned: EpochPlan) -> None:
    """Before a plan is carried out, perhaps for the second time: is what it pinned still there?

    Raises:
        SourceReplaced, RetentionExpired: A source no longer holds what was planned.
        PipelineChanged: The pipeline no longer has a source that was planned.
    """
    sources = {source.source_id: source for source in pipeline.sources}
    for part in planned.sources:
        if part.source_id not in sources:
            raise PipelineChanged(planned.epoch, f"it has no source {part.source_id} any more")
        sources[part.source_id].verify(part)


def gate(pipeline: Pipeline, attempt: Attempt) -> Literal[True] | GateFailed:
    """Step 3. Check what was staged."""
    above = attempt.plan.parent
    parent = pipeline.checkpoints.parent(above) if above else None
    return refusal(attempt.plan, parent, attempt.output) or True


def prepare(pipeline: Pipeline, attempt: Attempt) -> None:
    """Step 4. Try to make the attempt the winner. The facts will tell whether it is."""
    output = attempt.output
    builder = ManifestBuilder(
        CheckpointManifest(
            version=FORMAT_VERSION,
            checkpoint_id=attempt.record.checkpoint_id,
            epoch=attempt.plan.epoch,
            pipeline=pipeline.name,
            fingerprint=pipeline.fingerprint,
            plan_checksum=checksum(attempt.plan),
            previous_checkpoint_id=(
                attempt.plan.parent.checkpoint_id if attempt.plan.parent else None
            ),
            started_at=attempt.record.started_at,
            completed_at=pipeline.clock.now(),
            total_size_bytes=0,
            operators=output.operators,
            sources=output.sources,
            sinks=output.sinks,
            dead_letters=output.dead_letters,
            counts=output.counts,
            watermark=output.watermark,
        )
    )
    try:
        pipeline.checkpoints.create_prepared(Prepared.of(builder.build()))
    except ObjectExists:
        log.info("epoch %d was prepared by another attempt", attempt.plan.epoch)


def write_manifest(pipeline: Pipeline, epoch: EpochNumber) -> None:
    """Step 5. The commit point of state and offsets."""
    pipeline.checkpoints.write_manifest(pipeline.checkpoints.winner(epoch))


def commit_sinks(
    pipeline: Pipeline, manifest: CheckpointManifest, sinks: Iterable[SinkId]
) -> dict[SinkId, LaminarError]:
    """Step 6. Redo the staged output, all sinks side by side.

    Returns:
        The sinks that could not commit now, and why. They hold back no other.

    Raises:
        LaminarError: A sink says that going on would be wrong.
    """
    wanted = set(sinks)
    entries = [entry for entry in manifest.sinks if entry.sink_id in wanted]

    def read(file: FileEntry) -> bytes:
        key = layout.checkpoint_key(manifest.checkpoint_id, file.path)
        return read_verified(pipeline.checkpoints.objects, key, file.size_bytes, file.sha256)

    failures: dict[SinkId, LaminarError] = {}
    with ThreadPoolExecutor(len(entries), thread_name_prefix="sink") as pool:
        pending = {
            entry.sink_id: pool.submit(sink.commit, manifest.epoch, StagedOutput(entry, read))
            for entry in entries
            if (sink := pipeline.sink(entry.sink_id))
        }
        for sink_id, commit in pending.items():
            try:
                commit.result()
            except (RetryError, UnknownOutcome, FailedError) as error:
                failures[sink_id] = error
    return failures


def move_latest(pipeline: Pipeline, manifest: CheckpointManifest) -> None:
    """Step 7. Every sink has confirmed."""
    pipeline.checkpoints.advance_latest(manifest)


def acknowledge(pipeline: Pipeline, manifest: CheckpointManifest) -> None:
    """Step 8. Tell the sources. Nothing depends on it, so a failure is only reported."""
    stands = {entry.source_id: entry.positions for entry in manifest.sources}
    for source in pipeline.sources:
        if source.source_id not in stands:
            continue
        try:
            source.acknowledge(stands[source.source_id])
        except AcknowledgeFailed as error:
            log.warning("%s; %s", error, error.advice())


def collect_garbage(pipeline: Pipeline) -> None:
    """Step 9. Remove what nothing reaches. What is left now goes next time."""
    try:
        collect(pipeline.checkpoints, pipeline.retention, pipeline.clock.now())
    except RetryError as error:
        log.warning("garbage is collected later: %s", error)
