"""The options of a PostgreSQL sink."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from laminar_dagster.clients.postgres.options import server_of
from laminar_dagster.clients.postgres.server import Server
from laminar_dagster.config.model import SinkTable
from laminar_dagster.sinks.changes import Mode
from laminar_dagster.sinks.options import SinkOptions
from laminar_dagster.sinks.postgres.connection import Limits


@dataclass(frozen=True, slots=True)
class PostgresOptions:
    """The options of a ``CREATE SINK`` for PostgreSQL."""

    server: Server
    limits: Limits
    schema: str
    table: str
    mode: Mode
    key: tuple[str, ...]
    create: bool
    renamed: dict[str, str]


def read_options(table: SinkTable, project: Path) -> PostgresOptions:
    """Parse a PostgreSQL sink's options.

    Raises:
        InvalidConfig: Lists every mistake.
    """
    options = SinkOptions(table)
    server = server_of(options, project)
    limits = options.limits(Limits())
    schema = options.text("schema", "public")
    name = options.table_name(table, "write schema = 'a', table = 'b'")
    mode, key = options.mode_and_key()
    create = options.flag("create", True)
    renamed = options.renamed()
    options.finish()
    return PostgresOptions(server, limits, schema, name, mode, key, create, renamed)
