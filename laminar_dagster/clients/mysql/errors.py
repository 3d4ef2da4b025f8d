"""Classifies a MySQL server's errors by their codes."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Final

import pymysql
from pymysql.constants import CR

from laminar_dagster.clients import transience
from laminar_dagster.clients.concealment import conceal
from laminar_dagster.clients.mysql.server import Server
from laminar_dagster.clients.mysql.session import FileAsked

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
# Transient: the same call may succeed later.
TRANSIENT: Final = {
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
LOST: Final = frozenset(
    {1053, 1077, 1079, 1080, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 3168, 4031}
    | {CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST, CR.CR_SERVER_LOST_EXTENDED}
    | {CR.CR_COMMANDS_OUT_OF_SYNC}
)
# No session can be opened now: connection refused, unknown host, or no answer.
_AWAY: Final = frozenset(
    {CR.CR_CONNECTION_ERROR, CR.CR_CONN_HOST_ERROR, CR.CR_UNKNOWN_HOST, CR.CR_IPSOCK_ERROR}
)
_DENIED: Final = frozenset({1142, 1143, 1044, 1227, 1370})


def code_of(error: pymysql.Error) -> int:
    """The code of a server's or client's error; 0 without one."""
    number = error.args[0] if error.args else 0
    return number if isinstance(number, int) else 0


def is_lost(error: pymysql.Error) -> bool:
    """Whether the session has ended. For a closed one, PyMySQL's error has no code."""
    if code_of(error) == 0:
        is_confused = "sequence number" in message_of(error)
        return type(error) is pymysql.err.InterfaceError or is_confused
    return code_of(error) in LOST


def is_passing(error: pymysql.Error) -> bool:
    """Whether the error is transient: the same call may succeed later."""
    if code_of(error) in _AWAY:
        cause = getattr(error, "original_exception", None)
        if isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError):
            return transience.is_passing(cause)
        return True
    return is_lost(error) or code_of(error) in TRANSIENT


def is_refusal(error: pymysql.Error) -> bool:
    """Whether the account or its rights are refused, or the server asked for a local file."""
    return isinstance(error, FileAsked) or code_of(error) in _REFUSED


def is_refusal_to_connect(error: pymysql.Error) -> bool:
    """Whether a connection is refused: as ``is_refusal``, or because of a certificate."""
    cause = getattr(error, "original_exception", None)
    is_certificate = isinstance(cause, ssl.SSLCertVerificationError)
    refused = is_refusal(error) or is_certificate
    return refused or _BAD_CERTIFICATE.search(message_of(error)) is not None


def describe_connecting(error: pymysql.Error, server: Server) -> str:
    """The text for a connection that failed."""
    text = describe(error, server)
    if server.ssl_cert is not None and not is_refusal_to_connect(error) and is_lost(error):
        # In TLS 1.3 a refused certificate shows after the handshake, as a closed connection.
        text += "; the server may not accept the certificate of `ssl_cert`"
    return text


def describe(error: pymysql.Error, server: Server, remedies: Mapping[int, str] = {}) -> str:
    """The text for an error: the server's message, the row if it is known, and the remedy.

    Args:
        error: An error of the server or the client.
        server: The server, whose secrets are kept out of the text.
        remedies: Remedies by error code.
    """
    code = code_of(error)
    parts = [TRANSIENT.get(code, ""), message_of(error), *getattr(error, "__notes__", ())]
    parts.append(remedies.get(code, ""))
    if code in _DENIED:
        parts.append("grant what is missing")
    text = "; ".join(part.rstrip(".") for part in parts if part) or "the connection is closed"
    public = f"{server.host} {server.user} {server.database}"
    secrets = (server.password, server.ssl_key_password)
    return conceal(f"{server.shown}: {text}" + (f" ({code})" if code else ""), secrets, public)


def message_of(error: pymysql.Error) -> str:
    """The message of an error, in one line."""
    text = error.args[1] if len(error.args) > 1 else error.args[0] if error.args else ""
    return " ".join(str(text).split())
