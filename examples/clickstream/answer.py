"""What must come of the input, and whether the sinks hold it: DuckDB over all files at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from laminar_dagster.core.manifest import RecordCounts

_SQL: Final = Path(__file__).with_name("answer.sql")
_SHOWN: Final = 3

# The sinks, by name: the table of `answer.sql` that each must equal, and how to read its columns.
_MINUTES: Final = (
    "page, minute::TIMESTAMPTZ AS minute, views::BIGINT AS views,"
    " revenue::DECIMAL(20,2) AS revenue, mean_load_ms::DOUBLE AS mean_load_ms,"
    " max_load_ms::INTEGER AS max_load_ms"
)
_PURCHASES: Final = (
    "user_id::BIGINT AS user_id, page, amount::DECIMAL(10,2) AS amount, ts::TIMESTAMPTZ AS ts"
)
SINKS: Final = {
    "minutes": ("page_minutes", _MINUTES),
    "minutes_lake": ("page_minutes", _MINUTES),
    "purchases": ("purchases", _PURCHASES),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """A sink beside the answer.

    Attributes:
        missing: Rows that should be there, or should be there more often.
        surplus: Rows that should not be there, or not so often.
        examples: A few of them, to show.
        of_epoch: Rows of the epoch that was cut, if that was asked for.
        of_epoch_wrong: Those of them that the sink does not hold as often as the answer does.
    """

    sink: str
    rows: int
    missing: int
    surplus: int
    examples: tuple[str, ...]
    of_epoch: int = 0
    of_epoch_wrong: int = 0

    @property
    def is_equal(self) -> bool:
        """Row for row."""
        return not (self.missing or self.surplus or self.of_epoch_wrong)


class Answer:
    """The tables of ``answer.sql`` over the files of a folder."""

    def __init__(self, folder: Path) -> None:
        """Compute them."""
        self._duck = duckdb.connect(":memory:")
        self._duck.execute("SET TimeZone = 'UTC'")
        self._duck.execute("SET VARIABLE input = ?", [f"{folder}/*.ndjson"])
        self._duck.execute(_SQL.read_text("utf-8"))

    def counts(self) -> RecordCounts:
        """What befell the events."""
        row = self._duck.execute(
            "SELECT read, processed, filtered, late, dead_lettered FROM counts"
        ).fetchone()
        assert row
        names = ("read", "processed", "filtered", "late", "dead_lettered")
        return RecordCounts(**dict(zip(names, row, strict=True)))

    def compare(self, output: Path, sink: str, cut: pa.Table | None = None) -> Comparison:
        """A sink beside the answer, row for row, equal rows as often as they are there.

        Args:
            output: The folder of the sinks.
            sink: Its name.
            cut: Rows of an epoch, to look at once more by themselves.
        """
        expected, columns = SINKS[sink]
        self._duck.register("raw", _read(output, sink))
        self._duck.execute(f"CREATE OR REPLACE TEMP TABLE found AS SELECT {columns} FROM raw")
        missing = self._rows(f"FROM {expected} EXCEPT ALL FROM found")
        surplus = self._rows(f"FROM found EXCEPT ALL FROM {expected}")
        examples = [
            *(f"missing: {_shown(row)}" for row in missing[:_SHOWN]),
            *(f"surplus: {_shown(row)}" for row in surplus[:_SHOWN]),
        ]
        of_epoch = wrong = 0
        if cut is not None and cut.num_rows:
            of_epoch = cut.num_rows
            self._duck.register("staged", cut)
            self._duck.execute(f"CREATE OR REPLACE TEMP TABLE cut AS SELECT {columns} FROM staged")
            wrong = len(
                self._rows(
                    f"""
                    SELECT cut FROM (SELECT DISTINCT cut FROM cut)
                    WHERE (SELECT count(*) FROM found WHERE found = cut)
                       <> (SELECT count(*) FROM {expected} WHERE {expected} = cut)
                    """
                )
            )
        rows = len(self._rows("SELECT 1 FROM found"))
        return Comparison(sink, rows, len(missing), len(surplus), tuple(examples), of_epoch, wrong)

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self._duck.execute(sql).fetchall()


def _read(output: Path, sink: str) -> pa.Table:
    """All rows of a sink, each value as the sink holds it."""
    if sink == "minutes_lake":
        return DeltaTable(output / "page_minutes").to_pyarrow_table()
    table = SINKS[sink][0]
    with closing(sqlite3.connect(output / "clicks.db")) as database:
        found = database.execute(f"SELECT * FROM {table}")
        names = [each[0] for each in found.description]
        columns = list(zip(*found.fetchall(), strict=True)) or [()] * len(names)
    return pa.table(dict(zip(names, columns, strict=True)))


def _shown(row: Iterable[object]) -> str:
    return ", ".join(str(value) for value in row)
