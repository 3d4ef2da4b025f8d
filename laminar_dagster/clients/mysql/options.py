"""The options that name a MySQL server, shared by sources and sinks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol

from laminar_dagster.clients.mysql.server import SSL_MODES, Server
from laminar_dagster.config.files import place_of

_FILES: Final = ("ssl_ca", "ssl_cert", "ssl_key")
_SECRETS: Final = ("password", "ssl_key_password")
# All options that ``server_of`` reads.
SERVER_OPTIONS: Final = (
    "host",
    "database",
    "user",
    "port",
    "ssl_mode",
    *_FILES,
    *_SECRETS,
    "connect_timeout",
)


class OptionReader(Protocol):
    """Reads options one by one, and collects mistakes in them."""

    def text(self, name: str, default: str | None = None) -> str:
        """An option that must not be empty, and is required unless it has a default."""
        ...

    def choice(self, name: str, choices: Iterable[str], default: str) -> str:
        """An option that must be one of ``choices``."""
        ...

    def limit(self, name: str, default: float) -> float:
        """A duration greater than zero."""
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
    files = {
        name: place_of(file, project) if (file := options.text(name, "")) else None
        for name in _FILES
    }
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
