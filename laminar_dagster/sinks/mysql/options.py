"""The options of a MySQL sink."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from laminar_dagster.clients.mysql.options import server_of
from laminar_dagster.clients.mysql.server import Server
from laminar_dagster.config.model import SinkTable
from laminar_dagster.sinks.changes import Mode
from laminar_dagster.sinks.mysql.connection import Limits
from laminar_dagster.sinks.options import SinkOptions

_DURABILITY: Final = ("strict", "relaxed")


@dataclass(frozen=True, slots=True)
class MysqlOptions:
    """The options of a ``CREATE SINK`` for MySQL."""

    server: Server
    limits: Limits
    table: str
    mode: Mode
    key: tuple[str, ...]
    create: bool
    renamed: dict[str, str]
    bulk: bool
    durable: bool


def read_options(table: SinkTable, project: Path) -> MysqlOptions:
    """Parse a MySQL sink's options.

    Raises:
        InvalidConfig: Lists every mistake.
    """
    options = SinkOptions(table)
    server = server_of(options, project)
    limits = options.limits(Limits())
    name = options.table_name(table, "the database goes into `database`")
    mode, key = options.mode_and_key()
    create = options.flag("create", True)
    bulk = options.flag("bulk_load", True)
    durable = options.choice("durability", _DURABILITY, "strict") == "strict"
    renamed = options.renamed()
    options.finish()
    return MysqlOptions(server, limits, name, mode, key, create, renamed, bulk, durable)
