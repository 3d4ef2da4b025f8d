"""Metrics exported with OpenTelemetry: served to Prometheus, pushed to a collector, or both.

The only module that imports OpenTelemetry, and only loaded where metrics are configured.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.metrics import Counter as CounterInstrument
from opentelemetry.metrics import Histogram as HistogramInstrument
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    MetricExportResult,
    MetricReader,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, start_http_server

from laminar_dagster.config.metrics import ListenAddress
from laminar_dagster.config.redaction import redact
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.runtime.metrics import METRICS, Attributes, Metric, Points

log = logging.getLogger(__name__)

# The timeout of a push: the longest wait for an unavailable collector.
_PUSH_SECONDS: Final = 3.0
# Buckets of histograms: 10 ms for a fast step, an hour for an epoch that reads a large backlog.
_SECONDS: Final = (
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0),
)
_EXPORTER_LOG: Final = "opentelemetry.exporter.otlp.proto.http.metric_exporter"
_DELTA: Final[dict[type, AggregationTemporality]] = {
    Counter: AggregationTemporality.DELTA,
    Histogram: AggregationTemporality.DELTA,
}


@contextlib.contextmanager
def open_meters(
    listen: ListenAddress | None,
    endpoint: str | None,
    where: str,
    *,
    instance: str,
    is_one_epoch: bool,
) -> Iterator[OpenTelemetryMeters]:
    """Meters that are served and pushed until the context ends.

    Args:
        listen: The address to serve Prometheus at.
        endpoint: The collector to push to.
        where: Where metrics are configured, for errors.
        instance: The ``service.instance.id``: pushes of several processes with one id add up.
        is_one_epoch: See ``telemetry``.

    Raises:
        InvalidConfig: The address cannot be listened at.
    """
    with contextlib.ExitStack() as stack:
        readers: list[MetricReader] = []
        address: str | None = None
        if listen is not None:
            registry = CollectorRegistry()
            address = stack.enter_context(_serving(listen, registry, where))
            readers.append(PrometheusMetricReader(registry=registry, scope_info_enabled=False))
        if endpoint is not None:
            stack.enter_context(_hushed())
            exporter = _Exporter(
                endpoint,
                timeout=_PUSH_SECONDS,
                preferred_temporality=_DELTA if is_one_epoch else None,
            )
            interval = math.inf if is_one_epoch else None
            readers.append(PeriodicExportingMetricReader(exporter, interval))
        provider = MeterProvider(readers, _resource(instance), shutdown_on_exit=False)
        stack.callback(_close, provider, is_one_epoch)
        yield OpenTelemetryMeters(provider, address)


class OpenTelemetryMeters:
    """Implements ``telemetry.Meters``."""

    def __init__(self, provider: MeterProvider, address: str | None) -> None:
        """Make an instrument for each metric; ``address`` is where Prometheus finds them."""
        self.address = address
        meter = provider.get_meter("laminar_dagster")
        self._counters: dict[str, CounterInstrument] = {}
        self._histograms: dict[str, HistogramInstrument] = {}
        # The points of a gauge are replaced, never mutated: another thread reads them.
        self._shown: dict[str, Points] = {}
        for metric in METRICS:
            given = (metric.name, metric.unit, metric.description)
            match metric.kind:
                case "counter":
                    self._counters[metric.name] = meter.create_counter(*given)
                case "histogram":
                    self._histograms[metric.name] = meter.create_histogram(
                        *given, explicit_bucket_boundaries_advisory=_SECONDS
                    )
                case "gauge":
                    look = self._look_at(metric.name)
                    meter.create_observable_gauge(
                        metric.name, [look], metric.unit, metric.description
                    )

    def add(self, metric: Metric, amount: float, attributes: Attributes) -> None:
        """Add to a counter."""
        self._counters[metric.name].add(amount, attributes)

    def record(self, metric: Metric, value: float, attributes: Attributes) -> None:
        """Record one value of a histogram."""
        self._histograms[metric.name].record(value, attributes)

    def put(self, metric: Metric, points: Points) -> None:
        """Replace everything that a gauge shows."""
        self._shown[metric.name] = points

    def _look_at(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def look(_options: CallbackOptions) -> Iterable[Observation]:
            return [Observation(value, at) for value, at in self._shown.get(name, ())]

        return look


class _Exporter(OTLPMetricExporter):
    """Logs once that pushes fail, and once that they succeed again."""

    _is_away = False

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        """Push the metrics."""
        _HUSH.reason = ""
        result = super().export(metrics_data, timeout_millis, **kwargs)
        is_away = result is not MetricExportResult.SUCCESS
        if is_away and not self._is_away:
            reason = _HUSH.reason or "no answer"
            log.warning("metrics cannot be pushed to %s: %s", self._endpoint, reason)
        elif self._is_away and not is_away:
            log.info("metrics are pushed to %s again", self._endpoint)
        self._is_away = is_away
        return result


class _Hush(logging.Filter):
    """Drops the exporter's log of every failed push, and keeps its text for ``_Exporter``."""

    reason = ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop a record; of each push, the first text is kept, which says most."""
        self.reason = self.reason or redact(record.getMessage())
        return False


_HUSH: Final = _Hush()


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    exporter = logging.getLogger(_EXPORTER_LOG)
    exporter.addFilter(_HUSH)
    try:
        yield
    finally:
        exporter.removeFilter(_HUSH)


@contextlib.contextmanager
def _serving(listen: ListenAddress, registry: CollectorRegistry, where: str) -> Iterator[str]:
    """Serve a registry to Prometheus; yields the URL."""
    try:
        server, thread = start_http_server(listen.port, listen.host, registry)
    except OSError as error:
        problem = f"metrics cannot be served at {listen}: {error.strerror or error}"
        raise InvalidConfig(where, problem, "give another address, or end who has it") from error
    at = ListenAddress(listen.host, server.server_port)
    try:
        yield f"http://{at}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _resource(instance: str) -> Resource:
    name = os.environ.get("OTEL_SERVICE_NAME", "laminar")
    return Resource.create({"service.name": name, "service.instance.id": instance})


def _close(provider: MeterProvider, is_one_epoch: bool) -> None:
    """Push the last metrics. A failure is only logged: it must not fail the process at its end."""
    try:
        if is_one_epoch:
            provider.force_flush()
        provider.shutdown()
    except Exception as error:
        log.warning("the last metrics were not pushed: %s", redact(str(error)))
