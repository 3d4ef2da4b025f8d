"""Tables and queries of a real PostgreSQL as reference tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from infra.postgres import PostgresEndpoint
from laminar_dagster.core.errors import (
    InvalidConfig,
    ReferenceUnavailable,
    ReferenceUnfit,
    ServiceFailed,
)
from laminar_dagster.core.ports import Reference
from laminar_dagster.sources.references.postgres import PostgresReference
from laminar_dagster.testing.reference_contract import FIRST, ReferenceContract, Row
from tests.unit.sources.references.declared import declared

pytestmark = pytest.mark.service("postgres")

Connection = psycopg.Connection[tuple[object, ...]]


class PostgresPlace:
    """A table of a database."""

    def __init__(self, connection: Connection, options: dict[str, str]) -> None:
        self.connection = connection
        self.options = options

    def table(self, *, has_key: bool = True, column: str = "name", **options: str) -> Reference:
        given = {"table": "fruit", **self.options, **options}
        given = {name: text for name, text in given.items() if text}
        table = declared("postgres", has_key=has_key, column=column, **given)
        return PostgresReference.from_table(table, Path("/"))

    def write(self, rows: Sequence[Row]) -> None:
        with self.connection.transaction(), self.connection.cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS fruit")
            cursor.execute("CREATE TABLE fruit (id INT, name TEXT, price NUMERIC(8, 2))")
            cursor.executemany("INSERT INTO fruit VALUES (%s, %s, 1.5)", rows)

    def remove(self) -> None:
        self.connection.execute("DROP TABLE fruit")


@pytest.fixture
def place(postgres_service: PostgresEndpoint, postgres_database: str) -> Iterator[PostgresPlace]:
    options = {
        "host": str(postgres_service.host),
        "port": str(postgres_service.port),
        "user": postgres_service.user,
        "password": postgres_service.password,
        "database": postgres_database,
    }
    with psycopg.connect(postgres_service.dsn(postgres_database), autocommit=True) as connection:
        yield PostgresPlace(connection, options)


class TestTable(ReferenceContract):
    """A table of PostgreSQL keeps the contract."""


def test_a_query_is_read_as_a_table(place: PostgresPlace) -> None:
    place.write(FIRST)
    query = "SELECT id, upper(name) AS name FROM fruit WHERE id <> 2;"
    rows = place.table(table="", query=query).read()
    place.write([(3, "FIG"), (1, "PEAR")])
    assert rows.files == place.table().read().files


def test_a_query_cannot_write(place: PostgresPlace) -> None:
    place.write(FIRST)
    query = "WITH gone AS (DELETE FROM fruit RETURNING id, name) SELECT * FROM gone"
    with pytest.raises(ServiceFailed, match="data-modifying statement"):
        place.table(table="", query=query).read()
    assert len(place.table().read().files) == 1


def test_a_column_of_another_type_is_refused_by_name(place: PostgresPlace) -> None:
    place.write(FIRST)
    place.connection.execute("ALTER TABLE fruit ALTER COLUMN id TYPE NUMERIC")
    with pytest.raises(ReferenceUnfit, match="`id` is numeric, declared as int32"):
        place.table().version()


def test_it_is_looked_at_every_ten_minutes(place: PostgresPlace) -> None:
    assert place.table().freshness.refresh_after == timedelta(minutes=10)


def test_a_server_that_is_away_is_no_empty_table(place: PostgresPlace) -> None:
    with pytest.raises(ReferenceUnavailable) as caught:
        place.table(port="1").read()
    assert place.options["password"] not in str(caught.value)


@pytest.mark.parametrize("options", [{"table": ""}, {"query": "SELECT 1"}, {"table": "a.b.c"}])
def test_one_table_or_one_query(place: PostgresPlace, options: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig, match="table"):
        place.table(has_key=True, column="name", **options)
