"""A collector of OpenTelemetry: a real HTTP server that keeps what is pushed to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)


@dataclass
class Collector:
    """What has come.

    Attributes:
        url: Where to push to.
        answer: The status of every answer.
    """

    url: str
    answer: int = 200
    paths: list[str] = field(default_factory=list)
    pushes: list[ExportMetricsServiceRequest] = field(default_factory=list)

    def metrics(self, push: int = -1) -> dict[str, Any]:
        """The metrics of one push, by name."""
        return {
            metric.name: metric
            for resource in self.pushes[push].resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def resource(self, push: int = -1) -> dict[str, str]:
        """Who has pushed."""
        (found,) = self.pushes[push].resource_metrics
        return {each.key: each.value.string_value for each in found.resource.attributes}

    def value(self, name: str, push: int = -1) -> float:
        """The value of a sum or gauge that has one series."""
        metric = self.metrics(push)[name]
        data = metric.sum if metric.HasField("sum") else metric.gauge
        (point,) = data.data_points
        return float(point.as_double if point.HasField("as_double") else point.as_int)


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.paths.append(self.path)
            if collector.answer == 200:
                collector.pushes.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(collector.answer)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
