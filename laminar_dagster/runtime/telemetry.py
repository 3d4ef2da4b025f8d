"""Measures a running pipeline, for Prometheus and OpenTelemetry. Off unless configured.

An epoch is counted once, by the process that finishes it: the one that sees every sink confirmed
and moves ``_latest``. Counters are per process, and start at zero. Nothing here fails an epoch: an
error of measuring or sending is logged, once.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import wraps
from typing import Concatenate, Final, ParamSpec, Protocol, assert_never

from laminar_dagster.config.metrics import MetricsConfig
from laminar_dagster.config.redaction import redact
from laminar_dagster.core.errors import InvalidConfig, LaminarError
from laminar_dagster.core.ids import PipelineName, SinkId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.offsets import describe_position
from laminar_dagster.core.reference import ReferencePin
from laminar_dagster.core.transactions import TransactionalSinkMetrics
from laminar_dagster.runtime import metrics
from laminar_dagster.runtime.backlog import Backlog, SourceBacklog, distance, measure
from laminar_dagster.runtime.epoch import EpochReport
from laminar_dagster.runtime.figures import figures_of, newest_watermarks
from laminar_dagster.runtime.health import ask_health
from laminar_dagster.runtime.loop import EpochDone, Event, Retrying, Waiting
from laminar_dagster.runtime.metrics import Attributes, Metric, Points
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.survey import survey

log = logging.getLogger(__name__)

EXTRA: Final = "laminar-dagster[metrics]"

# Sources with more partitions are measured as a whole: every partition is a series of its own.
MOST_PARTITIONS: Final = 100

_NEEDED: Final = (
    "opentelemetry.sdk.metrics",
    "opentelemetry.exporter.prometheus",
    "opentelemetry.exporter.otlp.proto.http",
)
_MICROS: Final = 1_000_000

_ParamsT = ParamSpec("_ParamsT")


class Meters(Protocol):
    """Takes measurements, and exports them."""

    def add(self, metric: Metric, amount: float, attributes: Attributes) -> None:
        """Add to a counter."""

    def record(self, metric: Metric, value: float, attributes: Attributes) -> None:
        """Record one value of a histogram."""

    def put(self, metric: Metric, points: Points) -> None:
        """Replace everything that a gauge shows."""


def require_exporters(config: MetricsConfig, where: str) -> None:
    """Refuse metrics that are configured, but cannot be exported.

    Raises:
        InvalidConfig: Packages are missing.
    """
    if config.prometheus is None and config.otlp is None:
        return
    if not all(map(_is_installed, _NEEDED)):
        problem = "metrics need packages that are not installed"
        raise InvalidConfig(where, problem, f'pip install "{EXTRA}"')


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@contextlib.contextmanager
def open_telemetry(
    config: MetricsConfig, pipeline: PipelineName, where: str, *, is_one_epoch: bool = False
) -> Iterator[Telemetry]:
    """Measure, as configured, until the context ends; then the last metrics are pushed.

    Args:
        config: Where measurements go.
        pipeline: The pipeline that is measured.
        where: Where metrics are configured, for errors.
        is_one_epoch: For a process that ends after the epoch. Nothing could scrape it, and what
            it pushes is added to the counters of other such processes.

    Raises:
        InvalidConfig: Packages are missing, or the address cannot be listened at.
    """
    listen = None if is_one_epoch else config.listen
    if listen is None and config.endpoint is None:
        yield Telemetry(pipeline)
        return
    require_exporters(config, where)
    # Imported here: the packages of OpenTelemetry are an extra.
    from laminar_dagster.runtime.telemetry_export import open_meters

    # Processes of one epoch each are one instance, whose pushes add up.
    instance = f"{pipeline}-epochs" if is_one_epoch else str(uuid.uuid4())
    with open_meters(
        listen, config.endpoint, where, instance=instance, is_one_epoch=is_one_epoch
    ) as meters:
        yield Telemetry(pipeline, meters, meters.address)


def _harmless(
    measure: Callable[Concatenate[Telemetry, _ParamsT], None],
) -> Callable[Concatenate[Telemetry, _ParamsT], None]:
    """Have a method do nothing without meters, and log its errors: measuring fails no epoch."""

    @wraps(measure)
    def measured(self: Telemetry, /, *args: _ParamsT.args, **kwargs: _ParamsT.kwargs) -> None:
        if not self.is_on:
            return
        try:
            measure(self, *args, **kwargs)
        except Exception as error:
            self.complain(error)

    return measured


class Telemetry:
    """Makes measurements of what happens to a pipeline; does nothing without meters."""

    def __init__(
        self, pipeline: PipelineName, meters: Meters | None = None, address: str | None = None
    ) -> None:
        """Measure a pipeline; ``address`` is where the metrics are served, if they are."""
        self.address = address
        self._all = {"pipeline": str(pipeline)}
        self._meters = meters
        self._has_complained = False
        self._counted: dict[SinkId, TransactionalSinkMetrics] = {}

    @property
    def is_on(self) -> bool:
        """Whether anything is measured."""
        return self._meters is not None

    @_harmless
    def begin(self, pipeline: Pipeline) -> None:
        """Set the gauges to the newest checkpoint, before this process runs an epoch."""
        latest = survey(pipeline.checkpoints).latest
        manifest = pipeline.checkpoints.manifest(latest.checkpoint_id) if latest else None
        if manifest is not None:
            self._stands(manifest)

    @_harmless
    def follow(self, event: Event, pipeline: Pipeline) -> None:
        """Measure an event of a loop."""
        self.count_transactions(pipeline)
        match event:
            case EpochDone(report, manifest):
                self.finished(report, manifest, pipeline.clock.now())
                self.look(manifest, pipeline)
            case Retrying(error):
                self.failed(error)
            case Waiting():
                pass
            case _:
                assert_never(event)

    @_harmless
    def finished(
        self, report: EpochReport, manifest: CheckpointManifest, finished_at: datetime
    ) -> None:
        """Count an epoch, if it was this process that finished it."""
        for step in report.steps:
            self._record(metrics.STEP_DURATION, step.seconds, step=step.name)
        for done in report.transactions:
            sink = str(done.sink_id)
            if done.begin_seconds is not None:
                self._record(metrics.SINK_BEGIN, done.begin_seconds, sink=sink)
            if done.commit_seconds is not None:
                self._record(metrics.SINK_COMMIT, done.commit_seconds, sink=sink)
        # Also when another process finished it: gauges show how far the pipeline is.
        self._stands(manifest)
        if not report.is_finisher:
            return
        seconds = (finished_at - manifest.started_at).total_seconds()
        self._record(metrics.EPOCH_DURATION, max(0.0, seconds))
        for each in figures_of(manifest):
            source = str(each.source_id)
            is_told = each.source_id not in report.unacknowledged
            self._add(metrics.COMMITS, int(is_told), source=source)
            self._add(metrics.COMMIT_FAILURES, int(not is_told), source=source)
            self._add(metrics.DEAD_LETTERS, each.dead_letters, source=source)
            self._add(metrics.LATE, each.late, source=source)
            if each.reading is not None:
                reading = each.reading
                self._add(metrics.RECORDS, reading.records, source=source)
                self._add(metrics.BYTES, reading.size_bytes, source=source)
                self._add(metrics.CHUNKS, reading.chunks, source=source)
                self._add(metrics.FETCH, reading.fetch_micros / _MICROS, source=source)
                self._add(metrics.DECODE, reading.decode_micros / _MICROS, source=source)
                self._add(metrics.PAUSES, reading.pauses, source=source)
                self._add(metrics.ERRORS, reading.errors, source=source)
                self._add(metrics.AHEAD, reading.ahead, source=source)

    @_harmless
    def count_transactions(self, pipeline: Pipeline) -> None:
        """Count the sinks' transactions since the last call."""
        for each in pipeline.sinks:
            before = self._counted.get(each.sink_id, TransactionalSinkMetrics())
            now = self._counted[each.sink_id] = pipeline.transactions.metrics(each.sink_id)
            sink = str(each.sink_id)
            self._add(metrics.SINK_COMMITS, now.commits - before.commits, sink=sink)
            self._add(metrics.SINK_ABORTS, now.aborts - before.aborts, sink=sink)
            unknown = now.commit_failures - before.commit_failures
            self._add(metrics.SINK_COMMIT_FAILURES, unknown, sink=sink)
            self._add(metrics.SINK_ROWS, now.rows_written - before.rows_written, sink=sink)

    @_harmless
    def look(self, manifest: CheckpointManifest, pipeline: Pipeline) -> None:
        """Measure the backlog beyond a checkpoint, and the health of the sources."""
        plan = pipeline.checkpoints.plan(manifest.epoch)
        backlog = measure(pipeline.sources, manifest, plan, pipeline.clock.now())
        self.waiting(backlog)
        told = ask_health(pipeline.sources, manifest, backlog)
        known = [
            (each.headroom, {"source": str(name)})
            for name, each in told.items()
            if each.headroom is not None
        ]
        self._put_all(metrics.HEADROOM, known)

    @_harmless
    def waiting(self, backlog: Backlog) -> None:
        """Show a backlog, and which sources could be asked."""
        up = [(int(not each.error), {"source": str(each.source_id)}) for each in backlog.sources]
        self._put_all(metrics.UP, up)
        self._put_all(metrics.LAG, [each for source in backlog.sources for each in _lags(source)])

    @_harmless
    def failed(self, error: Exception) -> None:
        """Count a try that ended with an error."""
        kind = error.kind if isinstance(error, LaminarError) else "internal"
        self._add(metrics.FAILURES, 1, kind=kind)

    def complain(self, error: Exception) -> None:
        """Log an error of measuring, but only the first."""
        if not self._has_complained:
            self._has_complained = True
            text = "what is measured is incomplete: %s: %s"
            log.warning(text, type(error).__name__, redact(str(error)))

    def _stands(self, manifest: CheckpointManifest) -> None:
        """Set the gauges to a checkpoint that every sink has committed."""
        epoch = int(manifest.epoch)
        self._put(metrics.EPOCH_NUMBER, epoch)
        self._put(metrics.LAST_SUCCESS, manifest.completed_at.timestamp())
        if manifest.watermark is not None:
            self._put(metrics.WATERMARK, manifest.watermark / _MICROS)
        newest = newest_watermarks(manifest).items()
        points = [(mark / _MICROS, {"source": str(source)}) for source, mark in newest]
        self._put_all(metrics.NEWEST_WATERMARK, points)
        readings = [(entry.source_id, entry.reading) for entry in manifest.sources if entry.reading]
        slowest = [(str(source), reading.chunk_millis(0.99)) for source, reading in readings]
        self._put_all(
            metrics.CHUNK_P99,
            [(millis / 1000, {"source": source}) for source, millis in slowest if millis],
        )
        sinks = [(epoch, {"sink": str(each.sink_id)}) for each in manifest.sinks]
        self._put_all(metrics.SINK_EPOCH, sinks)
        self._pinned(manifest.references)

    def _pinned(self, pins: tuple[ReferencePin, ...]) -> None:
        """Show the copies of reference tables that are in use."""
        named = [(pin, {"reference": str(pin.reference_id)}) for pin in pins]
        checked = [(pin.checked_at.timestamp(), name) for pin, name in named]
        self._put_all(metrics.REFERENCE_CHECKED, checked)
        away = [(int(pin.is_kept), name) for pin, name in named]
        self._put_all(metrics.REFERENCE_UNAVAILABLE, away)
        self._put_all(metrics.REFERENCE_ROWS, [(pin.rows, name) for pin, name in named])
        self._put_all(metrics.REFERENCE_BYTES, [(pin.size_bytes, name) for pin, name in named])

    def _add(self, metric: Metric, amount: float, **attributes: str) -> None:
        self._must().add(metric, amount, {**self._all, **attributes})

    def _record(self, metric: Metric, value: float, **attributes: str) -> None:
        self._must().record(metric, value, {**self._all, **attributes})

    def _put(self, metric: Metric, value: float) -> None:
        self._put_all(metric, [(value, {})])

    def _put_all(self, metric: Metric, points: Points) -> None:
        named = [(value, {**self._all, **attributes}) for value, attributes in points]
        self._must().put(metric, named)

    def _must(self) -> Meters:
        assert self._meters is not None
        return self._meters


def _lags(source: SourceBacklog) -> Points:
    if source.amount is None or (source.ranges and source.unit is None):
        return []
    attributes = {"source": str(source.source_id), "unit": source.unit or "records"}
    # By partition for Kafka only: every file is a partition, and files come and go.
    if source.unit != "records" or len(source.ranges) > MOST_PARTITIONS:
        return [(source.amount, attributes)]
    return [
        (distance(part), {**attributes, "partition": describe_position(part.start)[0]})
        for part in source.ranges
    ]
