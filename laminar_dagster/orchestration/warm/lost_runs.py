"""Ends runs whose worker is gone: without this, Dagster would show them as started for ever."""

from collections.abc import Iterable

import dagster as dg

from laminar_dagster.orchestration.private_api import open_instance, report_engine_event


def report_lost(instance_text: str, run_ids: Iterable[str], message: str) -> None:
    """End runs that no worker executes any more; those that are over stay as they are."""
    with open_instance(instance_text) as instance:
        for run_id in run_ids:
            end_lost_run(instance, run_id, message)


def end_lost_run(instance: dg.DagsterInstance, run_id: str, message: str) -> None:
    """End one run: as cancelled if that was requested, else as failed."""
    run = instance.get_run_by_id(run_id)
    if run is None or run.is_finished:
        return
    if run.status == dg.DagsterRunStatus.CANCELING:
        instance.report_run_canceled(run, message)
        return
    report_engine_event(instance, run, message)
    instance.report_run_failed(run, message)


def is_over(instance_text: str, run_id: str) -> bool:
    """Whether a run has ended, or was deleted."""
    with open_instance(instance_text) as instance:
        run = instance.get_run_by_id(run_id)
        return run is None or run.is_finished
