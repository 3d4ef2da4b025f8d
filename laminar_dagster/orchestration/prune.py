"""Keeps what Dagster remembers bounded: partitions, runs and events of old epochs go together."""

from typing import Final

import dagster as dg

from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.orchestration.failures import named_failures
from laminar_dagster.orchestration.names import EPOCH_TAG, PIPELINE_TAG, partition_key
from laminar_dagster.orchestration.stream import Stream
from laminar_dagster.runtime.clock import SystemClock
from laminar_dagster.runtime.collector import Retention, collect
from laminar_dagster.runtime.survey import survey

# At night, and not when everybody else's jobs begin.
_CRON: Final = "17 3 * * *"
_RUNS_AT_ONCE: Final = 500


def build_prune_job(stream: Stream) -> dg.JobDefinition:
    """Forget epochs that are older than the window, and collect the store's garbage."""
    keeps = stream.model.config.retention

    @dg.op(name=stream.names.job("prune_epochs"), pool=stream.names.pool)
    def prune_epochs(context: dg.OpExecutionContext) -> None:
        """Remove what is out of the window; the manifests of kept checkpoints stay."""
        with named_failures(context):
            checkpoints = stream.open(None).checkpoints
            done = collect(checkpoints, Retention.of(keeps), SystemClock().now())
            context.log.info(
                "store: removed %d objects, %d bytes; kept %d checkpoints",
                len(done.garbage.keys),
                done.garbage.size_bytes,
                len(done.retained),
            )
            newest = survey(checkpoints).newest_epoch
            oldest = EpochNumber(max(1, newest - keeps.history + 1))
            partitions = _forget_partitions(stream, context.instance, oldest)
            runs = _forget_runs(stream, context.instance, oldest, context.run.run_id)
            context.log.info("dagster: forgot %d partitions and %d runs", partitions, runs)

    @dg.job(
        name=stream.names.job("prune"),
        description=f"Keep {keeps.checkpoints} checkpoints in the store, and {keeps.history:,} "
        "epochs in Dagster.",
        tags={PIPELINE_TAG: str(stream.names.pipeline)},
        executor_def=dg.in_process_executor,
    )
    def prune() -> None:
        prune_epochs()

    return prune


def build_prune_schedule(stream: Stream) -> dg.ScheduleDefinition:
    """Once a day."""
    return dg.ScheduleDefinition(
        name=stream.names.job("prune_schedule"),
        job_name=stream.names.job("prune"),
        cron_schedule=_CRON,
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )


def _forget_partitions(stream: Stream, instance: dg.DagsterInstance, oldest: EpochNumber) -> int:
    name, first = stream.names.partitions, partition_key(oldest)
    gone = [key for key in instance.get_dynamic_partitions(name) if key < first]
    for key in gone:
        instance.delete_dynamic_partition(name, key)
    return len(gone)


def _forget_runs(
    stream: Stream, instance: dg.DagsterInstance, oldest: EpochNumber, own: str
) -> int:
    """The runs of forgotten epochs, with their events."""
    wanted = dg.RunsFilter(
        tags={PIPELINE_TAG: str(stream.names.pipeline)},
        statuses=[
            dg.DagsterRunStatus.SUCCESS,
            dg.DagsterRunStatus.FAILURE,
            dg.DagsterRunStatus.CANCELED,
        ],
    )
    gone, cursor = 0, None
    while runs := instance.get_runs(wanted, cursor=cursor, limit=_RUNS_AT_ONCE):
        for run in runs:
            epoch = run.tags.get(EPOCH_TAG, "")
            if run.run_id != own and epoch.isdigit() and int(epoch) < oldest:
                instance.delete_run(run.run_id)
                gone += 1
        cursor = runs[-1].run_id
    return gone
