"""What an error of PostgreSQL means for an epoch."""

from __future__ import annotations

import pickle

import psycopg
import pytest

from laminar_dagster.clients.postgres.server import Server
from laminar_dagster.core.errors import (
    AuthFailed,
    ConnectionLost,
    LaminarError,
    SinkUnavailable,
    WriteFailed,
)
from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.sinks.postgres import errors

SERVER = Server("db.example", "shop", user="writer", password="s3cret-word")
SINK = SinkId("orders")


def error_of(state: str, text: str = "what it said") -> psycopg.Error:
    return psycopg.errors.lookup(state)(text)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("08006", ConnectionLost),
        ("25P03", ConnectionLost),
        ("57P01", ConnectionLost),
        ("57P02", ConnectionLost),
        ("25006", SinkUnavailable),
        ("40001", SinkUnavailable),
        ("40003", SinkUnavailable),
        ("40P01", SinkUnavailable),
        ("53100", SinkUnavailable),
        ("53200", SinkUnavailable),
        ("53300", SinkUnavailable),
        ("55P03", SinkUnavailable),
        ("57014", SinkUnavailable),
        ("58030", SinkUnavailable),
        ("42501", AuthFailed),
        ("21000", WriteFailed),
        ("22001", WriteFailed),
        ("22021", WriteFailed),
        ("23502", WriteFailed),
        ("23505", WriteFailed),
        ("25P02", WriteFailed),
        ("42P01", WriteFailed),
        ("54000", WriteFailed),
        ("XX000", WriteFailed),
    ],
)
def test_before_the_commit(state: str, kind: type[LaminarError]) -> None:
    found = errors.before_commit(error_of(state), SINK, EpochNumber(3), SERVER)
    assert type(found) is kind
    assert "what it said" in str(found)
    assert state in str(found)
    assert str(pickle.loads(pickle.dumps(found))) == str(found)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (psycopg.OperationalError("server closed the connection"), ConnectionLost),
        (psycopg.InterfaceError("the connection is lost"), ConnectionLost),
        (psycopg.DataError("no such thing"), WriteFailed),
    ],
)
def test_what_the_server_did_not_say(error: psycopg.Error, kind: type[LaminarError]) -> None:
    assert type(errors.before_commit(error, SINK, EpochNumber(3), SERVER)) is kind


@pytest.mark.parametrize(
    ("error", "is_certain"),
    [
        (error_of("23503"), True),
        (error_of("40001"), True),
        (error_of("53100"), True),
        (error_of("57P01"), False),
        (error_of("57P02"), False),
        (error_of("08006"), False),
        (psycopg.OperationalError("server closed the connection"), False),
        (psycopg.InterfaceError("the connection is lost"), False),
    ],
    ids=lambda each: str(each),
)
def test_only_a_reply_says_that_a_commit_did_not_happen(
    error: psycopg.Error, is_certain: bool
) -> None:
    assert errors.is_rolled_back(error) is is_certain


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ('FATAL:  password authentication failed for user "w"', True),
        ("fe_sendauth: no password supplied", True),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.1"', True),
        ('FATAL:  role "w" does not exist', True),
        ('FATAL:  database "d" does not exist', True),
        ("server does not support SSL, but SSL was required", True),
        ("SSL error: certificate verify failed", True),
        ('server certificate for "a" does not match host name "b"', True),
        ("FATAL:  connection requires a valid client certificate", True),
        ("connection refused", False),
        ("FATAL:  the database system is starting up", False),
        ("FATAL:  sorry, too many clients already", False),
        ("timeout expired", False),
        ("session is read-only", False),
        ('could not translate host name "x" to address', False),
    ],
)
def test_while_connecting(text: str, is_refused: bool) -> None:
    error = psycopg.OperationalError(f"connection failed: {text} s3cret-word")
    found = errors.while_connecting(error, SINK, SERVER)
    assert type(found) is (AuthFailed if is_refused else SinkUnavailable)
    assert "s3cret-word" not in str(found)
    assert "db.example:5432" in str(found)


def test_reading() -> None:
    assert type(errors.while_reading(error_of("42501"), SINK, SERVER)) is AuthFailed
    assert type(errors.while_reading(error_of("57014"), SINK, SERVER)) is SinkUnavailable
