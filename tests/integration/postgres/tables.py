"""A table on a real server, and a source that reads its changes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from infra.postgres import PostgresEndpoint
from laminar_dagster.config.model import Column, Place, SourceTable
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.offsets import SourcePosition
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Admission, DecodedChunk, ObjectStore, Source
from laminar_dagster.runtime.snapshots import StoredSnapshots
from laminar_dagster.sources.postgres.source import PostgresCdcSource
from laminar_dagster.sources.postgres.traits import postgres_cdc_traits
from laminar_dagster.testing.memory_store import MemoryStore
from laminar_dagster.testing.source_contract import CLOCK, NO_LIMIT

SOURCE = SourceId("changes")
_slots = itertools.count(1)


@dataclass
class Tables:
    """Tables of one database, with a publication of all of them."""

    endpoint: PostgresEndpoint
    database: str
    slot: str = ""
    store: ObjectStore = field(default_factory=MemoryStore)

    def __post_init__(self) -> None:
        self.slot = self.slot or f"slot_{self.database[-20:]}_{next(_slots)}"
        self.run('CREATE PUBLICATION "all" FOR ALL TABLES')

    def run(self, *statements: str) -> None:
        """Each in a transaction of its own."""
        with self.connect() as connection:
            for each in statements:
                connection.execute(each)

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.endpoint.dsn(self.database), autocommit=True)

    def fetch(self, query: str) -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            return connection.execute(query).fetchall()

    def drop_slot(self) -> None:
        with self.connect() as connection:
            connection.execute("SELECT pg_drop_replication_slot(%s)", (self.slot,))

    def source(self, columns: Mapping[str, str], **options: str) -> PostgresCdcSource:
        """A source on the tables; a type that ends with ``!`` is NOT NULL."""
        return self.source_with_key(columns, (), options)

    def source_with_key(
        self, columns: Mapping[str, str], key: tuple[str, ...], options: Mapping[str, str]
    ) -> PostgresCdcSource:
        """The same with a PRIMARY KEY."""
        given = {
            "host": self.endpoint.host,
            "port": str(self.endpoint.port),
            "database": self.database,
            "user": self.endpoint.user,
            "password": self.endpoint.password,
            "slot": self.slot,
            "publication": "all",
            "slot.timeout": "20s",
            **{name.replace("__", "."): text for name, text in options.items()},
        }
        traits = postgres_cdc_traits(given)
        declared = tuple(
            Column(name, kind.rstrip("!"), nullable=not kind.endswith("!"))
            for name, kind in columns.items()
        )
        table = SourceTable(
            source_id=SOURCE,
            columns=(*declared, *traits.columns),
            watermark=None,
            connector="postgres-cdc",
            options=given,
            place=Place("sources.sql", 1),
            added=tuple(each.name for each in traits.columns),
            key=key,
        )
        keeper = StoredSnapshots(self.store, SOURCE)
        return PostgresCdcSource.from_table(table, Path(), {}, keeper)


@dataclass
class Reading:
    """Epochs of one source, one after the other."""

    source: PostgresCdcSource
    previous: SourcePlan | None = None

    @property
    def at(self) -> tuple[SourcePosition, ...]:
        return tuple(part.end for part in self.previous.ranges) if self.previous else ()

    def plan(self, limits: Admission = NO_LIMIT) -> SourcePlan:
        self.source.prepare(self.previous, self.at)
        return self.source.plan(self.previous, self.at, limits, CLOCK)

    def epoch(self, limits: Admission = NO_LIMIT) -> list[DecodedChunk]:
        self.previous = self.plan(limits)
        return read(self.source, self.previous)

    def rows(self, limits: Admission = NO_LIMIT) -> list[dict[str, Any]]:
        return rows_of(self.epoch(limits))


def read(source: Source, plan: SourcePlan) -> list[DecodedChunk]:
    reader = source.reader()
    return [
        chunk
        for part in plan.ranges
        for split in source.splits(part)
        for chunk in reader.read(split)
    ]


def rows_of(chunks: Sequence[DecodedChunk]) -> list[dict[str, Any]]:
    return [row for chunk in chunks for row in chunk.rows.to_pylist()]


def bad_of(chunks: Sequence[DecodedChunk]) -> list[dict[str, Any]]:
    return [row for chunk in chunks for row in chunk.bad.to_pylist()]
