"""Each sink by itself, on a real server: if one cannot be had, the others are measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bench.figures import Benchmark, Figure
from bench.kafka.venue import venue_of
from bench.sinks.delta import DeltaPlace
from bench.sinks.kafka import KafkaPlace
from bench.sinks.mysql import MysqlPlace
from bench.sinks.postgres import PostgresPlace
from bench.sinks.sqlite import SqlitePlace
from bench.sinks.trial import hold
from bench.surroundings import Surroundings
from infra.mariadb import Mariadb
from infra.postgres import Postgres
from laminar_dagster.sinks.changes import Mode

_MODES: Final[tuple[Mode, ...]] = ("append", "upsert")


def postgres(surroundings: Surroundings) -> Iterator[Figure]:
    """Rows added, and rows that replace those with their key."""
    with Postgres() as server:
        endpoint = server.start(surroundings.folder())
        for mode in _MODES:
            place = PostgresPlace(endpoint, mode)
            place.make_schema()
            yield from hold(place, surroundings.effort)


def mysql(surroundings: Surroundings) -> Iterator[Figure]:
    """The same on MariaDB."""
    with Mariadb(_MARIADB) as server:
        endpoint = server.start(surroundings.folder())
        for mode in _MODES:
            place = MysqlPlace(endpoint, mode, surroundings.folder())
            place.make_database()
            yield from hold(place, surroundings.effort)


def kafka(surroundings: Surroundings) -> Iterator[Figure]:
    """Messages of JSON, and of Avro with a schema registry."""
    venue = venue_of(surroundings)
    yield from hold(KafkaPlace(venue.servers, "json"), surroundings.effort)
    place = KafkaPlace(venue.servers, "avro", venue.registry_url())
    yield from hold(place, surroundings.effort)


def delta(surroundings: Surroundings) -> Iterator[Figure]:
    """On a local disk."""
    yield from hold(DeltaPlace(surroundings.folder()), surroundings.effort)


def sqlite(surroundings: Surroundings) -> Iterator[Figure]:
    """A file on a local disk."""
    yield from hold(SqlitePlace(surroundings.folder() / "bench.db"), surroundings.effort)


BENCHMARKS: Final = (
    Benchmark("sink-postgres", "epochs into PostgreSQL, beside psycopg's COPY", postgres),
    Benchmark("sink-mysql", "epochs into MariaDB, beside PyMySQL", mysql),
    Benchmark("sink-kafka", "epochs into Kafka, beside a plain producer", kafka),
    Benchmark("sink-delta", "epochs into Delta, beside write_deltalake", delta),
    Benchmark("sink-sqlite", "epochs into SQLite, beside executemany", sqlite),
)

# As large as PostgreSQL's own default: the one that tests have is smaller than an epoch.
_MARIADB: Final = {"innodb-buffer-pool-size": "128M"}
