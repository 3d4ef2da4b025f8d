"""The PostgreSQL server: whose files it serves, who gets in, and how it ends."""

from __future__ import annotations

import os
import pwd
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

from infra import service
from infra.errors import ServiceFailed
from infra.ports import free_port, is_listening
from infra.postgres import Postgres, PostgresEndpoint

pytestmark = pytest.mark.service("postgres")


def ask(endpoint: PostgresEndpoint, question: LiteralString, database: str | None = None) -> object:
    with psycopg.connect(endpoint.dsn(database)) as connection:
        done = connection.execute(question)
        answer = done.fetchone() if done.description else None
    return answer[0] if answer else None


def test_each_test_has_a_database_of_its_own(
    postgres_service: PostgresEndpoint, postgres_database: str
) -> None:
    assert ask(postgres_service, "SELECT current_database()", postgres_database) == (
        postgres_database
    )
    assert ask(postgres_service, "SHOW server_encoding") == "UTF8"
    assert ask(postgres_service, "SHOW password_encryption") == "scram-sha-256"


def test_nobody_gets_in_without_the_password(postgres_service: PostgresEndpoint) -> None:
    for password in ("", "guess"):
        stranger = replace(postgres_service, password=password)
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(stranger.dsn())


def test_the_password_is_neither_in_the_representation_nor_in_the_command_or_its_log(
    tmp_path: Path,
) -> None:
    with Postgres() as server:
        endpoint = server.start(tmp_path)
        command = Path(f"/proc/{server.identity.pid}/cmdline").read_bytes()
        surroundings = Path(f"/proc/{server.identity.pid}/environ").read_bytes()
        account = Path(f"/proc/{server.identity.pid}").stat().st_uid
    assert endpoint.password not in repr(endpoint)
    assert endpoint.password.encode() not in command + surroundings
    assert endpoint.password not in (tmp_path / "postgres.log").read_text()
    assert (tmp_path / "password").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "password.initdb").exists()
    assert endpoint.password in endpoint.dsn(driver="psycopg2")
    assert account != 0
    if os.geteuid() == 0:
        assert pwd.getpwuid(account).pw_name in ("postgres", "nobody")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
def test_where_everybody_may_go_it_needs_no_capability() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        with Postgres() as server:
            server.start(Path(folder))
            status = Path(f"/proc/{server.identity.pid}/status").read_text()
    assert "CapEff:\t0000000000000000" in status


def test_it_listens_on_loopback_only(postgres_service: PostgresEndpoint) -> None:
    assert postgres_service.host == "127.0.0.1"
    assert is_listening(postgres_service.port)
    assert not is_listening(postgres_service.port, "127.0.0.2")


def test_it_ends_at_once_in_spite_of_clients_and_finds_its_data_again(tmp_path: Path) -> None:
    with Postgres() as server:
        first = server.start(tmp_path)
        ask(first, "CREATE TABLE t AS SELECT 42 AS n")
        with closing(psycopg.connect(first.dsn())):
            begun = time.monotonic()
            server.stop()
            assert time.monotonic() - begun < 5
        assert not is_listening(first.port)
        assert "database system is shut down" in (tmp_path / "postgres.log").read_text()
        again = server.start(tmp_path)
        assert again.password == first.password
        assert ask(again, "SELECT n FROM t") == 42


def test_another_server_on_its_port_is_not_taken_for_it(
    tmp_path: Path, postgres_service: PostgresEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = iter([postgres_service.port])
    monkeypatch.setattr(service, "free_port", lambda: next(offered, None) or free_port())
    with Postgres() as server:
        assert server.start(tmp_path).port != postgres_service.port


def test_a_failed_start_shows_the_log(tmp_path: Path) -> None:
    with Postgres({"shared_buffers": "much"}) as server:
        with pytest.raises(ServiceFailed, match='invalid value for parameter "shared_buffers"'):
            server.start(tmp_path)
