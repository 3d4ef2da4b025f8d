"""What is known of the connectors before a pipeline uses one. Imports no DuckDB."""

from __future__ import annotations

from typing import Final

from laminar_dagster.config.model import SinkTable, SourceTable
from laminar_dagster.core.ports import Sink, Source
from laminar_dagster.plugins import SinkConnector, SinkContext, SourceConnector, SourceContext


def _source(table: SourceTable, context: SourceContext) -> Source:
    from laminar_duckdb.source import DuckdbSource

    return DuckdbSource.from_table(table, context.project)


def _sink(table: SinkTable, context: SinkContext) -> Sink:
    from laminar_duckdb.sink import DuckdbSink

    return DuckdbSink.from_table(table, context.project, context.pipeline)


SOURCE: Final = SourceConnector(interface=1, build=_source)
SINK: Final = SinkConnector(interface=1, build=_sink)
