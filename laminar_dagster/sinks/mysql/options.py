"""The options of a MySQL sink, and what they describe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from laminar_dagster.clients.mysql.server import SSL_MODES, Server
from laminar_dagster.config.model import SinkTable
from laminar_dagster.sinks.changes import Mode
from laminar_dagster.sinks.mysql.connection import Limits
from laminar_dagster.sinks.options import SinkOptions

_DURABILITY: Final = ("strict", "relaxed")


@dataclass(frozen=True, slots=True)
class MysqlOptions:
    """What a ``CREATE SINK`` says."""

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
    """Take a sink's options.

    Raises:
        InvalidConfig: Lists every mistake.
    """
    options = SinkOptions(table)
    server = _server(options, project)
    limits = options.limits(Limits())
    name = options.table_name(table, "the database goes into `database`")
    mode, key = options.mode_and_key()
    create = options.flag("create", True)
    bulk = options.flag("bulk_load", True)
    durable = options.choice("durability", _DURABILITY, "strict") == "strict"
    renamed = options.renamed()
    options.finish()
    return MysqlOptions(server, limits, name, mode, key, create, renamed, bulk, durable)


def _server(options: SinkOptions, project: Path) -> Server:
    found = {name: options.text(name) for name in ("host", "database", "user")}
    for name in ("host", "database"):
        value = found[name]
        if "://" in value or "@" in value:
            options.refuse(f"`{name}` is an address, not a name", "write it without the rest")
    port = options.text("port", "3306")
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 2**16):
        options.refuse("`port` is no number between 1 and 65535")
        port = "3306"
    # An empty choice is the default, which depends on the host.
    mode = options.choice("ssl_mode", SSL_MODES, "") or None
    files = {name: options.file(name, project) for name in ("ssl_ca", "ssl_cert", "ssl_key")}
    if (files["ssl_cert"] is None) != (files["ssl_key"] is None):
        options.refuse("`ssl_cert` and `ssl_key` go together", "give both, or none")
    return Server(
        host=found["host"],
        database=found["database"],
        user=found["user"],
        port=int(port),
        password=options.text("password", "") or None,
        ssl_mode=mode,
        ssl_ca=files["ssl_ca"],
        ssl_cert=files["ssl_cert"],
        ssl_key=files["ssl_key"],
        ssl_key_password=options.text("ssl_key_password", "") or None,
        connect_timeout=options.limit("connect_timeout", 10.0),
    )
