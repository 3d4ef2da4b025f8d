"""Fixtures for a real PostgreSQL server: `postgres_service`, and `postgres_database` in it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import psycopg
import pytest
from psycopg import sql

from infra.postgres import Postgres, PostgresEndpoint
from tests.services.sharing import Services

# A server that is killed loses nothing by it; only a power cut would show the difference.
WITHOUT_SYNC = {"fsync": "off", "full_page_writes": "off"}
# Tables of this server are also sources.
WITH_SLOTS = {"wal_level": "logical", "max_replication_slots": "120", "max_wal_senders": "60"}
# For the tests of several processes at a time.
WITH_ROOM = {"max_connections": "300"}


@pytest.fixture(scope="session")
def postgres_service(services: Services) -> PostgresEndpoint:
    """One server per run."""
    return services.endpoint(
        "postgres", partial(Postgres, {**WITHOUT_SYNC, **WITH_SLOTS, **WITH_ROOM})
    )


@pytest.fixture
def postgres_database(postgres_service: PostgresEndpoint) -> Iterator[str]:
    """The name of an empty database that no other test uses; removed with all who are in it."""
    with database_on(postgres_service) as name:
        yield name


@contextmanager
def database_on(server: PostgresEndpoint) -> Iterator[str]:
    """A database of a new name on a server, for a while."""
    name = f"test_{uuid.uuid4().hex}"
    _administer(server, sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    yield name
    _administer(server, sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _administer(endpoint: PostgresEndpoint, statement: sql.Composed) -> None:
    with psycopg.connect(endpoint.dsn(), autocommit=True) as connection:
        connection.execute(statement)
