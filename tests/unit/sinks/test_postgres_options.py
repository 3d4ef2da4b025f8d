"""What a PostgreSQL sink alone can be told, and how it connects."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import psycopg
import pytest

from laminar_dagster.clients.hosts import is_loopback
from laminar_dagster.clients.postgres import server as server_module
from laminar_dagster.clients.postgres.failures import hide_secrets
from laminar_dagster.clients.postgres.server import Server
from tests.unit.sinks.database_kinds import PASSWORD, POSTGRES, ask, watch


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://writer@db.example:6432/shop?sslmode=require&connect_timeout=4",
        "host=db.example port=6432 dbname=shop user=writer sslmode=require connect_timeout=4",
    ],
)
def test_a_dsn_says_the_same(dsn: str) -> None:
    found = POSTGRES.read(dsn=dsn, password=PASSWORD).server
    assert found == Server(
        host="db.example",
        port="6432",
        database="shop",
        user="writer",
        password=PASSWORD,
        sslmode="require",
        connect_timeout=4,
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What libpq is asked for."""
    error = psycopg.OperationalError(f"connection to server failed: Connection refused {PASSWORD}")
    return watch(monkeypatch, psycopg, "connect", error)


@pytest.mark.parametrize(
    ("host", "mode"),
    [
        ("localhost", "prefer"),
        ("127.0.0.1", "prefer"),
        ("127.3.2.1", "prefer"),
        ("::1", "prefer"),
        ("/run/postgresql", "prefer"),
        ("127.0.0.1,localhost", "prefer"),
        ("db.example", "verify-full"),
        ("10.0.0.1", "verify-full"),
        ("localhost,db.example", "verify-full"),
        ("localhost.example", "verify-full"),
    ],
)
def test_other_machines_must_prove_who_they_are(
    asked: dict[str, Any], host: str, mode: str
) -> None:
    ask(POSTGRES.sink(Server(host, "d", password=PASSWORD)))
    assert asked["sslmode"] == mode
    assert is_loopback(host) == (mode == "prefer")
    assert asked["gssencmode"] == "disable"
    ask(POSTGRES.sink(Server(host, "d", sslmode="require", password=PASSWORD)))
    assert asked["sslmode"] == "require"


def test_the_system_is_asked_whom_it_trusts(
    asked: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.touch()
    monkeypatch.delenv("PGSSLROOTCERT", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(server_module, "_BUNDLES", ("/no/such", str(bundle)))
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: _NoPaths)
    server = Server("db.example", "d", password=PASSWORD)
    ask(POSTGRES.sink(server))
    assert asked.pop("sslrootcert") == str(bundle)
    ask(POSTGRES.sink(Server("db.example", "d", password=PASSWORD, sslrootcert="/own")))
    assert asked.pop("sslrootcert") == "/own"
    # What libpq finds by itself is left to it.
    (tmp_path / ".postgresql").mkdir()
    (tmp_path / ".postgresql" / "root.crt").touch()
    ask(POSTGRES.sink(server))
    assert "sslrootcert" not in asked


class _NoPaths:
    cafile = None


def test_what_a_connection_is_asked_for(asked: dict[str, Any]) -> None:
    ask(POSTGRES.sink(Server("db.example", "d", user="u", password=PASSWORD, connect_timeout=0.1)))
    assert asked["password"] == PASSWORD
    assert asked["client_encoding"] == "UTF8"
    assert asked["target_session_attrs"] == "read-write"
    assert asked["connect_timeout"] == 2
    assert asked["keepalives"] == "1"
    assert asked["autocommit"] is True
    assert asked["prepare_threshold"] is None
    assert asked["application_name"] == "laminar clicks/s"


def test_a_password_that_is_no_secret_does_not_blot_out_names() -> None:
    text = 'role "postgres" does not exist'
    assert hide_secrets(text, Server("h", "d", user="postgres", password="postgres")) == text
    assert hide_secrets("a long-secret b", Server("h", "d", password="long-secret")) == "a *** b"
