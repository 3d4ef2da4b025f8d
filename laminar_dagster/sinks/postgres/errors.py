"""PostgreSQL's errors as errors of this project.

Inside a transaction the server says what happened by an SQLSTATE. While a connection is made,
libpq passes on nothing but a text.
"""

from __future__ import annotations

import re
from typing import Final

import psycopg

from laminar_dagster.clients.postgres.failures import (
    TRANSIENT,
    describe,
    hide_secrets,
    is_refusal,
    one_line,
)
from laminar_dagster.clients.postgres.server import Server
from laminar_dagster.core.errors import (
    AuthFailed,
    ConnectionLost,
    LaminarError,
    SinkUnavailable,
    WriteFailed,
)
from laminar_dagster.core.ids import EpochNumber, SinkId

# Rolled back for the sake of another, short of resources, failed by the operating system.
_TRANSIENT_CLASSES: Final = ("40", "53", "58")
# The connection broke, an administrator or a crash ended the session, or a time-out did.
_LOST: Final = ("08", "57P", "25P03", "25P04")
_LINE: Final = re.compile(r"^COPY .*?, [^\d,]+ (\d+)", re.MULTILINE)


def while_connecting(error: psycopg.Error, sink_id: SinkId, server: Server) -> LaminarError:
    """No connection was made."""
    text = f"{server.shown}: {hide_secrets(one_line(str(error)), server)}"
    if is_refusal(text):
        return AuthFailed(f"the PostgreSQL server of sink {sink_id}", text)
    return SinkUnavailable(sink_id, text)


def while_reading(error: psycopg.Error, sink_id: SinkId, server: Server) -> LaminarError:
    """A statement that only reads failed."""
    reason = describe(error, server)
    if error.sqlstate == "42501":
        return AuthFailed(f"the PostgreSQL server of sink {sink_id}", reason)
    return SinkUnavailable(sink_id, reason)


def before_commit(
    error: psycopg.Error, sink_id: SinkId, epoch: EpochNumber, server: Server
) -> LaminarError:
    """An error before the COMMIT was sent: the server rolls back, so nothing is published."""
    reason, state = describe(error, server), error.sqlstate
    if state is None:
        is_lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return ConnectionLost(sink_id, reason) if is_lost else WriteFailed(sink_id, epoch, reason)
    if state in TRANSIENT or state.startswith(_TRANSIENT_CLASSES):
        return SinkUnavailable(sink_id, reason)
    if _ends_connection(error):
        return ConnectionLost(sink_id, reason)
    if state == "42501":
        return AuthFailed(f"the PostgreSQL server of sink {sink_id}", reason)
    return WriteFailed(sink_id, epoch, reason)


def is_rolled_back(error: psycopg.Error) -> bool:
    """Whether the server's reply to a COMMIT says that it did not happen.

    An error is such a reply. What ends the session is not: it may come after the commit.
    """
    return error.sqlstate is not None and not _ends_connection(error)


def line_of(error: psycopg.Error) -> int | None:
    """Which row of a COPY is to blame, from 1, if the server says so."""
    found = _LINE.search(error.diag.context or "")
    return int(found[1]) if found else None


def _ends_connection(error: psycopg.Error) -> bool:
    is_fatal = error.diag.severity_nonlocalized in ("FATAL", "PANIC")
    return is_fatal or (error.sqlstate or "").startswith(_LOST)
