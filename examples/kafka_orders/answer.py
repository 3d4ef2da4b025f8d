"""What must come of the topic, and whether the sinks hold it: DuckDB over a copy of the topic."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import duckdb
import msgspec
import pyarrow as pa
from deltalake import DeltaTable

SINKS: Final = ("sales", "sales_lake")

_SQL: Final = Path(__file__).with_name("answer.sql")
_COLUMNS: Final = (
    "product, since::TIMESTAMPTZ AS since, orders::BIGINT AS orders,"
    " revenue::DECIMAL(20,2) AS revenue"
)
_SHOWN: Final = 3


class Counts(msgspec.Struct, frozen=True):
    """What befell the records."""

    read: int
    on_time: int
    late: int
    broken: int


class Comparison(msgspec.Struct, frozen=True):
    """A sink beside the answer.

    Attributes:
        windows: Rows of the answer: products by ten seconds.
        orders: Of all these windows.
        missing: Rows that should be there, or should be there more often.
        surplus: Rows that should not be there, or not so often.
        lost: Orders that the sink's windows do not count and should.
        doubled: Orders that they count and should not, or count more than once.
        examples: A few of the rows, to show.
    """

    sink: str
    windows: int
    orders: int
    missing: int
    surplus: int
    lost: int
    doubled: int
    examples: tuple[str, ...]

    @property
    def is_equal(self) -> bool:
        """Row for row."""
        return not (self.missing or self.surplus or self.lost or self.doubled)


class Answer:
    """The tables of ``answer.sql`` over a copy of the topic."""

    def __init__(self, topic: Path) -> None:
        """Compute them."""
        self._duck = duckdb.connect(":memory:")
        self._duck.execute("SET TimeZone = 'UTC'")
        self._duck.execute("SET VARIABLE topic = ?", [str(topic)])
        self._duck.execute(_SQL.read_text("utf-8"))

    def counts(self) -> Counts:
        """What befell the records."""
        return Counts(*self._row("SELECT read, on_time, late, broken FROM counts"))

    def cents(self) -> int:
        """What the orders of all windows that are over cost together."""
        (cents,) = self._row("SELECT coalesce(sum(revenue) * 100, 0)::BIGINT FROM product_sales")
        return int(cents)

    def compare(self, output: Path, sink: str) -> Comparison:
        """A sink of the demo beside the answer."""
        return self.compare_rows(sink, _read(output, sink))

    def compare_rows(self, sink: str, rows: pa.Table) -> Comparison:
        """What a sink holds beside the answer, row for row, equal rows as often as they are there.

        Args:
            sink: Its name.
            rows: All of it: product, since, orders and revenue, of types that can be cast.
        """
        self._duck.register("raw", rows)
        self._duck.execute(f"CREATE OR REPLACE TEMP TABLE found AS SELECT {_COLUMNS} FROM raw")
        missing = self._rows("FROM product_sales EXCEPT ALL FROM found")
        surplus = self._rows("FROM found EXCEPT ALL FROM product_sales")
        windows, orders = self._row("SELECT count(*), coalesce(sum(orders), 0) FROM product_sales")
        lost, doubled = self._row(
            """
            SELECT coalesce(sum(greatest(wanted - counted, 0)), 0),
                   coalesce(sum(greatest(counted - wanted, 0)), 0)
            FROM (
                SELECT coalesce(product_sales.orders, 0) AS wanted,
                       coalesce(counted.orders, 0)       AS counted
                FROM product_sales FULL JOIN (
                    SELECT product, since, sum(orders) AS orders FROM found GROUP BY ALL
                ) AS counted USING (product, since)
            )
            """
        )
        examples = [
            *(f"missing: {_shown(row)}" for row in missing[:_SHOWN]),
            *(f"surplus: {_shown(row)}" for row in surplus[:_SHOWN]),
        ]
        return Comparison(
            sink=sink,
            windows=int(windows),
            orders=int(orders),
            missing=len(missing),
            surplus=len(surplus),
            lost=int(lost),
            doubled=int(doubled),
            examples=tuple(examples),
        )

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self._duck.execute(sql).fetchall()

    def _row(self, sql: str) -> tuple[Any, ...]:
        (row,) = self._rows(sql)
        return row


def rows_in_sqlite(output: Path) -> int:
    """How many rows the first sink holds; 0 before it has a table."""
    path = output / "shop.db"
    if not path.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            (rows,) = database.execute("SELECT count(*) FROM product_sales").fetchone()
    except sqlite3.OperationalError:
        # No table yet.
        return 0
    return int(rows)


def _read(output: Path, sink: str) -> pa.Table:
    """All rows of a sink, each value as the sink holds it."""
    if sink == "sales_lake":
        return DeltaTable(output / "product_sales").to_pyarrow_table()
    with closing(sqlite3.connect(output / "shop.db")) as database:
        found = database.execute("SELECT * FROM product_sales")
        names = [each[0] for each in found.description]
        columns = list(zip(*found.fetchall(), strict=True)) or [()] * len(names)
    return pa.table(dict(zip(names, columns, strict=True)))


def _shown(row: Iterable[object]) -> str:
    return ", ".join(str(value) for value in row)
