"""The published contract of sources, on a real server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import ClassVar

import pytest

from infra.mysql_endpoint import MysqlEndpoint
from laminar_dagster.core.ports import DecodedChunk
from laminar_dagster.sources.mysql.source import MysqlCdcSource
from laminar_dagster.testing.source_contract import SourceContract
from tests.integration.mysql_cdc.shop import Shop


@dataclass
class TableStream:
    """A table to which rows are added, a transaction for each call."""

    shop: Shop

    def open(self) -> MysqlCdcSource:
        source = self.shop.source()
        source.prepare(None, ())
        return source

    def append(self, numbers: Sequence[int]) -> None:
        # The snapshot is taken before: all rows come from the log.
        self.open()
        self.shop.insert([(number, None) for number in numbers])

    def begin_record(self, number: int) -> bool:
        """A transaction that is not committed."""
        self.open()
        self._writer = self.shop.connect()
        self._writer.begin()
        with self._writer.cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES (%s, NULL)", (number,))
        return True

    def end_record(self) -> None:
        self._writer.commit()
        self._writer.close()

    def replace(self) -> None:
        """The same rows, in a log of the same names, of another server."""
        self.shop.reset_log()
        self.shop.run("SET GLOBAL server_id = 78")
        self.shop.run("DELETE FROM orders")
        self.shop.insert([(number, None) for number in range(10)])

    def numbers(self, chunk: DecodedChunk) -> list[int]:
        found: list[int] = chunk.rows.column("id").to_pylist()
        return found


class TestContract(SourceContract):
    unit: ClassVar[int] = 4

    @pytest.fixture
    def stream(self, shop: Shop, log_server: MysqlEndpoint) -> Iterator[TableStream]:
        yield TableStream(shop)
        with closing(log_server.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SET GLOBAL server_id = 77")
