"""What an error of MySQL means for an epoch."""

from __future__ import annotations

import pickle

import pymysql
import pytest

from laminar_dagster.clients.mysql.server import Server
from laminar_dagster.clients.mysql.session import FileAsked
from laminar_dagster.core.errors import (
    AuthFailed,
    ConnectionLost,
    LaminarError,
    SinkUnavailable,
    WriteFailed,
)
from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.sinks.mysql import errors

SERVER = Server("db.example", "shop", "writer", password="s3cret-word")
SINK = SinkId("orders")


def error_of(code: int, text: str = "what it said") -> pymysql.Error:
    return pymysql.err.OperationalError(code, text)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1053, ConnectionLost),
        (1158, ConnectionLost),
        (1159, ConnectionLost),
        (1927, ConnectionLost),
        (2006, ConnectionLost),
        (2013, ConnectionLost),
        (4031, ConnectionLost),
        (1021, SinkUnavailable),
        (1040, SinkUnavailable),
        (1114, SinkUnavailable),
        (1205, SinkUnavailable),
        (1213, SinkUnavailable),
        (1290, SinkUnavailable),
        (1317, SinkUnavailable),
        (1836, SinkUnavailable),
        (1969, SinkUnavailable),
        (3024, SinkUnavailable),
        (1044, AuthFailed),
        (1142, AuthFailed),
        (1143, AuthFailed),
        (2068, AuthFailed),
        (1048, WriteFailed),
        (1054, WriteFailed),
        (1062, WriteFailed),
        (1146, WriteFailed),
        (1153, WriteFailed),
        (1265, WriteFailed),
        (1406, WriteFailed),
        (1452, WriteFailed),
        (1665, WriteFailed),
        (3819, WriteFailed),
        (4025, WriteFailed),
    ],
)
def test_before_the_commit(code: int, kind: type[LaminarError]) -> None:
    found = errors.before_commit(error_of(code), SINK, EpochNumber(3), SERVER)
    assert type(found) is kind
    assert "what it said" in str(found)
    assert f"({code})" in str(found)
    assert str(pickle.loads(pickle.dumps(found))) == str(found)


def test_a_connection_that_is_closed_already() -> None:
    error = pymysql.err.InterfaceError(0, "")
    found = errors.before_commit(error, SINK, EpochNumber(3), SERVER)
    assert isinstance(found, ConnectionLost)
    assert "the connection is closed" in str(found)


@pytest.mark.parametrize(
    ("code", "is_certain"),
    [
        (1205, True),
        (1213, True),
        (1290, True),
        (1053, False),
        (1180, False),
        (1317, False),
        (1927, False),
        (1969, False),
        (2006, False),
        (2013, False),
    ],
)
def test_only_some_replies_say_that_a_commit_did_not_happen(code: int, is_certain: bool) -> None:
    assert errors.is_rolled_back(error_of(code)) is is_certain


@pytest.mark.parametrize(
    ("code", "text", "is_refused"),
    [
        (1045, "Access denied for user 'w'@'h' (using password: YES)", True),
        (1044, "Access denied for user 'w'@'h' to database 'd'", True),
        (1049, "Unknown database 'd'", True),
        (1130, "Host '10.0.0.1' is not allowed to connect", True),
        (2026, "SSL is required but the server doesn't support it", True),
        (2061, "the server wants the password in clear text", True),
        (2003, "Can't connect ([SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed)", True),
        (2013, "Lost connection ([SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca)", True),
        (2003, "Can't connect to MySQL server on 'h' ([Errno 111] Connection refused)", False),
        (
            2003,
            "Can't connect to MySQL server ([Errno -2] Name or service not known)",
            False,
        ),
        (2013, "Lost connection to MySQL server during query (timed out)", False),
        (1040, "Too many connections", False),
        (1290, "the server is read-only", False),
    ],
)
def test_while_connecting(code: int, text: str, is_refused: bool) -> None:
    found = errors.while_connecting(error_of(code, f"{text} s3cret-word"), SINK, SERVER)
    assert type(found) is (AuthFailed if is_refused else SinkUnavailable)
    assert "s3cret-word" not in str(found)
    assert "db.example:3306" in str(found)


def test_reading() -> None:
    assert type(errors.while_reading(error_of(1142), SINK, SERVER)) is AuthFailed
    assert type(errors.while_reading(FileAsked(2068, "x"), SINK, SERVER)) is AuthFailed
    assert type(errors.while_reading(error_of(2013), SINK, SERVER)) is SinkUnavailable


def test_the_row_to_blame() -> None:
    assert errors.row_of(error_of(1406, "Data too long for column 'v' at row 12")) == 12
    assert errors.row_of(error_of(1062, "Duplicate entry '1' for key 'PRIMARY'")) is None
    noted = error_of(1062, "Duplicate entry.")
    noted.add_note("in the row k=1")
    assert errors.describe(noted, SERVER) == (
        "db.example:3306: Duplicate entry; in the row k=1;"
        " it is there already: mode = 'upsert' replaces it, or change the view (1062)"
    )
