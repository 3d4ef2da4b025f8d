"""PostgreSQL's errors as errors of this project.

Inside a transaction the server says what happened by an SQLSTATE. While a connection is made,
libpq passes on nothing but a text.
"""

from __future__ import annotations

import re
from typing import Final

import psycopg

from laminar_dagster.clients.concealment import conceal
from laminar_dagster.core.errors import (
    AuthFailed,
    ConnectionLost,
    LaminarError,
    SinkUnavailable,
    WriteFailed,
)
from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.sinks.postgres.connection import Server

# Retrying does not help: the password, the role, the server's rules or a certificate is wrong.
_REFUSED: Final = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|pg_hba\.conf rejects"
    r"|role \".*\" does not exist|database \".*\" does not exist|is not permitted to log in"
    r"|permission denied for database|does not support SSL|requires? (?:a valid )?client certif"
    r"|certificate verify failed|server certificate for|certificate required|unknown ca"
    r"|root certificate|client certificate|certificate file|private key file|bad certificate"
    r"|certificate does not match private key",
)
# Nothing is wrong with the epoch or the table: the same call may succeed later.
_TRANSIENT: Final = {
    "25006": "the server cannot be written to now",
    "40001": "it collided with another transaction",
    "40P01": "it was in a deadlock with another transaction",
    "55006": "an object is in use",
    "55P03": "another transaction holds a lock",
    "57014": "it took longer than `statement_timeout`, or somebody cancelled it",
}
# Rolled back for the sake of another, short of resources, failed by the operating system.
_TRANSIENT_CLASSES: Final = ("40", "53", "58")
# The connection broke, an administrator or a crash ended the session, or a time-out did.
_LOST: Final = ("08", "57P", "25P03", "25P04")
_HELP: Final = {
    "21000": "two keys of the view are one key to the table, by its collation or its type",
    "23502": "fill it in the view, or allow nulls: ALTER TABLE … ALTER COLUMN … DROP NOT NULL",
    "23503": "the row it refers to must be there first",
    "23505": "it is there already: mode = 'upsert' replaces it, or change the view",
    "23514": "change the view, or the constraint",
    "23P01": "change the view, or the constraint",
}
_LINE: Final = re.compile(r"^COPY .*?, [^\d,]+ (\d+)", re.MULTILINE)


def while_connecting(error: psycopg.Error, sink_id: SinkId, server: Server) -> LaminarError:
    """No connection was made."""
    text = f"{server.shown}: {hide_secrets(_one_line(str(error)), server)}"
    if _REFUSED.search(text):
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
    if state in _TRANSIENT or state.startswith(_TRANSIENT_CLASSES):
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


def describe(error: psycopg.Error, server: Server) -> str:
    """What happened, the row to blame if the server names one, and what to do."""
    diagnosis, state = error.diag, error.sqlstate or ""
    parts = [_TRANSIENT.get(state, ""), diagnosis.message_primary or _one_line(str(error))]
    if diagnosis.constraint_name:
        parts.append(f"constraint `{diagnosis.constraint_name}`")
    if diagnosis.message_detail:
        parts.append(_one_line(diagnosis.message_detail))
    parts += [*getattr(error, "__notes__", ())]
    if state in _HELP:
        parts.append(_HELP[state])
    if state == "42501":
        parts.append("grant what is missing")
    text = "; ".join(part.rstrip(".") for part in parts if part)
    return hide_secrets(f"{server.shown}: {text}" + (f" ({state})" if state else ""), server)


def line_of(error: psycopg.Error) -> int | None:
    """Which row of a COPY is to blame, from 1, if the server says so."""
    found = _LINE.search(error.diag.context or "")
    return int(found[1]) if found else None


def hide_secrets(text: str, server: Server) -> str:
    """A text without the passwords, for what is quoted by others."""
    public = f"{server.host} {server.user} {server.database}"
    return conceal(text, (server.password, server.sslpassword), public)


def _ends_connection(error: psycopg.Error) -> bool:
    is_fatal = error.diag.severity_nonlocalized in ("FATAL", "PANIC")
    return is_fatal or (error.sqlstate or "").startswith(_LOST)


def _one_line(text: str) -> str:
    return " ".join(text.split())
