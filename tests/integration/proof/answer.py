"""What must come of the input, computed by DuckDB over all of it at once.

Lateness (ADR 8) is a window function over the lines of a file, in their order. Nothing here knows
of epochs, and nothing is shared with the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb

Rows = Counter[tuple[Any, ...]]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_LINES = """
CREATE TEMP TABLE {name}_lines AS
SELECT filename, place, line FROM (
    SELECT filename,
           unnest(string_split(content, chr(10))) AS line,
           generate_subscripts(string_split(content, chr(10)), 1) AS place
    FROM read_text({path})
) WHERE trim(line) <> ''
"""
# A line that is no record is dead: it is no object, or it has no event time.
_RECORDS = """
CREATE TEMP TABLE {name}_records AS
SELECT filename, place, {columns}
FROM {name}_lines
WHERE json_valid(line) AND json_type(line) = 'OBJECT' AND (line ->> 'at') IS NOT NULL
"""
_JUDGED = """
CREATE TEMP TABLE {name}_judged AS
SELECT *, coalesce("at" < max("at") OVER (
    PARTITION BY filename ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
) - INTERVAL '{delay} microseconds', false) AS is_late
FROM {name}_records
"""
# A file without an event yet holds the source back.
_WATERMARK = """
CREATE TEMP TABLE {name}_watermark AS
SELECT CASE WHEN count(*) = count(newest)
       THEN min(newest) - INTERVAL '{delay} microseconds' END AS mark
FROM (
    SELECT filename, max("at") AS newest
    FROM read_text({path}) LEFT JOIN {name}_records USING (filename) GROUP BY filename
)
"""


@dataclass(frozen=True)
class Accounting:
    """How many records of a source there are, and what befell them."""

    read: int
    dead: int
    late: int


class Answer:
    """Tables over the input: for each source ``NAME`` (on time), ``NAME_watermark``."""

    def __init__(self) -> None:
        self._duck = duckdb.connect(":memory:")
        self._duck.execute("SET TimeZone = 'UTC'")
        self.sources: list[str] = []

    def add(self, name: str, folder: Path, columns: str, delay: int = 5_000_000) -> None:
        """Read a source's files; ``columns`` are made of the JSON text ``line``."""
        names = {"name": name, "delay": delay, "columns": columns}
        path = "'" + str(folder / "*").replace("'", "''") + "'"
        for template in (_LINES, _RECORDS, _JUDGED, _WATERMARK):
            self._duck.execute(template.format(path=path, **names))
        self._duck.execute(f"CREATE VIEW {name} AS SELECT * FROM {name}_judged WHERE NOT is_late")
        self.sources.append(name)

    def rows(self, sql: str) -> Rows:
        """The rows of a query, each as often as it is there."""
        return counted(self._duck.execute(sql).fetchall())

    def accounting(self) -> Accounting:
        """Over all sources."""
        lines = sum(self._count(f"{name}_lines") for name in self.sources)
        records = sum(self._count(f"{name}_records") for name in self.sources)
        late = sum(self._count(f"{name}_judged WHERE is_late") for name in self.sources)
        return Accounting(lines, lines - records, late)

    def _count(self, table: str) -> int:
        found = self._duck.execute(f"SELECT count(*) FROM {table}").fetchone()
        assert found
        return int(found[0])


def counted(rows: Iterable[Iterable[Any]]) -> Rows:
    """Rows as a multiset, their values spelled alike wherever they come from."""
    return Counter(tuple(_plain(value) for value in row) for row in rows)


def moment(text: str) -> datetime:
    """A timestamp as SQLite holds it."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return ("time", (aware - _EPOCH) // timedelta(microseconds=1))
    if isinstance(value, Decimal):
        return ("decimal", str(value.normalize() + 0))
    if isinstance(value, float):
        return ("float", repr(value))
    return value


TIMESTAMP = "(line ->> 'at')::TIMESTAMPTZ AS \"at\""
CLICKS = (
    "line ->> 'page' AS page, (line ->> 'amount')::DOUBLE AS amount,"
    " (line ->> 'price')::DECIMAL(10, 2) AS price, (line ->> 'n')::INTEGER AS n, " + TIMESTAMP
)
REFUNDS = f"line ->> 'page' AS page, (line ->> 'amount')::DOUBLE AS amount, {TIMESTAMP}"
PER_MINUTE = """
SELECT page, minute, count(*), sum(n)::BIGINT, sum(price)::DECIMAL(20, 2),
       sum(amount) / count(amount), min(amount), max(n)
FROM (SELECT *, time_bucket(INTERVAL '1 minute', "at") AS minute FROM clicks WHERE n >= 0)
WHERE minute + INTERVAL '1 minute' <= (SELECT mark FROM clicks_watermark)
GROUP BY page, minute
"""
MOVES = """
SELECT page, amount, "at" FROM clicks WHERE n >= 0
UNION ALL SELECT page, 0 - amount, "at" FROM refunds
"""


def answer_of(root: Path) -> Answer:
    """The answer for the input of ``stream``'s own pipeline."""
    answer = Answer()
    answer.add("clicks", root / "input" / "clicks", CLICKS)
    answer.add("refunds", root / "input" / "refunds", REFUNDS)
    return answer
