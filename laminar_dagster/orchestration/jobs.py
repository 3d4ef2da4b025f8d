"""The jobs of a pipeline. Each runs in one process: a process for each step would cost seconds."""

from functools import partial
from typing import Any

import dagster as dg

from laminar_dagster.core.errors import EpochNotCommitted, IntegrityError, NotReproduced
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.recovery import RecoveryConfig
from laminar_dagster.orchestration import metadata
from laminar_dagster.orchestration.asset_specs import MANIFEST
from laminar_dagster.orchestration.failures import named_failures
from laminar_dagster.orchestration.names import PIPELINE_TAG, partition_key
from laminar_dagster.orchestration.recovery_index import DagsterIndex
from laminar_dagster.orchestration.spark_resource import interruptibly
from laminar_dagster.orchestration.stream import Stream
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.recovery import RecoveryManager
from laminar_dagster.runtime.rerun import rerun
from laminar_dagster.runtime.survey import find_epoch, newest_manifest, survey
from laminar_dagster.runtime.verification import verify_checkpoint

# What `define_asset_job` returns has no public name.
JobLike = Any


class ReplayRange(dg.Config):
    """Which epochs to run again.

    Attributes:
        from_epoch: The first.
        to_epoch: The last; 0 for the newest.
    """

    from_epoch: int
    to_epoch: int = 0


class VerifiedEpoch(dg.Config):
    """Which checkpoint to read.

    Attributes:
        epoch: Of the checkpoint; 0 for the newest.
    """

    epoch: int = 0


class Recovery(dg.Config):
    """What to recover, and within which limits.

    Attributes:
        epoch: Of the checkpoint to restore; 0 for the newest.
        max_fallbacks: How many checkpoints back lost files may be computed from; no limit unless
            it is given.
    """

    epoch: int = 0
    max_fallbacks: int | None = None
    timeout_seconds: float = 300.0
    allow_operator_mismatch: bool = False
    dry_run: bool = False


def build_jobs(
    stream: Stream, epoch: dg.AssetsDefinition, commit: dg.AssetsDefinition
) -> list[JobLike]:
    """``epoch``, ``commit``, both in one run, ``replay``, ``verify`` and ``recover``."""
    return [
        _asset_job(stream, "epoch", [epoch], "Compute the next epoch. A sensor commits it."),
        _asset_job(stream, "commit", [commit], "Commit an epoch that is prepared."),
        _asset_job(stream, "epoch_and_commit", [epoch, commit], "Compute an epoch and commit it."),
        _replay_job(stream),
        _verify_job(stream),
        _recover_job(stream),
    ]


def _asset_job(
    stream: Stream, what: str, assets: list[dg.AssetsDefinition], description: str
) -> JobLike:
    return dg.define_asset_job(
        stream.names.job(what),
        selection=dg.AssetSelection.assets(*assets),
        description=description,
        tags={PIPELINE_TAG: str(stream.names.pipeline)},
        executor_def=dg.in_process_executor,
    )


def _replay_job(stream: Stream) -> dg.JobDefinition:
    @dg.op(
        name=stream.names.job("replay_epochs"),
        required_resource_keys={stream.names.spark},
        pool=stream.names.pool,
    )
    def replay_epochs(context: dg.OpExecutionContext, config: ReplayRange) -> None:
        """Run committed epochs again from their plans, in order, and compare every hash."""
        spark = getattr(context.resources, stream.names.spark)
        with named_failures(context):
            pipeline = stream.open(lambda: spark.spark_session)
            last = config.to_epoch or int(survey(pipeline.checkpoints).newest_epoch)
            for number in range(config.from_epoch, last + 1):
                epoch = EpochNumber(number)
                done = interruptibly(partial(rerun, pipeline, epoch))
                context.log_event(
                    dg.AssetObservation(
                        stream.names.asset(MANIFEST),
                        partition=partition_key(epoch),
                        metadata={"epoch": number, **metadata.rerun_metadata(done)},
                    )
                )
                if done.differences:
                    raise NotReproduced(epoch, done.differences[0].name)
                context.log.info("epoch %d: identical, %d hashes compared", epoch, done.compared)

    return op_job(
        stream,
        "replay",
        replay_epochs,
        "Run a range of committed epochs again, in order, from the checkpoint before it. Stops at "
        "the first that comes out otherwise. Publishes nothing.",
    )


def _verify_job(stream: Stream) -> dg.JobDefinition:
    @dg.op(name=stream.names.job("verify_checkpoint"))
    def verify(context: dg.OpExecutionContext, config: VerifiedEpoch) -> None:
        """Read every file of a checkpoint and compare it with the manifest."""
        with named_failures(context):
            checkpoints = stream.open(None).checkpoints
            manifest = _manifest(checkpoints, config.epoch)
            files, size = 0, 0
            problems: list[IntegrityError] = []
            for file in verify_checkpoint(checkpoints, manifest):
                files, size = files + 1, size + file.size_bytes
                if file.problem:
                    problems.append(file.problem)
                    context.log.error("%s: %s", file.key, file.problem)
            context.log_event(
                dg.AssetObservation(
                    stream.names.asset(MANIFEST),
                    partition=partition_key(manifest.epoch),
                    metadata={"files": files, "bytes": size, "files_damaged": len(problems)},
                )
            )
            if problems:
                raise problems[0]

    return op_job(
        stream,
        "verify",
        verify,
        "Read every file of a checkpoint and compare it with the hash in its manifest.",
    )


def _recover_job(stream: Stream) -> dg.JobDefinition:
    @dg.op(
        name=stream.names.job("recover_store"),
        required_resource_keys={stream.names.spark},
        pool=stream.names.pool,
    )
    def recover(context: dg.OpExecutionContext, config: Recovery) -> None:
        """Read what the next epoch needs, and mend what is damaged."""
        spark = getattr(context.resources, stream.names.spark)
        with named_failures(context):
            manager = RecoveryManager(
                stream.open(lambda: spark.spark_session),
                RecoveryConfig(
                    max_fallback_attempts=config.max_fallbacks,
                    recovery_timeout=config.timeout_seconds,
                    allow_operator_mismatch=config.allow_operator_mismatch,
                ),
                DagsterIndex(stream.names, context.instance),
            )
            epoch = EpochNumber(config.epoch) if config.epoch else None
            done = interruptibly(
                partial(
                    manager.recover,
                    epoch,
                    dry_run=config.dry_run,
                    progress=lambda now: context.log.info(
                        "%s: %.0f%%, %d of %d bytes",
                        now.phase,
                        100 * now.progress,
                        now.bytes_downloaded,
                        now.total_bytes,
                    ),
                )
            )
            for repair in done.repairs:
                verb = "would be" if done.is_dry_run else "was"
                context.log.warning(
                    "%s %s %s, %s: %s",
                    repair.damage.key,
                    verb,
                    repair.kind,
                    repair.origin,
                    repair.damage.problem,
                )
            for damage in done.not_repaired:
                context.log.warning("%s is damaged and not needed: %s", damage.key, damage.problem)
            if done.epoch:
                context.log_event(
                    dg.AssetObservation(
                        stream.names.asset(MANIFEST),
                        partition=partition_key(done.epoch),
                        metadata=metadata.recovery_metadata(done),
                    )
                )

    return op_job(
        stream,
        "recover",
        recover,
        "Read all that the next epoch needs, and mend what is damaged: documents are put back, "
        "lost files made again by running the epochs that wrote them. Refuses what cannot be "
        "mended, and changes nothing then.",
    )


def _manifest(checkpoints: CheckpointStore, epoch: int) -> CheckpointManifest:
    if not epoch:
        newest = newest_manifest(checkpoints, survey(checkpoints))
        if newest is None:
            raise EpochNotCommitted(1)
        return newest
    found = find_epoch(checkpoints, EpochNumber(epoch)).manifest
    if found is None:
        raise EpochNotCommitted(epoch)
    return found


def op_job(stream: Stream, what: str, step: dg.OpDefinition, description: str) -> dg.JobDefinition:
    """A job of one step."""

    @dg.job(
        name=stream.names.job(what),
        description=description,
        tags={PIPELINE_TAG: str(stream.names.pipeline)},
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        step()

    return job
