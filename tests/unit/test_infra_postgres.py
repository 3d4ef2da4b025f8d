"""Finding a PostgreSQL server, and what is said when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra import postgres
from infra.catalogue import SERVICES
from infra.errors import ServiceUnavailable
from infra.postgres import Postgres, PostgresEndpoint


def fake_server(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True)
    for name in ("initdb", "psql", "postgres"):
        program = folder / name
        program.write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
        program.chmod(0o755)
    return folder


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a server, and without a package manager."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(postgres, "_PLACES", (str(tmp_path / "postgresql" / "*" / "bin"),))
    return tmp_path


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n", 15),
        ("postgres (PostgreSQL) 17beta1\n", 17),
        ("sh: postgres: not found\n", None),
    ],
)
def test_parse_version(printed: str, version: int | None) -> None:
    assert postgres.parse_version(printed) == version


def test_the_newest_is_taken(machine: Path) -> None:
    fake_server(machine / "postgresql" / "9.6" / "bin", "9.6.24")
    newest = fake_server(machine / "postgresql" / "15" / "bin", "15.18")
    fake_server(machine / "postgresql" / "14" / "bin", "14.2")
    assert postgres.find() == newest


def test_one_that_is_too_old_or_a_client_alone_is_none(machine: Path) -> None:
    fake_server(machine / "postgresql" / "9.6" / "bin", "9.6.24")
    (fake_server(machine / "postgresql" / "15" / "bin", "15.18") / "initdb").unlink()
    assert postgres.find() is None
    with pytest.raises(ServiceUnavailable, match=r"^postgres: install PostgreSQL 13 or later"):
        Postgres().install()


def test_it_is_in_the_catalogue() -> None:
    assert SERVICES["postgres"] is Postgres


def test_an_address_quotes_what_must_be_quoted() -> None:
    endpoint = PostgresEndpoint("127.0.0.1", 5433, "a b", "p@ss/word:%", "db", Path("/data"))
    assert endpoint.dsn() == "postgresql://a%20b:p%40ss%2Fword%3A%25@127.0.0.1:5433/db"
    assert endpoint.dsn("x/y", driver="psycopg2").startswith("postgresql+psycopg2://")
    assert endpoint.dsn("x/y").endswith("/x%2Fy")
    assert "p@ss" not in repr(endpoint)
    assert endpoint.environment()["PGPASSWORD"] == "p@ss/word:%"
