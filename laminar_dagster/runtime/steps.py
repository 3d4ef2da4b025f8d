"""The steps of the protocol, in the order of ``core.protocol``, one function each.

Every step may be taken twice, by two processes at a time, or again after a crash halfway.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from laminar_dagster.core import layout
from laminar_dagster.core.alignment import aligned
from laminar_dagster.core.document import FORMAT_VERSION, checksum
from laminar_dagster.core.errors import (
    AcknowledgeFailed,
    FailedError,
    GateFailed,
    IntegrityError,
    LaminarError,
    LedgerMismatch,
    ObjectExists,
    ObjectMissing,
    RetryError,
    UnknownOutcome,
)
from laminar_dagster.core.gate import refusal
from laminar_dagster.core.ids import EpochNumber, SinkId, SourceId
from laminar_dagster.core.manifest import (
    CheckpointManifest,
    FileEntry,
    SinkEntry,
)
from laminar_dagster.core.manifest_builder import ManifestBuilder
from laminar_dagster.core.offsets import SourceOffsets
from laminar_dagster.core.plan import EpochPlan, SinkPlan, SourcePlan
from laminar_dagster.core.points import Point, reach
from laminar_dagster.core.ports import (
    EpochOutput,
    Grouped,
    GroupOffsets,
    PinsItsEnd,
    Sink,
    Snapshotting,
    StagedOutput,
)
from laminar_dagster.core.prepared import AttemptRecord, LatestPointer, Prepared
from laminar_dagster.core.succession import inherited, require_current
from laminar_dagster.runtime.carrying_out import carry_out, check_sources
from laminar_dagster.runtime.checked_files import read_verified
from laminar_dagster.runtime.collector import collect
from laminar_dagster.runtime.deployment import require_compatible, require_fit
from laminar_dagster.runtime.key_count import find_repeated_keys
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.references import pin_references, require_pinned
from laminar_dagster.runtime.sink_fit import find_misfits
from laminar_dagster.runtime.survey import newest_manifest, survey

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that this process has computed, and that has not won the epoch yet."""

    record: AttemptRecord
    plan: EpochPlan
    output: EpochOutput


def plan(pipeline: Pipeline, epoch: EpochNumber) -> None:
    """Step 1. Fix what the epoch reads.

    Raises:
        ObjectMissing, MalformedDocument: The plan of the epoch before is lost, and with it the
            identities of the sources: a replaced source would not be noticed.
    """
    standing = survey(pipeline.checkpoints)
    if standing.newest_epoch >= epoch:
        log.info("epoch %d was committed by another process meanwhile", epoch)
        return
    parent = newest_manifest(pipeline.checkpoints, standing)
    prepare_sources(pipeline, parent)
    planned = make_plan(pipeline, epoch, parent)
    if pipeline.definition:
        pipeline.checkpoints.create_definition(pipeline.definition)
    try:
        pipeline.checkpoints.create_plan(planned)
    except ObjectExists:
        log.info("epoch %d was planned by another process; its plan is used", epoch)


def prepare_sources(pipeline: Pipeline, parent: CheckpointManifest | None) -> None:
    """Have the sources take the snapshots that the next epoch begins with, where they need one."""
    waiting = [source for source in pipeline.sources if isinstance(source, Snapshotting)]
    previous = pipeline.checkpoints.plan_of(parent) if parent and waiting else None
    planned = {each.source_id: each for each in previous.sources} if previous else {}
    stood = {each.source_id: each.positions for each in parent.sources} if parent else {}
    for source in waiting:
        # Every ``Snapshotting`` source is a ``Source``, too, which has the id.
        name = source.source_id
        source.prepare(planned.get(name), stood.get(name, ()))


def make_plan(
    pipeline: Pipeline, epoch: EpochNumber, parent: CheckpointManifest | None
) -> EpochPlan:
    """The plan of an epoch, made now. Nothing is written but copies of reference tables."""
    require_current(pipeline.fingerprint, epoch, parent)
    require_compatible(pipeline, parent)
    previous = pipeline.checkpoints.plan_of(parent) if parent else None
    now = pipeline.clock.now()
    # The logical clock never runs backwards, whatever the machine's does.
    clock = max(now, previous.clock) if previous else now
    before = {source.source_id: source for source in previous.sources} if previous else {}
    joined = {sink.sink_id: sink.joined_at for sink in parent.sinks} if parent else {}
    planned = EpochPlan(
        version=FORMAT_VERSION,
        plan_id=pipeline.mint(),
        pipeline=pipeline.name,
        epoch=epoch,
        clock=clock,
        fingerprint=pipeline.fingerprint,
        parent=LatestPointer.to(parent).as_parent() if parent else None,
        sources=_plan_sources(pipeline, parent, before, clock),
        sinks=tuple(
            SinkPlan(sink_id=sink.sink_id, joined_at=joined.get(sink.sink_id) or join(sink, epoch))
            for sink in pipeline.sinks
        ),
        # Last, so that no reference table is copied for a plan that fails above.
        references=pin_references(pipeline, epoch, parent, clock),
    )
    return planned.bounded(pipeline.max_ahead)


def _plan_sources(
    pipeline: Pipeline,
    parent: CheckpointManifest | None,
    before: Mapping[SourceId, SourcePlan],
    clock: datetime,
) -> tuple[SourcePlan, ...]:
    """What is read of each source, held back where it is too far ahead of the others."""
    stood = {source.source_id: source.positions for source in parent.sources} if parent else {}
    wanted = [
        source.plan(
            before.get(source.source_id), stood.get(source.source_id, ()), pipeline.limits, clock
        )
        for source in pipeline.sources
    ]
    kept = aligned(wanted, parent, pipeline.max_drift)
    return tuple(
        source.pin_held(plan, before.get(plan.source_id))
        if plan != whole and isinstance(source, PinsItsEnd)
        else plan
        for source, whole, plan in zip(pipeline.sources, wanted, kept, strict=True)
    )


def join(sink: Sink, epoch: EpochNumber) -> EpochNumber:
    """The epoch from which a new sink takes part: this one, if its ledger allows.

    Raises:
        LedgerMismatch: The sink took part before, and would miss the epochs in between.
    """
    try:
        ledger = sink.ledger()
    except RetryError:
        # An unavailable sink must not stop the plan. If it has missed epochs, its commit fails.
        return epoch
    if ledger is not None and ledger != epoch.previous():
        raise LedgerMismatch(sink.sink_id, epoch, ledger)
    return epoch


def compute(pipeline: Pipeline, epoch: EpochNumber) -> Attempt:
    """Step 2. Run the job under a new checkpoint id, so that two attempts never share a file."""
    planned = pipeline.checkpoints.plan(epoch)
    if not planned:
        raise ObjectMissing(layout.plan_key(epoch))
    parent = pipeline.checkpoints.parent(planned.parent) if planned.parent else None
    require_fit(pipeline, planned)
    if planned.fingerprint != pipeline.fingerprint:
        # The version that planned the epoch was checked when it did.
        require_current(pipeline.fingerprint, epoch, parent)
    require_compatible(pipeline, parent, planned.upkeep)
    check_sources(pipeline, planned)
    require_pinned(pipeline, planned)
    record = begin_attempt(pipeline, epoch)
    reach(Point.ATTEMPT_BEGUN, record.checkpoint_id)
    if pipeline.definition:
        # Another version may have planned the epoch; this one computes it.
        pipeline.checkpoints.create_definition(pipeline.definition)
    output = carry_out(pipeline, planned, parent, record)
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
    """Mint a new checkpoint id, and write the attempt's record into its folder."""
    record = AttemptRecord(
        version=FORMAT_VERSION,
        epoch=epoch,
        checkpoint_id=pipeline.mint(),
        started_at=pipeline.clock.now(),
    )
    pipeline.checkpoints.begin_attempt(record)
    return record


def gate(pipeline: Pipeline, attempt: Attempt) -> Literal[True] | GateFailed:
    """Step 3. Check what was staged."""
    above = attempt.plan.parent
    parent = pipeline.checkpoints.parent(above) if above else None
    checkpoint, output = attempt.record.checkpoint_id, attempt.output
    misfits = (*find_misfits(pipeline, checkpoint, output.sinks),)
    if not misfits and not attempt.plan.upkeep:
        # Not for upkeep: the corrections of a promotion replace rows on purpose.
        epoch = attempt.plan.epoch
        misfits = (*find_repeated_keys(pipeline, epoch, checkpoint, parent, output),)
    return refusal(attempt.plan, parent, output, misfits) or True


def prepare(pipeline: Pipeline, attempt: Attempt) -> None:
    """Step 4. Try to make the attempt the winner; the next facts show which attempt won.

    Raises:
        ObjectExists: The epoch was planned anew meanwhile, because its plan was damaged.
        ObjectMissing: The plan is gone.
    """
    _require_planned(pipeline, attempt.plan)
    try:
        pipeline.checkpoints.create_prepared(make_prepared(pipeline, attempt))
    except ObjectExists:
        log.info("epoch %d was prepared by another attempt", attempt.plan.epoch)


def make_prepared(pipeline: Pipeline, attempt: Attempt) -> Prepared:
    """The record that would make an attempt the winner. Nothing is written."""
    output, above = attempt.output, attempt.plan.parent
    parent = pipeline.checkpoints.parent(above) if above else None
    builder = ManifestBuilder(
        CheckpointManifest(
            version=FORMAT_VERSION,
            checkpoint_id=attempt.record.checkpoint_id,
            epoch=attempt.plan.epoch,
            pipeline=pipeline.name,
            fingerprint=pipeline.fingerprint,
            plan_checksum=checksum(attempt.plan),
            previous_checkpoint_id=above.checkpoint_id if above else None,
            started_at=attempt.record.started_at,
            completed_at=pipeline.clock.now(),
            total_size_bytes=0,
            operators=output.operators,
            sources=output.sources,
            sinks=output.sinks,
            dead_letters=output.dead_letters,
            counts=output.counts,
            watermark=output.watermark,
            metadata={**inherited(parent), **output.metadata},
            references=attempt.plan.references,
        )
    )
    return Prepared.of(builder.build(), attempt.plan)


def _require_planned(pipeline: Pipeline, plan: EpochPlan) -> None:
    """Refuse an attempt whose plan was damaged and replaced since: it must not win."""
    stored = pipeline.checkpoints.stored_plan(plan.epoch)
    if stored is None:
        raise ObjectMissing(layout.plan_key(plan.epoch))
    if stored != plan:
        raise ObjectExists(layout.plan_key(plan.epoch))


def write_manifest(pipeline: Pipeline, epoch: EpochNumber) -> None:
    """Step 5. Write the manifest, the commit point of state and offsets.

    A damaged prepared record may have been replaced by another attempt's, so it is read again: the
    stored one has won, not the one in this process's cache.

    Raises:
        ObjectMissing, ChecksumMismatch, MalformedDocument: The record of the winner is lost.
    """
    pipeline.checkpoints.write_manifest(pipeline.checkpoints.stored_winner(epoch))


def commit_sinks(
    pipeline: Pipeline, manifest: CheckpointManifest, sinks: Iterable[SinkId]
) -> dict[SinkId, LaminarError]:
    """Step 6. Commit the staged output to the sinks, all in parallel.

    Returns:
        The sinks that could not commit now, and why. They do not stop the others.

    Raises:
        LaminarError: A sink says that going on would be wrong.
    """
    wanted = set(sinks)
    entries = [entry for entry in manifest.sinks if entry.sink_id in wanted]

    def read(file: FileEntry) -> bytes:
        key = layout.checkpoint_key(manifest.checkpoint_id, file.path)
        return read_verified(pipeline.checkpoints.objects, key, file.size_bytes, file.sha256)

    offsets = _group_offsets(pipeline, manifest)

    def commit(sink: Sink, entry: SinkEntry) -> None:
        reach(Point.SINK_BEGINS, entry.sink_id)
        with pipeline.transactions.follow(entry.sink_id, manifest.epoch) as progress:
            sink.commit(manifest.epoch, StagedOutput(entry, read, progress, offsets))
        reach(Point.SINK_COMMITTED, entry.sink_id)

    failures: dict[SinkId, LaminarError] = {}
    with ThreadPoolExecutor(len(entries), thread_name_prefix="sink") as pool:
        pending = {
            entry.sink_id: pool.submit(commit, sink, entry)
            for entry in entries
            if (sink := pipeline.sink(entry.sink_id))
        }
        for sink_id, committed in pending.items():
            try:
                committed.result()
            except (RetryError, UnknownOutcome, FailedError) as error:
                failures[sink_id] = error
    return failures


def _group_offsets(pipeline: Pipeline, manifest: CheckpointManifest) -> tuple[GroupOffsets, ...]:
    """The end offsets of the epoch, for sources that keep them under a consumer group."""
    grouped = {each.source_id: each for each in pipeline.sources if isinstance(each, Grouped)}
    planned = pipeline.checkpoints.plan(manifest.epoch) if grouped else None
    if planned is None:
        return ()
    pinned = {each.source_id: each.identity for each in planned.sources}
    found = (
        grouped[entry.source_id].group_offsets(pinned[entry.source_id], entry.positions)
        for entry in manifest.sources
        if entry.source_id in grouped and entry.source_id in pinned
    )
    return tuple(each for each in found if each is not None)


def move_latest(pipeline: Pipeline, manifest: CheckpointManifest) -> None:
    """Step 7. Point ``_latest`` at the checkpoint, after every sink has confirmed it."""
    pipeline.checkpoints.advance_latest(manifest)


def acknowledge(pipeline: Pipeline, manifest: CheckpointManifest) -> tuple[SourceId, ...]:
    """Step 8. Acknowledge the offsets to the sources. Not needed, so a failure is only reported.

    Returns:
        The sources that could not be acknowledged.
    """
    stands = {entry.source_id: entry.positions for entry in manifest.sources}
    untold: list[SourceId] = []
    for source in pipeline.sources:
        if source.source_id not in stands:
            continue
        try:
            source.acknowledge(stands[source.source_id])
        except AcknowledgeFailed as error:
            log.warning("%s; %s", error, error.advice())
            untold.append(source.source_id)
    return tuple(untold)


def collect_garbage(pipeline: Pipeline) -> None:
    """Step 9. Collect garbage. What a failure leaves is collected next time.

    If an old manifest is damaged, what it reaches is not known: nothing is removed until it is no
    longer among those to retain. The epoch is finished either way.
    """
    try:
        collect(pipeline.checkpoints, pipeline.retention, pipeline.clock.now())
    except RetryError as error:
        log.warning("garbage is collected later: %s", error)
    except IntegrityError as error:
        log.warning("no garbage is collected: %s; %s", error, error.advice())
