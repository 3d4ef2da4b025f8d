"""MariaDB's server and MySQL's: whose files it serves, who gets in, and how it ends."""

from __future__ import annotations

import os
import pwd
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymysql
import pytest

from infra import service
from infra.errors import ServiceFailed
from infra.mariadb import Mariadb
from infra.mysql import Mysql
from infra.mysql_endpoint import MysqlEndpoint
from infra.ports import free_port, is_listening

Kind = type[Mariadb] | type[Mysql]

KINDS = [
    pytest.param(kind, id=kind.name, marks=pytest.mark.service(kind.name))
    for kind in (Mariadb, Mysql)
]
WITHOUT_SYNC = {"innodb-flush-method": "nosync"}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def running(kind: Kind, request: pytest.FixtureRequest) -> MysqlEndpoint:
    """The server of all tests."""
    found: MysqlEndpoint = request.getfixturevalue(f"{kind.name}_service")
    return found


def ask(endpoint: MysqlEndpoint, question: str, database: str | None = None) -> Any:
    with closing(endpoint.connect(database)) as connection, connection.cursor() as cursor:
        cursor.execute(question)
        answer = cursor.fetchone()
    return answer[0] if answer else None


def test_each_test_has_a_database_of_its_own(
    kind: Kind, running: MysqlEndpoint, request: pytest.FixtureRequest
) -> None:
    database = request.getfixturevalue(f"{kind.name}_database")
    assert ask(running, "SELECT database()", database) == database
    assert ask(running, "SELECT @@character_set_server") == "utf8mb4"
    assert ask(running, "SELECT @@innodb_flush_log_at_trx_commit") == 1


def test_nobody_gets_in_without_the_password(running: MysqlEndpoint) -> None:
    for stranger in (
        replace(running, password=""),
        replace(running, password="guess"),
        replace(running, user="root", password=""),
        replace(running, user="", password=""),
    ):
        with pytest.raises(pymysql.err.OperationalError) as caught:
            stranger.connect()
        assert caught.value.args[0] in (1045, 1130, 1698)


def test_it_is_of_one_account_and_ends_with_its_data_kept(kind: Kind, tmp_path: Path) -> None:
    """The password is neither in the representation nor in the command or its log."""
    with kind(WITHOUT_SYNC) as server:
        first = server.start(tmp_path)
        command = Path(f"/proc/{server.identity.pid}/cmdline").read_bytes()
        surroundings = Path(f"/proc/{server.identity.pid}/environ").read_bytes()
        account = Path(f"/proc/{server.identity.pid}").stat().st_uid
        ask(first, "CREATE TABLE t AS SELECT 42 AS n")
        with closing(first.connect()):
            begun = time.monotonic()
            server.stop()
            assert time.monotonic() - begun < 10
        assert not is_listening(first.port)
        log = (tmp_path / f"{kind.name}.log").read_text()
        again = server.start(tmp_path)
        assert again.password == first.password
        assert ask(again, "SELECT n FROM t") == 42
    assert "Shutdown complete" in log
    assert first.password not in repr(first)
    assert first.password.encode() not in command + surroundings
    assert first.password not in log
    assert (tmp_path / "password").stat().st_mode & 0o777 == 0o600
    assert account != 0
    if os.geteuid() == 0:
        assert pwd.getpwuid(account).pw_name in ("mysql", "nobody")


def test_it_listens_on_loopback_only(running: MysqlEndpoint) -> None:
    assert running.host == "127.0.0.1"
    assert is_listening(running.port)
    assert not is_listening(running.port, "127.0.0.2")


def test_another_server_on_its_port_is_not_taken_for_it(
    kind: Kind, tmp_path: Path, running: MysqlEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = iter([running.port])
    monkeypatch.setattr(service, "free_port", lambda: next(offered, None) or free_port())
    with kind(WITHOUT_SYNC) as server:
        assert server.start(tmp_path).port != running.port


def test_a_failed_start_shows_what_it_printed(kind: Kind, tmp_path: Path) -> None:
    with kind({"no-such-setting": "1"}) as server:
        with pytest.raises(ServiceFailed, match="unknown variable 'no-such-setting=1'"):
            server.start(tmp_path)
