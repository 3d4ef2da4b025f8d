"""Classifies PostgreSQL's errors, and describes them without secrets.

In a session the server identifies errors by an SQLSTATE. While connecting, libpq passes on
nothing but a text.
"""

from __future__ import annotations

import re
from typing import Final

import psycopg

from laminar_dagster.clients.concealment import conceal
from laminar_dagster.clients.postgres.server import Server
from laminar_dagster.clients.transience import PASSING_TEXT

# Retrying does not help: the password, the role, the server's rules or a certificate is wrong.
_REFUSED: Final = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|pg_hba\.conf rejects"
    r"|role \".*\" does not exist|database \".*\" does not exist|is not permitted to log in"
    r"|permission denied for database|does not support SSL|requires? (?:a valid )?client certif"
    r"|certificate verify failed|server certificate for|certificate required|unknown ca"
    r"|root certificate|client certificate|certificate file|private key file|bad certificate"
    r"|certificate does not match private key"
    r"|must be superuser or replication role|denied to start WAL sender",
)
_OF_CONNECTION: Final = frozenset(
    {psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.ConnectionTimeout}
)
# Transient: the same call may succeed later.
TRANSIENT: Final = {
    "25006": "the server cannot be written to now",
    "40001": "it collided with another transaction",
    "40P01": "it was in a deadlock with another transaction",
    "55006": "an object is in use",
    "55P03": "another transaction holds a lock",
    "57014": "it took longer than `statement_timeout`, or somebody cancelled it",
}
# Classes of SQLSTATEs: transaction rollback, insufficient resources, system error.
_TRANSIENT_CLASSES: Final = ("40", "53", "58")
# The connection broke, an administrator or a crash ended the session, or a time-out did.
_LOST: Final = ("08", "57P", "25P03", "25P04")
# libpq's texts for a server that is unavailable, or has no free connection, for the moment.
_AWAY: Final = re.compile(
    r"server closed the connection|connection (?:was )?(?:lost|closed|reset)|connection is closed"
    r"|connection is lost|EOF detected|unexpected(?:ly)? (?:eof|closed)|closed unexpectedly"
    r"|starting up|shutting down|recovery mode|recovery state|not yet accepting|not accepting"
    r"|hot standby|session is read-only|session is not read-only|too many (?:clients|connections)"
    r"|connection slots|terminating connection|canceling|cancelled|timeout expired"
    r"|could not (?:receive|send)|could not fork|out of memory|in use|No such file or directory"
)
_HELP: Final = {
    "21000": "two keys of the view are one key to the table, by its collation or its type",
    "23502": "fill it in the view, or allow nulls: ALTER TABLE … ALTER COLUMN … DROP NOT NULL",
    "23503": "the row it refers to must be there first",
    "23505": "it is there already: mode = 'upsert' replaces it, or change the view",
    "23514": "change the view, or the constraint",
    "23P01": "change the view, or the constraint",
}


def is_refusal(text: str) -> bool:
    """Whether libpq's text for a failed connection means that retrying does not help."""
    return _REFUSED.search(text) is not None


def may_connect_later(text: str) -> bool:
    """Whether libpq's text for a failed connection means a transient error.

    A missing socket directory counts as a server that is not running yet.
    """
    return (_AWAY.search(text) or PASSING_TEXT.search(text)) is not None


def is_passing(error: psycopg.Error) -> bool:
    """Whether a statement that failed may succeed later, without anybody changing anything."""
    state = error.sqlstate
    if state is None:
        # libpq's own error: the connection broke during the statement, or before.
        return type(error) in _OF_CONNECTION
    return state in TRANSIENT or state.startswith(_TRANSIENT_CLASSES) or ends_connection(error)


def ends_connection(error: psycopg.Error) -> bool:
    """Whether the session has ended."""
    is_fatal = error.diag.severity_nonlocalized in ("FATAL", "PANIC")
    return is_fatal or (error.sqlstate or "").startswith(_LOST)


def describe(error: psycopg.Error, server: Server) -> str:
    """The text for an error: the message, the row if the server names one, and the remedy."""
    diagnosis, state = error.diag, error.sqlstate or ""
    parts = [TRANSIENT.get(state, ""), diagnosis.message_primary or one_line(str(error))]
    if diagnosis.constraint_name:
        parts.append(f"constraint `{diagnosis.constraint_name}`")
    if diagnosis.message_detail:
        parts.append(one_line(diagnosis.message_detail))
    parts += [*getattr(error, "__notes__", ())]
    if state in _HELP:
        parts.append(_HELP[state])
    if state == "42501":
        parts.append("grant what is missing")
    text = "; ".join(part.rstrip(".") for part in parts if part)
    return hide_secrets(f"{server.shown}: {text}" + (f" ({state})" if state else ""), server)


def hide_secrets(text: str, server: Server) -> str:
    """A text of another program without the server's passwords."""
    public = f"{server.host} {server.user} {server.database}"
    return conceal(text, (server.password, server.sslpassword), public)


def one_line(text: str) -> str:
    """A text without line breaks."""
    return " ".join(text.split())
