"""Prunes Dagster's history: deletes the partitions, runs and events of old epochs."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import dagster as dg

from laminar_dagster.orchestration.failures import named_failures
from laminar_dagster.orchestration.history_window import HistoryWindow
from laminar_dagster.orchestration.jobs import op_job
from laminar_dagster.orchestration.private_api import (
    forget_partitions,
    forget_runless_events,
    forget_runs,
)
from laminar_dagster.orchestration.stream import Stream
from laminar_dagster.runtime.clock import SystemClock
from laminar_dagster.runtime.collector import Retention, collect
from laminar_dagster.runtime.survey import survey

# At night, and not on the full hour, when other jobs begin.
_CRON: Final = "17 3 * * *"
# Runs, events or partitions deleted in one transaction, which blocks other writers.
_AT_ONCE: Final = 100
_SECONDS_BETWEEN_REPORTS: Final = 10.0


@dataclass(slots=True)
class Forgotten:
    """How much was deleted up to now.

    Attributes:
        events: Events that were reported without a run; the others were deleted with their runs.
    """

    runs: int = 0
    events: int = 0
    partitions: int = 0

    def __str__(self) -> str:
        """The text for a log."""
        return (
            f"{self.partitions:,} partitions, {self.runs:,} runs with their events, and "
            f"{self.events:,} events that no run has told"
        )


def build_prune_job(stream: Stream) -> dg.JobDefinition:
    """Make the job that prunes Dagster's history and collects the store's garbage."""
    keeps = stream.model.config.retention

    @dg.op(name=stream.names.job("prune_epochs"), pool=stream.names.pool)
    def prune_epochs(context: dg.OpExecutionContext) -> None:
        """Remove what is out of the window; the manifests of kept checkpoints stay."""
        with named_failures(context):
            checkpoints = stream.open(None).checkpoints
            newest = survey(checkpoints).newest_epoch
            now_and_then = _NowAndThen()

            def swept(done: int, total: int) -> None:
                if now_and_then.is_due():
                    context.log.info("store: removed %d of %d objects", done, total)

            found = collect(checkpoints, Retention.of(keeps), SystemClock().now(), progress=swept)
            context.log.info(
                "store: removed %d objects, %d bytes; kept %d checkpoints",
                len(found.garbage.keys),
                found.garbage.size_bytes,
                len(found.retained),
            )
            window = HistoryWindow.of(stream, newest)
            forgotten = Forgotten()
            for forgotten in forget(context.instance, window):
                if now_and_then.is_due():
                    context.log.info("dagster: so far forgot %s", forgotten)
            context.log.info(
                "dagster: forgot %s; it remembers epochs %d to %d",
                forgotten,
                window.oldest,
                newest,
            )

    return op_job(
        stream,
        "prune",
        prune_epochs,
        f"Keep {keeps.checkpoints} checkpoints in the store, and {keeps.history:,} epochs in "
        "Dagster.",
    )


def build_prune_schedule(stream: Stream) -> dg.ScheduleDefinition:
    """Make the schedule that runs the prune job once a day."""
    return dg.ScheduleDefinition(
        name=stream.names.job("prune_schedule"),
        job_name=stream.names.job("prune"),
        cron_schedule=_CRON,
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )


def forget(
    instance: dg.DagsterInstance, window: HistoryWindow, at_once: int = _AT_ONCE
) -> Iterator[Forgotten]:
    """Delete history that is older than a window, batch by batch; yields the progress.

    Runs go first and partitions last, so that the next prune finds whatever a killed one leaves.
    Runs under way, and the history of other pipelines or people in the same instance, stay.
    """
    done = Forgotten()
    for runs in window.old_runs(instance, at_once):
        forget_runs(instance, runs)
        done.runs += len(runs)
        yield done
    for asset in sorted(window.assets):
        for events in forget_runless_events(instance, asset, window.is_old, at_once):
            done.events += events
            yield done
    keys = window.old_partitions(instance)
    for start in range(0, len(keys), at_once):
        batch = keys[start : start + at_once]
        forget_partitions(instance, window.definition, batch)
        done.partitions += len(batch)
        yield done


class _NowAndThen:
    """Limits progress lines to one in ten seconds: each is an event in the database, too."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def is_due(self) -> bool:
        now = time.monotonic()
        if now - self._last < _SECONDS_BETWEEN_REPORTS:
            return False
        self._last = now
        return True
