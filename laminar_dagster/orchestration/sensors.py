"""Two sensors: one requests the next epoch when there is data, one the commit of prepared epochs.

Neither moves data. What to do they decide by the store, which is the source of truth; Dagster only
shows whether a run does it already. Run keys count attempts, as a key cannot be used twice.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeVar

import dagster as dg
import msgspec

from laminar_dagster.config.redaction import redact
from laminar_dagster.core.errors import LaminarError
from laminar_dagster.core.ids import GENESIS, EpochNumber
from laminar_dagster.core.recovery import Standing
from laminar_dagster.orchestration.epoch_index import EpochIndex
from laminar_dagster.orchestration.names import EPOCH_TAG, PIPELINE_TAG, partition_key
from laminar_dagster.orchestration.resident_runs import reap
from laminar_dagster.orchestration.run_history import (
    Attempts,
    attempts_at,
    may_pass_by_itself,
    under_way,
)
from laminar_dagster.orchestration.stream import Stream
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.survey import newest_manifest, survey

CursorT = TypeVar("CursorT", bound=msgspec.Struct)

_SECONDS: Final = 5


class _Waiting(msgspec.Struct, frozen=True):
    """The cursor of the epoch sensor: since when data has been waiting for an epoch."""

    epoch: int
    since: datetime


class _Recorded(msgspec.Struct, frozen=True):
    """The cursor of the commit sensor: the epoch up to which Dagster knows every one."""

    epoch: int


@dataclass(frozen=True)
class Look:
    """How far the pipeline is, at one moment."""

    checkpoints: CheckpointStore | None
    standing: Standing | None

    @property
    def next_epoch(self) -> EpochNumber:
        """The oldest epoch that is not finished, or else a new one."""
        if self.standing is None:
            return GENESIS.next()
        unfinished = self.standing.unfinished
        return unfinished[0] if unfinished else self.standing.newest_epoch.next()


def build_epoch_sensor(stream: Stream) -> dg.SensorDefinition:
    """Make the sensor that requests an epoch when data fills one, or has waited ``max_delay``."""

    @dg.sensor(
        name=stream.names.job("epoch_sensor"),
        job_name=stream.names.job("epoch"),
        minimum_interval_seconds=_SECONDS,
        default_status=dg.DefaultSensorStatus[stream.model.config.epoch.sensor.upper()],
        description=f"Asks for the next epoch of {stream.names.pipeline} when data waits: more "
        f"than an epoch takes, or for {stream.model.config.epoch.max_delay}.",
    )
    def epoch_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        try:
            return _ask_for_epoch(stream, context)
        except LaminarError as error:
            return _told(error)

    return epoch_sensor


def build_commit_sensor(stream: Stream) -> dg.SensorDefinition:
    """Make the sensor that requests the commit of prepared epochs, in order, with retries."""

    @dg.sensor(
        name=stream.names.job("commit_sensor"),
        job_name=stream.names.job("commit"),
        minimum_interval_seconds=_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Commits the prepared epochs of {stream.names.pipeline}, one after the other, "
        "and keeps Dagster's partitions in step with the store.",
    )
    def commit_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        try:
            return _ask_for_commit(stream, context)
        except LaminarError as error:
            return _told(error)

    return commit_sensor


def look(stream: Stream) -> Look:
    """How far the pipeline is; an empty look while it has no store."""
    checkpoints = stream.checkpoints()
    return Look(checkpoints, survey(checkpoints) if checkpoints else None)


def next_epoch_request(
    stream: Stream, instance: dg.DagsterInstance, seen: Look
) -> dg.RunRequest | str:
    """The run that computes the next epoch, or why there is none to be made now."""
    epoch = seen.next_epoch
    if seen.checkpoints and seen.checkpoints.prepared(epoch):
        return f"epoch {epoch} is prepared and waits for its commit"
    # Runs of other jobs may compute the epoch, too, such as those of a resident loop.
    for run in under_way(instance, stream.names):
        if run.tags.get(EPOCH_TAG) == str(epoch):
            return f"run {run.run_id} is at epoch {epoch}"
    attempts = attempts_at(instance, stream.names.job("epoch"), epoch)
    reason = _reason_to_wait(stream, epoch, attempts)
    if reason:
        return reason
    return _request(stream, "epoch", epoch, attempts)


def _ask_for_epoch(stream: Stream, context: dg.SensorEvaluationContext) -> dg.SensorResult:
    seen = look(stream)
    found = next_epoch_request(stream, context.instance, seen)
    if isinstance(found, str):
        return dg.SensorResult(skip_reason=found, cursor=context.cursor)
    epoch = seen.next_epoch
    if not _is_begun(seen, epoch):
        waiting = _due(stream, seen, _cursor(context.cursor, _Waiting))
        if isinstance(waiting, dg.SensorResult):
            return waiting
    return dg.SensorResult(
        run_requests=[found],
        dynamic_partitions_requests=[stream.partitions.build_add_request([partition_key(epoch)])],
        cursor="",
    )


def _is_begun(seen: Look, epoch: EpochNumber) -> bool:
    """Whether the epoch has a plan: then it is finished, whatever the backlog is."""
    return bool(seen.standing and epoch in seen.standing.unfinished)


def _due(stream: Stream, seen: Look, before: _Waiting | None) -> dg.SensorResult | None:
    """None when an epoch is due; else the result that says what is waited for."""
    parent = (
        newest_manifest(seen.checkpoints, seen.standing)
        if seen.checkpoints and seen.standing
        else None
    )
    plan = seen.checkpoints.plan(parent.epoch) if seen.checkpoints and parent else None
    backlog = stream.backlog_after(parent, plan)
    backlog.require_complete()
    if backlog.is_empty:
        return dg.SensorResult(skip_reason="nothing waits to be read", cursor="")
    epoch = int(seen.next_epoch)
    since = before.since if before and before.epoch == epoch else backlog.looked_at
    longest = stream.model.config.epoch.longest_wait
    left = (since + longest - backlog.looked_at).total_seconds()
    if backlog.exceeds_epoch or left <= 0:
        return None
    return dg.SensorResult(
        skip_reason=f"data waits; an epoch is made of it in {left:.0f} s, or when it fills one",
        cursor=msgspec.json.encode(_Waiting(epoch, since)).decode(),
    )


def _ask_for_commit(stream: Stream, context: dg.SensorEvaluationContext) -> dg.SensorResult:
    # A run whose process is gone would block its epoch for ever.
    reap(context.instance, stream.names)
    seen = look(stream)
    index = EpochIndex(stream, context.instance)
    busy = [*under_way(context.instance, stream.names)]
    add = index.missing_keys([seen.next_epoch])
    request: dg.RunRequest | None = None
    told = "every prepared epoch is committed"
    events: list[dg.AssetMaterialization] = []
    cursor = context.cursor
    if seen.standing and seen.checkpoints:
        first = seen.next_epoch
        if seen.checkpoints.prepared(first):
            found = _commit_request(stream, context.instance, first, busy)
            request, told = (found, "") if isinstance(found, dg.RunRequest) else (None, found)
        before = _cursor(cursor, _Recorded)
        caught_up = index.catch_up(
            EpochNumber(before.epoch) if before else GENESIS, seen.standing, busy
        )
        events, add = [*caught_up.events], [*add, *caught_up.keys]
        cursor = msgspec.json.encode(_Recorded(int(caught_up.recorded))).decode()
    return dg.SensorResult(
        run_requests=[request] if request else [],
        skip_reason=None if request else told,
        dynamic_partitions_requests=[stream.partitions.build_add_request(add)] if add else [],
        asset_events=events,
        cursor=cursor,
    )


def _commit_request(
    stream: Stream,
    instance: dg.DagsterInstance,
    epoch: EpochNumber,
    busy: list[dg.DagsterRun],
) -> dg.RunRequest | str:
    own = [run for run in busy if run.tags.get(EPOCH_TAG) == str(epoch)]
    if own:
        return f"run {own[0].run_id} is at epoch {epoch}"
    attempts = attempts_at(instance, stream.names.job("commit"), epoch)
    return _reason_to_wait(stream, epoch, attempts) or _request(stream, "commit", epoch, attempts)


def _reason_to_wait(stream: Stream, epoch: EpochNumber, attempts: Attempts) -> str:
    """Why not to request a run now; empty when one may be requested."""
    if attempts.under_way:
        return f"run {attempts.under_way.run_id} is at epoch {epoch}"
    if attempts.failure is None:
        return ""
    if not may_pass_by_itself(attempts.failure) and _is_unchanged(stream, attempts):
        return (
            f"epoch {epoch} failed with {attempts.failure}, which does not pass by itself: change "
            "the pipeline, or launch the epoch by hand"
        )
    rest = attempts.rests_until()
    now = datetime.now(UTC)
    if rest and now < rest:
        left = (rest - now).total_seconds()
        return f"epoch {epoch} failed with {attempts.failure}; tried again in {left:.0f} s"
    return ""


def _is_unchanged(stream: Stream, attempts: Attempts) -> bool:
    return attempts.revision in (None, stream.revision)


def _request(stream: Stream, what: str, epoch: EpochNumber, attempts: Attempts) -> dg.RunRequest:
    name = stream.names.pipeline
    return dg.RunRequest(
        run_key=f"{name}:{epoch}:{what}:{attempts.count + 1}",
        job_name=stream.names.job(what),
        partition_key=partition_key(epoch),
        tags={PIPELINE_TAG: str(name), EPOCH_TAG: str(epoch)},
    )


def _cursor(text: str | None, kind: type[CursorT]) -> CursorT | None:
    """The decoded cursor of the last tick; None when another version wrote it."""
    try:
        return msgspec.json.decode(text, type=kind) if text else None
    except msgspec.DecodeError:
        return None


def _told(error: LaminarError) -> dg.SensorResult:
    return dg.SensorResult(skip_reason=f"error[{error.kind}]: {redact(str(error))}")
