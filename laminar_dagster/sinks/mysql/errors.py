"""MySQL's errors as errors of this project, by their numbers."""

from __future__ import annotations

import re
import ssl
from typing import Final

import pymysql
from pymysql.constants import CR

from laminar_dagster.clients.concealment import conceal
from laminar_dagster.core.errors import (
    AuthFailed,
    ConnectionLost,
    LaminarError,
    SinkUnavailable,
    WriteFailed,
)
from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.sinks.mysql.connection import Server
from laminar_dagster.sinks.mysql.session import FileAsked

# Retrying does not help: the password, the account, its rights, the database or a certificate.
_REFUSED: Final = frozenset(
    {1044, 1045, 1049, 1095, 1130, 1142, 1143, 1227, 1251, 1275, 1370, 1524, 1698, 1820, 1862, 1873}
    | {3118, 3159, 4151, CR.CR_SSL_CONNECTION_ERROR, CR.CR_AUTH_PLUGIN_CANNOT_LOAD}
    | {CR.CR_AUTH_PLUGIN_ERR, CR.CR_LOAD_DATA_LOCAL_INFILE_REJECTED}
)
_BAD_CERTIFICATE: Final = re.compile(
    r"CERTIFICATE_VERIFY_FAILED|ALERT_UNKNOWN_CA|ALERT_BAD_CERT|CERTIFICATE_REQUIRED"
    r"|ALERT_CERTIFICATE|ALERT_ACCESS_DENIED|WRONG_VERSION_NUMBER|HANDSHAKE_FAILURE"
)
# Nothing is wrong with the epoch or the table: the same call may succeed later.
_TRANSIENT: Final = {
    1021: "its disk is full",
    1026: "it cannot write to its disk",
    1030: "its storage fails",
    1037: "it is out of memory",
    1038: "it is out of memory",
    1040: "it has too many connections",
    1041: "it is out of memory",
    1047: "it is not ready",
    1114: "it has no space left",
    1203: "the account has too many connections",
    1205: "another transaction holds a lock",
    1206: "it has too many locks",
    1213: "it was in a deadlock with another transaction",
    1226: "the account has used up what it may",
    1290: "it cannot be written to now",
    1317: "somebody cancelled the statement",
    1412: "the table was changed meanwhile",
    1792: "it cannot be written to now",
    1836: "it cannot be written to now",
    1969: "it took longer than `statement_timeout`",
    3024: "it took longer than `statement_timeout`",
}
# The session ended: the network, an administrator, a shutdown, or a time-out.
_LOST: Final = frozenset(
    {1053, 1077, 1079, 1080, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 3168, 4031}
    | {CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST, CR.CR_SERVER_LOST_EXTENDED}
    | {CR.CR_COMMANDS_OUT_OF_SYNC, 0}
)
# To a COMMIT, these say that it did not happen: a conflict that was found before it.
_ROLLED_BACK: Final = frozenset({1205, 1213, 1290, 1792, 1836})
_HELP: Final = {
    1048: "fill it in the view, or allow nulls in the table",
    1062: "it is there already: mode = 'upsert' replaces it, or change the view",
    1364: "give it a default",
    1451: "the rows that refer to it must go first",
    1452: "the row it refers to must be there first",
    1526: "make a partition for it",
    3819: "change the view, or the constraint",
    4025: "change the view, or the constraint",
}
_ROW: Final = re.compile(r" at row (\d+)")


def code_of(error: pymysql.Error) -> int:
    """The server's number for an error, or the client's; 0 for none."""
    number = error.args[0] if error.args else 0
    return number if isinstance(number, int) else 0


def row_of(error: pymysql.Error) -> int | None:
    """Which row of the statement is to blame, from 1, if the server says so."""
    found = _ROW.search(_message(error))
    return int(found[1]) if found else None


def while_connecting(error: pymysql.Error, sink_id: SinkId, server: Server) -> LaminarError:
    """No session was had."""
    text = describe(error, server)
    cause = getattr(error, "original_exception", None)
    is_certificate = isinstance(cause, ssl.SSLCertVerificationError)
    if code_of(error) in _REFUSED or is_certificate or _BAD_CERTIFICATE.search(text):
        return AuthFailed(f"the MySQL server of sink {sink_id}", text)
    if server.ssl_cert is not None and code_of(error) in _LOST:
        # In TLS 1.3 its refusal comes after the handshake, and the connection may be gone by then.
        text += "; the server may not accept the certificate of `ssl_cert`"
    return SinkUnavailable(sink_id, text)


def while_reading(error: pymysql.Error, sink_id: SinkId, server: Server) -> LaminarError:
    """A statement that only reads failed."""
    reason = describe(error, server)
    if isinstance(error, FileAsked) or code_of(error) in _REFUSED:
        return AuthFailed(f"the MySQL server of sink {sink_id}", reason)
    return SinkUnavailable(sink_id, reason)


def before_commit(
    error: pymysql.Error, sink_id: SinkId, epoch: EpochNumber, server: Server
) -> LaminarError:
    """An error before the COMMIT was sent: the server rolls back, so nothing is published."""
    reason, code = describe(error, server), code_of(error)
    if code in _TRANSIENT:
        return SinkUnavailable(sink_id, reason)
    if code in _LOST:
        return ConnectionLost(sink_id, reason)
    if code in _REFUSED:
        return AuthFailed(f"the MySQL server of sink {sink_id}", reason)
    return WriteFailed(sink_id, epoch, reason)


def is_rolled_back(error: pymysql.Error) -> bool:
    """Whether the server's reply to a COMMIT says that it did not happen.

    Of any other error it is not certain: a shutdown or a time-out may come after the commit.
    """
    return code_of(error) in _ROLLED_BACK


def describe(error: pymysql.Error, server: Server) -> str:
    """What happened, the row to blame if it is known, and what to do."""
    code = code_of(error)
    parts = [_TRANSIENT.get(code, ""), _message(error), *getattr(error, "__notes__", ())]
    parts.append(_HELP.get(code, ""))
    if code in (1142, 1143, 1044, 1227, 1370):
        parts.append("grant what is missing")
    text = "; ".join(part.rstrip(".") for part in parts if part) or "the connection is closed"
    public = f"{server.host} {server.user} {server.database}"
    secrets = (server.password, server.ssl_key_password)
    return conceal(f"{server.shown}: {text}" + (f" ({code})" if code else ""), secrets, public)


def _message(error: pymysql.Error) -> str:
    text = error.args[1] if len(error.args) > 1 else error.args[0] if error.args else ""
    return " ".join(str(text).split())
