"""Connecting to a server, what it must be like, and what holds in a session there."""

from __future__ import annotations

import math
import ssl
import struct
from dataclasses import dataclass, field
from typing import Any, Final

import pymysql
from pymysql.constants import CR

from laminar_dagster.clients.hosts import is_loopback
from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.mysql.session import Session, unverified

SSL_MODES: Final = ("disabled", "preferred", "required", "verify-ca", "verify-identity")

# A key of 0 must not become the next free number, and nothing may be cut, rounded or replaced.
_SQL_MODE: Final = (
    "STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,"
    "NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO"
)
_FACTS: Final = """
    SELECT VERSION(), @@global.read_only, @@global.innodb_read_only, @@global.local_infile,
           @@session.max_allowed_packet, @@global.innodb_flush_log_at_trx_commit,
           @@global.log_bin, @@global.sync_binlog
"""
# The one that tells all texts apart, a trailing space too: MariaDB's, and MySQL's.
_COLLATIONS: Final = """
    SELECT COLLATION_NAME FROM information_schema.COLLATIONS
    WHERE COLLATION_NAME IN ('utf8mb4_nopad_bin', 'utf8mb4_0900_bin')
    ORDER BY COLLATION_NAME DESC LIMIT 1
"""
# The level is named, since a server may have another default: under a stricter one, gaps are
# locked as well, and sinks of one database would be in each other's way.
_ISOLATION: Final = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE"


class ReadOnly(pymysql.err.OperationalError):
    """The server takes no writes."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds after which something is given up.

    Attributes:
        lock: To wait for a lock.
        statement: For one statement. Statements are bounded in size, so this does not bound an
            epoch.
        idle: Without a word from us inside a session, such as while a file is read. It ends the
            transaction of a writer that was stopped.
        commit: To wait for the answer to a COMMIT.
    """

    lock: float = 60.0
    statement: float = 600.0
    idle: float = 300.0
    commit: float = 30.0


@dataclass(frozen=True, slots=True)
class Server:
    """A database on a server, and how to get in.

    Attributes:
        host: A name, an address, or the path of a socket.
        ssl_mode: One of ``SSL_MODES``; None for ``verify-identity``, or ``preferred`` on loopback.
        connect_timeout: Seconds until a session must be there.
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
        """The server, for people."""
        return self.host if self.is_socket else f"{self.host}:{self.port}"

    @property
    def is_socket(self) -> bool:
        """Whether it is reached without a network."""
        return self.host.startswith("/")

    def connect(self, application: str) -> Session:
        """Open a session, in which nothing is set or begun.

        Raises:
            pymysql.Error: It cannot be had.
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
                # PyMySQL would take it for Latin-1.
                password=(self.password or "").encode(),
                database=self.database,
                charset="utf8mb4",
                program_name=application,
                connect_timeout=self.connect_timeout,
                # A server that accepts and says nothing more.
                read_timeout=self.connect_timeout,
                write_timeout=self.connect_timeout,
            )
        except RuntimeError as error:
            # What PyMySQL says when a password must be encrypted, and nothing here can do it.
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
            # Without a password of ours, OpenSSL would ask for one at the terminal.
            context.load_cert_chain(self.ssl_cert, self.ssl_key, self.ssl_key_password or "")
        return context


class _Refused:
    """What a server that is not known for certain gets when it wants the password as it is."""

    def __init__(self, session: object) -> None:
        """Made by PyMySQL."""

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


@dataclass(frozen=True, slots=True)
class Facts:
    """What a server is like.

    Attributes:
        takes_streams: Whether rows can be loaded from a stream.
        packet: The bytes of the longest statement.
        collation: What new text columns are compared by; empty if it knows none that will do.
    """

    is_mariadb: bool
    takes_streams: bool
    packet: int
    collation: str
    flush: int
    binlog: bool
    sync_binlog: int

    def check_recent(self) -> None:
        """Without a collation that tells all texts apart, keys could be mixed up.

        Raises:
            Unwritable: There is none.
        """
        if not self.collation:
            raise Unwritable("the server is older than MySQL 8.0.17 and MariaDB 10.2")

    def check_durable(self) -> None:
        """An epoch that a crash of the server takes back would be a gap.

        Raises:
            Unwritable: It could be.
        """
        if self.flush != 1:
            setting, value = "innodb_flush_log_at_trx_commit", self.flush
        elif self.binlog and self.sync_binlog != 1:
            setting, value = "sync_binlog", self.sync_binlog
        else:
            return
        raise Unwritable(
            f"the server's `{setting}` is {value}: a crash could take an epoch back;"
            f" SET GLOBAL {setting} = 1, or set durability = 'relaxed'"
        )


def prepare(session: Session, limits: Limits) -> Facts:
    """Set what holds in a session, and find out what the server is like.

    Raises:
        ReadOnly: It takes no writes.
        pymysql.Error: The connection is lost.
    """
    ((version, *read_only, streams, packet, flush, binlog, sync),) = session.run(_FACTS).rows
    is_mariadb = "mariadb" in version.lower()
    if any(read_only):
        raise ReadOnly(1290, "the server is read-only, as replicas are")
    found = session.run(_COLLATIONS).rows
    settings = {
        "sql_mode": _SQL_MODE,
        "time_zone": "+00:00",
        # Errors are read by people who read the rest of them in English.
        "lc_messages": "en_US",
        "innodb_lock_wait_timeout": _whole(limits.lock),
        "lock_wait_timeout": _whole(limits.lock),
        "wait_timeout": _whole(limits.idle),
        # While rows are streamed, the server waits no longer for the next ones.
        "net_read_timeout": _whole(limits.idle),
        "net_write_timeout": _whole(limits.idle),
        "completion_type": 0,
        "foreign_key_checks": 1,
        "unique_checks": 1,
        "sql_notes": 1,
        "max_error_count": 64,
        "sql_safe_updates": 0,
        "sql_select_limit": 2**64 - 1,
    }
    if is_mariadb:
        settings |= {"max_statement_time": limits.statement, "check_constraint_checks": 1}
    names = ", ".join(f"SESSION {name} = %s" for name in settings)
    session.run(f"SET {names}", [*settings.values()])
    session.run(_ISOLATION)
    # The server gives up first, where it can, and then says why.
    session.limit(max(limits.lock, limits.statement) + 30)
    return Facts(
        is_mariadb=is_mariadb,
        takes_streams=bool(streams),
        packet=packet,
        collation=found[0][0] if found else "",
        flush=flush,
        binlog=bool(binlog),
        sync_binlog=sync,
    )


def _whole(seconds: float) -> int:
    # The server counts in whole seconds, and takes none for no waiting at all.
    return max(1, math.ceil(seconds))
