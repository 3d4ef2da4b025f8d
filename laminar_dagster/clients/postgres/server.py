"""A PostgreSQL server, and how to connect to it."""

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

# In bytes: NAMEDATALEN less one.
_LONGEST_APPLICATION: Final = 63

# Where operating systems keep their trusted certificate authorities.
_BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)
# A network that drops all packets is detected after about a minute.
_KEEPALIVE: Final = {
    "keepalives": "1",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}


@dataclass(frozen=True, slots=True)
class Server:
    """A database on a server, and how to connect.

    Attributes:
        host: A name, an address, or the folder of a socket; or several, separated by commas, of
            which the one that accepts writes is used.
        port: One port, or as many as hosts.
        user: None for libpq's default: ``PGUSER``, or the account of this process.
        password: None for libpq's default: ``PGPASSWORD``, or ``~/.pgpass``.
        sslmode: One of libpq's modes; None for ``verify-full``, or ``prefer`` on loopback.
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
        """The server's address, for errors and logs."""
        return f"{self.host}:{self.port}"

    def connect(self, application: str, *, replication: bool = False) -> Connection:
        """Open a connection, without a transaction.

        Args:
            application: The session's name on the server; see ``identifiers.session_name``.
            replication: Whether it can run replication commands, such as creating a slot.

        Raises:
            psycopg.OperationalError: The connection failed.
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
            # No prepared statements: behind a pooler, each transaction may have another session.
            prepare_threshold=None,
            host=self.host,
            port=self.port,
            dbname=self.database,
            sslmode=mode,
            # Kerberos encryption would bypass the certificates.
            gssencmode="disable",
            # libpq raises timeouts below two seconds to two.
            connect_timeout=max(2, round(self.connect_timeout)),
            target_session_attrs="read-write",
            client_encoding="UTF8",
            application_name=session_name(application, _LONGEST_APPLICATION),
            **{name: value for name, value in optional.items() if value is not None},
        )


def _trusted(mode: str) -> str | None:
    """The system's trusted authorities, where libpq would have none."""
    if not mode.startswith("verify") or os.environ.get("PGSSLROOTCERT"):
        return None
    if (Path.home() / ".postgresql" / "root.crt").exists():
        return None
    known = (ssl.get_default_verify_paths().cafile, *_BUNDLES)
    return next((path for path in known if path and Path(path).is_file()), None)
