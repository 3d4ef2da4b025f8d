"""A database on a MySQL server: how to connect to it."""

from __future__ import annotations

import ssl
import struct
from dataclasses import dataclass, field
from typing import Any, Final

import pymysql
from pymysql.constants import CR

from laminar_dagster.clients.hosts import is_loopback
from laminar_dagster.clients.identifiers import session_name
from laminar_dagster.clients.mysql.session import Session, unverified

# The server's views show this many characters of a session's name.
_LONGEST_PROGRAM: Final = 64

SSL_MODES: Final = ("disabled", "preferred", "required", "verify-ca", "verify-identity")


@dataclass(frozen=True, slots=True)
class Server:
    """A database on a server, and how to connect.

    Attributes:
        host: A name, an address, or the path of a socket.
        ssl_mode: One of ``SSL_MODES``; None for ``verify-identity``, or ``preferred`` on loopback.
        connect_timeout: Seconds within which a session must be open.
    """

    host: str
    database: str
    user: str
    port: int = 3306
    password: str | None = field(default=None, repr=False)
    ssl_mode: str | None = None
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    connect_timeout: float = 10.0

    @property
    def shown(self) -> str:
        """The server's address, for errors and logs."""
        return self.host if self.is_socket else f"{self.host}:{self.port}"

    @property
    def is_socket(self) -> bool:
        """Whether it is reached by a socket instead of a network."""
        return self.host.startswith("/")

    def connect(self, application: str) -> Session:
        """Open a session, without settings or a transaction.

        Raises:
            pymysql.Error: The connection failed.
        """
        place: dict[str, Any] = (
            {"unix_socket": self.host} if self.is_socket else {"host": self.host, "port": self.port}
        )
        security = self._security()
        try:
            return Session(
                **place,
                **security,
                user=self.user,
                # Encoded here, because PyMySQL would use Latin-1.
                password=(self.password or "").encode(),
                database=self.database,
                charset="utf8mb4",
                program_name=session_name(application, _LONGEST_PROGRAM),
                connect_timeout=self.connect_timeout,
                # For a server that accepts the connection and then sends nothing.
                read_timeout=self.connect_timeout,
                write_timeout=self.connect_timeout,
            )
        except RuntimeError as error:
            # PyMySQL's error for a password that must be encrypted, without the library for it.
            raise pymysql.err.OperationalError(
                CR.CR_AUTH_PLUGIN_ERR, f"{error}; or use TLS: ssl_mode = 'required' or better"
            ) from None
        except (ValueError, IndexError, struct.error) as error:
            raise pymysql.err.OperationalError(
                CR.CR_SERVER_HANDSHAKE_ERR, f"no MySQL server answers there ({error})"
            ) from None

    def _security(self) -> dict[str, Any]:
        mode = self.ssl_mode or ("preferred" if is_loopback(self.host) else "verify-identity")
        if self.is_socket or mode == "disabled":
            return {"ssl_disabled": True, "auth_plugin_map": _CLEARTEXT}
        if mode == "preferred" and self.ssl_cert is None:
            return {"auth_plugin_map": _CLEARTEXT}
        try:
            return {"ssl": self._tls(mode), "auth_plugin_map": {}}
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(filter(None, (self.ssl_ca, self.ssl_cert, self.ssl_key)))
            raise pymysql.err.OperationalError(
                CR.CR_SSL_CONNECTION_ERROR, f"a certificate cannot be used ({files}): {error}"
            ) from None

    def _tls(self, mode: str) -> ssl.SSLContext:
        if mode.startswith("verify"):
            context = ssl.create_default_context(cafile=self.ssl_ca)
            context.check_hostname = mode == "verify-identity"
        else:
            context = unverified()
        if self.ssl_cert is not None:
            # Without a password argument, OpenSSL would ask for one at the terminal.
            context.load_cert_chain(self.ssl_cert, self.ssl_key, self.ssl_key_password or "")
        return context


class _Refused:
    """Refuses a clear-text password to a server whose identity was not verified."""

    def __init__(self, session: object) -> None:
        """Accept the arguments that PyMySQL passes."""

    def authenticate(self, packet: object) -> None:
        """Refuse.

        Raises:
            pymysql.OperationalError: Always.
        """
        raise pymysql.err.OperationalError(
            CR.CR_AUTH_PLUGIN_ERR,
            "the server wants the password in clear text; use ssl_mode = 'verify-identity'",
        )


_CLEARTEXT: Final = dict.fromkeys(
    ("mysql_clear_password", "dialog", "mysql_old_password"), _Refused
)
