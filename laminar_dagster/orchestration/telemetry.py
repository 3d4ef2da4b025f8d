"""Metrics of epochs that are runs of Dagster: pushed when the epoch is finished.

A process that ends with its epoch cannot be scraped, so there is no Prometheus here. Each push
holds the epoch's increments (delta temporality), which a collector adds up.
"""

from __future__ import annotations

import logging

from laminar_dagster.config.metrics import MetricsConfig
from laminar_dagster.config.pipeline import config_file
from laminar_dagster.config.redaction import redact
from laminar_dagster.orchestration.stream import Stream
from laminar_dagster.runtime.epoch import EpochReport
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.telemetry import open_telemetry, require_exporters

log = logging.getLogger(__name__)


def require_push(stream: Stream) -> None:
    """Refuse, before an epoch begins, metrics that could not be pushed at its end.

    Raises:
        InvalidConfig: Packages are missing.
    """
    config = stream.model.config
    pushed = MetricsConfig(otlp=config.metrics.otlp)
    require_exporters(pushed, str(config_file(stream.project, config.name)))


def push_epoch(stream: Stream, pipeline: Pipeline, report: EpochReport) -> None:
    """Push the metrics of a finished epoch, if configured. Errors are only logged.

    Nothing is pushed in a resident loop, which measures by itself, nor if an earlier run has
    finished the epoch.
    """
    config = stream.model.config
    if config.metrics.otlp is None or stream.watcher is not None or not report.is_finisher:
        return
    where = str(config_file(stream.project, config.name))
    try:
        manifest = pipeline.checkpoints.winner(report.epoch).manifest
        with open_telemetry(config.metrics, config.name, where, is_one_epoch=True) as telemetry:
            telemetry.count_transactions(pipeline)
            telemetry.finished(report, manifest, pipeline.clock.now())
            telemetry.look(manifest, pipeline)
    except Exception as error:
        log.warning("no metrics of epoch %d: %s", report.epoch, redact(str(error)))
