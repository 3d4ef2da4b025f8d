"""Error translation: from MySQL's errors to this project's, by their numbers."""

from __future__ import annotations

import re
from typing import Final

import pymysql

from laminar_dagster.clients.mysql import errors as meanings
from laminar_dagster.clients.mysql.errors import (
    code_of,
    describe_connecting,
    is_lost,
    is_passing,
    is_refusal,
    is_refusal_to_connect,
    message_of,
)
from laminar_dagster.clients.mysql.server import Server
from laminar_dagster.core.errors import (
    AuthFailed,
    ConnectionLost,
    LaminarError,
    ServiceFailed,
    SinkUnavailable,
    WriteFailed,
)
from laminar_dagster.core.ids import EpochNumber, SinkId

# As a reply to COMMIT, these errors are raised before it, so the transaction was rolled back.
_ROLLED_BACK: Final = frozenset({1205, 1213, 1290, 1792, 1836})
_HELP: Final = {
    1048: "fill it in the view, or allow nulls in the table",
    1062: "it is there already: mode = 'upsert' replaces it, or change the view",
    1364: "give it a default",
    1451: "the rows that refer to it must go first",
    1452: "the row it refers to must be there first",
    1526: "make a partition for it",
    # From a server with GTIDs, for a table without transactions.
    1785: "the table must have transactions; ALTER TABLE … ENGINE = InnoDB",
    3819: "change the view, or the constraint",
    4025: "change the view, or the constraint",
}
_ROW: Final = re.compile(r" at row (\d+)")


def row_of(error: pymysql.Error) -> int | None:
    """The number of the failing row in the statement, from 1, if the message names it."""
    found = _ROW.search(message_of(error))
    return int(found[1]) if found else None


def while_connecting(error: pymysql.Error, sink_id: SinkId, server: Server) -> LaminarError:
    """The error to raise if connecting failed."""
    text = describe_connecting(error, server)
    if is_refusal_to_connect(error):
        return AuthFailed(_server_of(sink_id), text)
    if is_passing(error):
        return SinkUnavailable(sink_id, text)
    return ServiceFailed(_server_of(sink_id), text)


def while_reading(error: pymysql.Error, sink_id: SinkId, server: Server) -> LaminarError:
    """The error to raise if a read-only statement failed."""
    reason = describe(error, server)
    if is_refusal(error):
        return AuthFailed(_server_of(sink_id), reason)
    if is_passing(error):
        return SinkUnavailable(sink_id, reason)
    return ServiceFailed(_server_of(sink_id), reason)


def before_commit(
    error: pymysql.Error, sink_id: SinkId, epoch: EpochNumber, server: Server
) -> LaminarError:
    """The error to raise before COMMIT was sent: the server rolls back, nothing is published."""
    reason = describe(error, server)
    if is_lost(error):
        return ConnectionLost(sink_id, reason)
    if is_passing(error):
        return SinkUnavailable(sink_id, reason)
    if is_refusal(error):
        return AuthFailed(_server_of(sink_id), reason)
    return WriteFailed(sink_id, epoch, reason)


def is_rolled_back(error: pymysql.Error) -> bool:
    """Whether the server's reply to a COMMIT says that it did not happen.

    After any other error the outcome is unknown: a shutdown or time-out may follow the commit.
    """
    return code_of(error) in _ROLLED_BACK


def describe(error: pymysql.Error, server: Server) -> str:
    """The error's text, the failing row if it is known, and advice for a failed write."""
    return meanings.describe(error, server, _HELP)


def _server_of(sink_id: SinkId) -> str:
    return f"the MySQL server of sink {sink_id}"
