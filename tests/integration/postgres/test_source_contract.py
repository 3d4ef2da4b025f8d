"""The published contract of sources, on a real server: rows of the stream, and of the snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import psycopg
import pytest
from psycopg import sql

from infra.postgres import PostgresEndpoint
from laminar_dagster.core.ports import DecodedChunk
from laminar_dagster.sources.postgres.source import PostgresCdcSource
from laminar_dagster.testing.source_contract import SourceContract
from tests.integration.postgres.tables import Tables

pytestmark = pytest.mark.service("postgres")


class TableStream:
    """Numbers as the rows of a table, a transaction for each time some are added."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._tables.run("CREATE TABLE numbers (n bigint)")
        self._is_copied = False
        self._open: psycopg.Connection[Any] | None = None

    def open(self) -> PostgresCdcSource:
        source = self._tables.source({"n": "bigint!"}, tables="numbers")
        if not self._is_copied:
            source.prepare(None, ())
            self._is_copied = True
        return source

    def append(self, numbers: Sequence[int]) -> None:
        with self._tables.connect() as connection:
            insert = "INSERT INTO numbers SELECT unnest(%s::bigint[])"
            connection.execute(insert, (list(numbers),))

    def begin_record(self, number: int) -> bool:
        if not self._is_copied:
            # To make the slot waits for transactions that are open.
            return False
        self._open = self._tables.connect()
        self._open.execute("BEGIN")
        self._open.execute("INSERT INTO numbers VALUES (%s)", (number,))
        return True

    def end_record(self) -> None:
        assert self._open is not None
        self._open.execute("COMMIT")
        self._open.close()

    def replace(self) -> None:
        """Another database of the same name, with a slot and a table of the same names."""
        name = sql.Identifier(self._tables.database)
        with psycopg.connect(self._tables.endpoint.dsn(), autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
            connection.execute(sql.SQL("CREATE DATABASE {}").format(name))
        self._tables.__post_init__()
        self._tables.run("CREATE TABLE numbers (n bigint)")
        self.append(range(10))
        with self._tables.connect() as connection:
            make = "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')"
            connection.execute(make, (self._tables.slot,))

    def numbers(self, chunk: DecodedChunk) -> list[int]:
        found: list[int] = chunk.rows.column("n").to_pylist()
        return found


class TestStream(SourceContract):
    """The snapshot is of an empty table."""

    # A transaction is admitted whole.
    unit: ClassVar[int] = 4

    @pytest.fixture
    def stream(self, tables: Tables) -> TableStream:
        stream = TableStream(tables)
        stream.open()
        return stream


class TestSnapshot(SourceContract):
    """What comes first is in the snapshot."""

    unit: ClassVar[int] = 4

    @pytest.fixture
    def stream(self, postgres_service: PostgresEndpoint, tables: Tables) -> TableStream:
        return TableStream(tables)
