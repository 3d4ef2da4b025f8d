"""The sinks on database servers, as their options describe them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from laminar_dagster.clients.mysql.server import Server as MysqlServer
from laminar_dagster.clients.postgres.server import Server as PostgresServer
from laminar_dagster.config.model import Place, SinkTable
from laminar_dagster.core.errors import InvalidConfig, SinkUnavailable
from laminar_dagster.core.ids import OperatorId, PipelineName, SinkId
from laminar_dagster.core.ports import Sink
from laminar_dagster.sinks.mysql.connection import Limits as MysqlLimits
from laminar_dagster.sinks.mysql.options import read_options as read_mysql
from laminar_dagster.sinks.mysql.sink import MysqlSink
from laminar_dagster.sinks.postgres.connection import Limits as PostgresLimits
from laminar_dagster.sinks.postgres.options import read_options as read_postgres
from laminar_dagster.sinks.postgres.sink import PostgresSink

PIPELINE = PipelineName("clicks")
PROJECT = Path("/project")
# Whatever a server is told to keep, nobody may read it in an error.
PASSWORD = "s3cret-word"


@dataclass(frozen=True)
class DatabaseKind:
    """A kind of sink.

    Attributes:
        least: The options that it needs.
        server: Makes a server of at least a host and a database.
        port: As its server holds a port.
    """

    connector: str
    least: Mapping[str, str]
    sink_class: Any
    server: Callable[..., Any]
    limits: Callable[..., Any]
    port: Callable[[int], Any]
    read_options: Callable[[SinkTable, Path], Any]

    def table(self, options: Mapping[str, str]) -> SinkTable:
        return SinkTable(
            sink_id=SinkId("orders"),
            view=OperatorId("totals"),
            connector=self.connector,
            options=dict(options),
            place=Place("sinks.sql", 3),
        )

    def read(self, **options: str) -> Any:
        return self.read_options(self.table(options), PROJECT)

    def refusal(self, options: Mapping[str, str]) -> str:
        with pytest.raises(InvalidConfig) as caught:
            self.sink_class.from_table(self.table(options), PROJECT, PIPELINE)
        return f"{caught.value} / {caught.value.advice()}"

    def sink(self, server: Any, table: str = "t", **options: Any) -> Any:
        return self.sink_class(SinkId("s"), PIPELINE, server, table, **options)


POSTGRES = DatabaseKind(
    connector="postgres",
    least={"host": "db.example", "database": "shop"},
    sink_class=PostgresSink,
    server=PostgresServer,
    limits=PostgresLimits,
    port=str,
    read_options=read_postgres,
)
MYSQL = DatabaseKind(
    connector="mysql",
    least={"host": "db.example", "database": "shop", "user": "writer"},
    sink_class=MysqlSink,
    server=lambda host, database, user="u", **fields: MysqlServer(host, database, user, **fields),
    limits=MysqlLimits,
    port=int,
    read_options=read_mysql,
)
KINDS = (POSTGRES, MYSQL)


def watch(
    monkeypatch: pytest.MonkeyPatch, place: object, name: str, error: Exception
) -> dict[str, Any]:
    """What a driver is asked for, the last time; nothing is opened."""
    found: dict[str, Any] = {}

    def connect(**parameters: Any) -> None:
        found.clear()
        found.update(parameters)
        raise error

    monkeypatch.setattr(place, name, connect)
    return found


def ask(sink: Sink) -> None:
    """Have a sink connect, to a driver that is watched and repeats the password."""
    with pytest.raises(SinkUnavailable) as caught:
        sink.ledger()
    assert PASSWORD not in str(caught.value)
    assert caught.value.__cause__ is None
