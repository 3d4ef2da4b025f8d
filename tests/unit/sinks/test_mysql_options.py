"""What a MySQL sink alone can be told, and how it connects."""

from __future__ import annotations

import ssl
from typing import Any

import pymysql
import pytest

from laminar_dagster.clients.mysql import server
from laminar_dagster.clients.mysql.identifiers import quoted
from laminar_dagster.clients.mysql.server import Server
from laminar_dagster.core.errors import InvalidName
from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.mysql.connection import Facts
from tests.unit.sinks.database_kinds import MYSQL, PASSWORD, ask, watch


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "\U0001f600", "x" * 65, "x "])
def test_names_that_cannot_be_quoted(name: str) -> None:
    with pytest.raises(InvalidName):
        quoted(name)


def test_a_name_cannot_leave_its_quotes() -> None:
    assert quoted("a`; DROP TABLE t; --") == "`a``; DROP TABLE t; --`"
    assert quoted("é" * 64) == f"`{'é' * 64}`"


# --- connecting -----------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the driver is asked for."""
    error = pymysql.err.OperationalError(2003, f"connection failed: {PASSWORD}")
    return watch(monkeypatch, server, "Session", error)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.3.2.1", "::1"])
def test_this_machine_need_not_prove_who_it_is(asked: dict[str, Any], host: str) -> None:
    ask(MYSQL.sink(Server(host, "d", "u", password=PASSWORD)))
    assert "ssl" not in asked
    assert "ssl_disabled" not in asked
    assert "mysql_clear_password" in asked["auth_plugin_map"]


@pytest.mark.parametrize("host", ["db.example", "10.0.0.1", "localhost.example"])
def test_other_machines_must_prove_who_they_are(asked: dict[str, Any], host: str) -> None:
    ask(MYSQL.sink(Server(host, "d", "u", password=PASSWORD)))
    assert asked["ssl"].verify_mode == ssl.CERT_REQUIRED
    assert asked["ssl"].check_hostname
    assert asked["auth_plugin_map"] == {}


@pytest.mark.parametrize(
    ("mode", "verifies", "checks_host"),
    [("required", False, False), ("verify-ca", True, False), ("verify-identity", True, True)],
)
def test_modes(asked: dict[str, Any], mode: str, verifies: bool, checks_host: bool) -> None:
    ask(MYSQL.sink(Server("db.example", "d", "u", ssl_mode=mode, password=PASSWORD)))
    assert asked["ssl"].verify_mode == (ssl.CERT_REQUIRED if verifies else ssl.CERT_NONE)
    assert asked["ssl"].check_hostname is checks_host
    ask(MYSQL.sink(Server("db.example", "d", "u", ssl_mode="disabled", password=PASSWORD)))
    assert asked["ssl_disabled"] is True


def test_a_socket_needs_no_tls(asked: dict[str, Any]) -> None:
    ask(
        MYSQL.sink(
            Server("/run/mysqld/mysqld.sock", "d", "u", ssl_mode="required", password=PASSWORD)
        )
    )
    assert asked["unix_socket"] == "/run/mysqld/mysqld.sock"
    assert asked["ssl_disabled"] is True
    assert "host" not in asked


def test_what_a_connection_is_asked_for(asked: dict[str, Any]) -> None:
    ask(MYSQL.sink(Server("localhost", "d", "u", password=PASSWORD, connect_timeout=0.1)))
    # As bytes: the driver would take characters for Latin-1.
    assert asked["password"] == PASSWORD.encode()
    assert asked["charset"] == "utf8mb4"
    assert asked["connect_timeout"] == asked["read_timeout"] == asked["write_timeout"] == 0.1
    assert asked["program_name"] == "laminar clicks/s"


# --- durability -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flush", "binlog", "sync", "setting"),
    [
        (1, False, 0, None),
        (1, True, 1, None),
        (0, False, 1, "innodb_flush_log_at_trx_commit"),
        (2, True, 1, "innodb_flush_log_at_trx_commit"),
        (1, True, 0, "sync_binlog"),
        (1, True, 1000, "sync_binlog"),
    ],
)
def test_where_a_crash_could_take_an_epoch_back(
    flush: int, binlog: bool, sync: int, setting: str | None
) -> None:
    facts = Facts(True, True, 2**24, "utf8mb4_nopad_bin", flush, binlog, sync)
    if setting is None:
        facts.check_durable()
        return
    with pytest.raises(Unwritable, match=f"SET GLOBAL {setting} = 1"):
        facts.check_durable()
