"""Error translation: from PostgreSQL's errors to this project's.

Inside a transaction an error has an SQLSTATE. While connecting, libpq passes on only a text.
"""

from __future__ import annotations

import re
from typing import Final

import psycopg

from laminar_dagster.clients.postgres.failures import (
    describe,
    ends_connection,
    hide_secrets,
    is_passing,
    is_refusal,
    may_connect_later,
    one_line,
)
from laminar_dagster.clients.postgres.server import Server
from laminar_dagster.core.errors import (
    AuthFailed,
    ConnectionLost,
    LaminarError,
    ServiceFailed,
    SinkUnavailable,
    WriteFailed,
)
from laminar_dagster.core.ids import EpochNumber, SinkId

_LINE: Final = re.compile(r"^COPY .*?, [^\d,]+ (\d+)", re.MULTILINE)


def while_connecting(error: psycopg.Error, sink_id: SinkId, server: Server) -> LaminarError:
    """The error to raise if connecting failed."""
    text = f"{server.shown}: {hide_secrets(one_line(str(error)), server)}"
    if is_refusal(text):
        return AuthFailed(_server_of(sink_id), text)
    if may_connect_later(text):
        return SinkUnavailable(sink_id, text)
    return ServiceFailed(_server_of(sink_id), text)


def while_reading(error: psycopg.Error, sink_id: SinkId, server: Server) -> LaminarError:
    """The error to raise if a read-only statement failed."""
    reason = describe(error, server)
    if error.sqlstate == "42501":
        return AuthFailed(_server_of(sink_id), reason)
    if is_passing(error):
        return SinkUnavailable(sink_id, reason)
    return ServiceFailed(_server_of(sink_id), reason)


def before_commit(
    error: psycopg.Error, sink_id: SinkId, epoch: EpochNumber, server: Server
) -> LaminarError:
    """The error to raise before COMMIT was sent: the server rolls back, nothing is published."""
    reason, state = describe(error, server), error.sqlstate
    if is_passing(error):
        is_lost = state is None or ends_connection(error)
        return ConnectionLost(sink_id, reason) if is_lost else SinkUnavailable(sink_id, reason)
    if state == "42501":
        return AuthFailed(_server_of(sink_id), reason)
    return WriteFailed(sink_id, epoch, reason)


def is_rolled_back(error: psycopg.Error) -> bool:
    """Whether the server's reply to a COMMIT says that it did not happen.

    An error with an SQLSTATE is, unless it ends the session: that may come after the commit.
    """
    return error.sqlstate is not None and not ends_connection(error)


def line_of(error: psycopg.Error) -> int | None:
    """The number of the failing row of a COPY, from 1, if the error's context names it."""
    found = _LINE.search(error.diag.context or "")
    return int(found[1]) if found else None


def _server_of(sink_id: SinkId) -> str:
    return f"the PostgreSQL server of sink {sink_id}"
