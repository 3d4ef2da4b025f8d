"""The options that name a PostgreSQL server, shared by sources and sinks."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

import psycopg
from psycopg.conninfo import conninfo_to_dict

from laminar_dagster.clients.postgres.server import SSL_MODES, Server
from laminar_dagster.config.files import place_of

_FILES: Final = ("sslrootcert", "sslcert", "sslkey")
# The parameters allowed in a `dsn`, and the option that sets the same.
_IN_DSN: Final = {
    "host": "host",
    "port": "port",
    "dbname": "database",
    "user": "user",
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "connect_timeout": "connect_timeout",
}
_SECRETS: Final = ("password", "sslpassword")
# All options that ``server_of`` reads.
SERVER_OPTIONS: Final = ("dsn", *_IN_DSN.values(), *_SECRETS)


class OptionReader(Protocol):
    """Reads options one by one, and collects mistakes in them."""

    def text(self, name: str, default: str | None = None) -> str:
        """An option that must not be empty."""
        ...

    def seconds(self, name: str, default: float) -> float:
        """A duration such as ``30s``."""
        ...

    def refuse(self, problem: str, suggestion: str = "") -> None:
        """Add a mistake."""
        ...


def server_of(options: OptionReader, project: Path) -> Server:
    """The server that options name; collects mistakes in them.

    Args:
        options: The options of a source or a sink.
        project: The folder that relative paths start from.
    """
    dsn = _from_dsn(options)
    found: dict[str, str | None] = {}
    for name in _IN_DSN.values():
        if name == "connect_timeout":
            continue
        given = options.text(name, "") or None
        if given is not None and name in dsn:
            options.refuse(f"`{name}` is in `dsn` too", "say it once")
        found[name] = dsn.get(name) or given
    timeout = options.seconds("connect_timeout", float(dsn.get("connect_timeout") or 10))
    for name in ("host", "database"):
        if found[name] is None:
            options.refuse(f"option `{name}` is missing", "or name it in `dsn`")
        elif "://" in str(found[name]) or "@" in str(found[name])[1:]:
            options.refuse(f"`{name}` is an address, not a name", "addresses go into `dsn`")
    port = found["port"] or "5432"
    if not all(part.strip().isdecimal() and 0 < int(part) < 2**16 for part in port.split(",")):
        options.refuse("`port` is no number between 1 and 65535")
    mode = found["sslmode"]
    if mode is not None and mode not in SSL_MODES:
        options.refuse(f"option `sslmode` must be one of: {', '.join(SSL_MODES)}")
    if (found["sslcert"] is None) != (found["sslkey"] is None):
        options.refuse("`sslcert` and `sslkey` go together", "give both, or none")
    paths = {name: place_of(file, project) if (file := found[name]) else None for name in _FILES}
    secrets = {name: options.text(name, "") or None for name in _SECRETS}
    return Server(
        host=found["host"] or "",
        port=port,
        database=found["database"] or "",
        user=found["user"],
        sslmode=mode,
        connect_timeout=timeout,
        **paths,
        **secrets,
    )


def _from_dsn(options: OptionReader) -> dict[str, str]:
    """The parameters of a ``dsn``, by the names of our options. Errors never quote the ``dsn``."""
    dsn = options.text("dsn", "")
    if not dsn:
        return {}
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        options.refuse(
            "`dsn` cannot be read", "write postgresql://user@host:port/database?sslmode=…"
        )
        return {}
    found: dict[str, str] = {}
    for name, value in given.items():
        if name in _SECRETS:
            options.refuse(f"`dsn` holds a {name}", f"use the option `{name}`, with ${{NAME}}")
        elif name not in _IN_DSN:
            known = f"known in it: {', '.join(_IN_DSN)}"
            options.refuse(f"`dsn` holds `{name}`, which is not known", known)
        elif name == "connect_timeout" and not str(value).isdecimal():
            options.refuse("`connect_timeout` in `dsn` is no number of seconds")
        else:
            found[_IN_DSN[name]] = str(value)
    return found
