"""A PostgreSQL server, and how to get in."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.rows import TupleRow

from laminar_dagster.clients.hosts import is_loopback
from laminar_dagster.clients.identifiers import session_name

Connection = psycopg.Connection[TupleRow]

SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")

# Bytes: NAMEDATALEN less one.
_LONGEST_APPLICATION: Final = 63

# Where systems keep the authorities they trust.
_BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)
# A network that swallows everything is found out after about a minute.
_KEEPALIVE: Final = {
    "keepalives": "1",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}


@dataclass(frozen=True, slots=True)
class Server:
    """A database on a server, and how to get in.

    Attributes:
        host: A name, an address, or the folder of a socket; several with commas between them, of
            which the one that can be written to is used.
        port: One port, or as many as hosts.
        user: None for libpq's own: ``PGUSER``, or the account of this process.
        password: None for libpq's own: ``PGPASSWORD``, or ``~/.pgpass``.
        sslmode: As libpq knows it; None for ``verify-full``, or ``prefer`` on loopback.
        connect_timeout: Seconds for each host.
    """

    host: str
    database: str
    port: str = "5432"
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    sslmode: str | None = None
    sslrootcert: str | None = None
    sslcert: str | None = None
    sslkey: str | None = None
    sslpassword: str | None = field(default=None, repr=False)
    connect_timeout: float = 10.0

    @property
    def shown(self) -> str:
        """The server, for people."""
        return f"{self.host}:{self.port}"

    def connect(self, application: str, *, replication: bool = False) -> Connection:
        """Open a connection, in which nothing is begun.

        Args:
            application: What the server calls the session; see ``identifiers.session_name``.
            replication: Whether it is one that makes replication slots.

        Raises:
            psycopg.OperationalError: It cannot be had.
        """
        mode = self.sslmode or ("prefer" if is_loopback(self.host) else "verify-full")
        optional: dict[str, Any] = {
            "user": self.user,
            "password": self.password,
            "sslrootcert": self.sslrootcert or _trusted(mode),
            "sslcert": self.sslcert,
            "sslkey": self.sslkey,
            "sslpassword": self.sslpassword,
            "replication": "database" if replication else None,
            **_KEEPALIVE,
        }
        return psycopg.connect(
            autocommit=True,
            # No prepared statements: a pool in between may give every transaction another session.
            prepare_threshold=None,
            host=self.host,
            port=self.port,
            dbname=self.database,
            sslmode=mode,
            # Kerberos' own encryption would pass by the certificates.
            gssencmode="disable",
            # libpq takes less than two seconds for two.
            connect_timeout=max(2, round(self.connect_timeout)),
            target_session_attrs="read-write",
            client_encoding="UTF8",
            application_name=session_name(application, _LONGEST_APPLICATION),
            **{name: value for name, value in optional.items() if value is not None},
        )


def _trusted(mode: str) -> str | None:
    """The authorities that this system trusts, where libpq would have none."""
    if not mode.startswith("verify") or os.environ.get("PGSSLROOTCERT"):
        return None
    if (Path.home() / ".postgresql" / "root.crt").exists():
        return None
    known = (ssl.get_default_verify_paths().cafile, *_BUNDLES)
    return next((path for path in known if path and Path(path).is_file()), None)
