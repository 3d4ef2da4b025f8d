"""Epochs on a cron schedule, in place of the sensor that waits for data."""

import dagster as dg

from laminar_dagster.config.redaction import redact
from laminar_dagster.core.errors import LaminarError
from laminar_dagster.orchestration.sensors import look, next_epoch_request
from laminar_dagster.orchestration.stream import Stream


def build_epoch_schedule(stream: Stream, cron: str) -> dg.ScheduleDefinition:
    """Make a schedule that requests the next epoch at the times of a cron expression."""

    @dg.schedule(
        name=stream.names.job("epoch_schedule"),
        cron_schedule=cron,
        job_name=stream.names.job("epoch"),
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Asks for the next epoch of {stream.names.pipeline}, data or not: {cron}",
    )
    def epoch_schedule(
        context: dg.ScheduleEvaluationContext,
    ) -> dg.RunRequest | dg.SkipReason:
        try:
            found = next_epoch_request(stream, context.instance, look(stream))
        except LaminarError as error:
            return dg.SkipReason(f"error[{error.kind}]: {redact(str(error))}")
        if isinstance(found, str):
            return dg.SkipReason(found)
        if found.partition_key:
            context.instance.add_dynamic_partitions(stream.names.partitions, [found.partition_key])
        return found

    return epoch_schedule
