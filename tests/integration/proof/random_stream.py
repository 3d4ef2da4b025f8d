"""Random events, views of every kind over them, and the same views in DuckDB's SQL."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from hypothesis import strategies as st

from tests.integration.proof.answer import Answer, Rows
from tests.integration.proof.stream import Layout

DELAY: Final = 4_000_000
SOURCES: Final = """
CREATE SOURCE TABLE events (
  k STRING, i INT, d DOUBLE, m DECIMAL(12, 2), at TIMESTAMP,
  WATERMARK FOR at AS at - INTERVAL '4' SECOND
) WITH (connector = 'file', path = 'input/events', format = 'ndjson', 'idle.timeout' = '1d');
"""
MODELS: Final = {
    "clean": "SELECT k, i, d, m, at FROM events WHERE i IS NULL OR i > -50",
    "tumbled": """
SELECT k, window_start AS w, COUNT(*) AS c, COUNT(i) AS ci,
       SUM(i) AS si, MIN(i) AS li, MAX(i) AS hi, AVG(i) AS ai,
       SUM(d) AS sd, MIN(d) AS ld, MAX(d) AS hd, AVG(d) AS ad,
       SUM(m) AS sm, MIN(m) AS lm, MAX(m) AS hm, AVG(m) AS am
FROM clean GROUP BY TUMBLE(at, INTERVAL '10' SECOND), k
HAVING COUNT(*) > 1 OR MAX(i) > 0
""",
    "hopped": """
SELECT k, window_end AS w, COUNT(*) AS c, SUM(i) AS s, MIN(m) AS l, MAX(d) AS h
FROM events WHERE d IS NOT NULL
GROUP BY HOP(at, INTERVAL '5' SECOND, INTERVAL '15' SECOND), k
""",
    "mixed": """
SELECT k, CAST(i AS BIGINT) AS i, m, at FROM events WHERE i < 0
UNION ALL
SELECT concat('<', k, '>') AS k, CAST(i AS BIGINT) + 1 AS i, m, at FROM clean
""",
}
# The mean of such numbers has up to 16 digits, and SQLite has exact numbers for 15.
SINKS: Final = """
CREATE SINK tumbled_table FROM tumbled
  WITH (connector = 'sqlite', path = 'out.db', table = 'tumbled', decimals = 'text');
CREATE SINK hopped_table FROM hopped
  WITH (connector = 'sqlite', path = 'out.db', table = 'hopped');
CREATE SINK mixed_table FROM mixed WITH (connector = 'sqlite', path = 'out.db', table = 'mixed');
CREATE SINK tumbled_lake FROM tumbled WITH (connector = 'delta', path = 'tumbled_lake');
CREATE SINK mixed_lake FROM mixed WITH (connector = 'delta', path = 'mixed_lake');
"""
LAYOUT: Final = Layout(sources=SOURCES, models=MODELS, sinks=SINKS, buckets=3)

COLUMNS: Final = (
    "line ->> 'k' AS k, (line ->> 'i')::INTEGER AS i, (line ->> 'd')::DOUBLE AS d,"
    " (line ->> 'm')::DECIMAL(12, 2) AS m, (line ->> 'at')::TIMESTAMPTZ AS \"at\""
)
# Whole microseconds, so that no edge of a window is a matter of rounding; SQL's `%` keeps the sign.
_FLOOR: Final = 'epoch_us("at") - ((epoch_us("at") % {0}) + {0}) % {0}'
_MARK: Final = "(SELECT epoch_us(mark) FROM events_watermark)"
# Half up, away from zero, to the six digits of Spark's AVG of DECIMAL(12, 2).
_MEAN: Final = (
    "CASE WHEN count(m) > 0 THEN sign(sum(m)) * ((abs(sum(m * 100))::HUGEINT * 20000 + count(m))"
    " // (2 * count(m))) END"
)
TUMBLED: Final = f"""
SELECT k, make_timestamp(w), count(*), count(i),
       sum(i)::BIGINT, min(i), max(i), sum(i)::DOUBLE / nullif(count(i), 0),
       sum(d), min(d), max(d), sum(d) / nullif(count(d), 0),
       sum(m)::DECIMAL(22, 2), min(m), max(m), ({_MEAN})::BIGINT
FROM (SELECT *, {_FLOOR.format(10_000_000)} AS w FROM events WHERE i IS NULL OR i > -50)
WHERE w + 10000000 <= {_MARK}
GROUP BY k, w HAVING count(*) > 1 OR max(i) > 0
"""
HOPPED: Final = f"""
SELECT k, make_timestamp(w + 15000000), count(*), sum(i)::BIGINT, min(m), max(d)
FROM (
    SELECT *, {_FLOOR.format(5_000_000)} - 5000000 * back AS w
    FROM events, (SELECT unnest([0, 1, 2]) AS back) WHERE d IS NOT NULL
)
WHERE w + 15000000 <= {_MARK}
GROUP BY k, w
"""
MIXED: Final = """
SELECT k, i, m, "at" FROM events WHERE i < 0
UNION ALL
SELECT '<' || k || '>', i::BIGINT + 1, m, "at" FROM events WHERE i IS NULL OR i > -50
"""


@dataclass(frozen=True)
class Event:
    """A line of input."""

    k: str | None
    i: int | None
    d: float | None
    m: Decimal | None
    at: datetime
    ascii: bool

    def line(self) -> str:
        fields: dict[str, Any] = {"k": self.k, "i": self.i, "d": self.d, "at": self.at.isoformat()}
        text = json.dumps(fields, ensure_ascii=self.ascii)
        # By hand: json would make a float of it.
        return text if self.m is None else f'{text[:-1]}, "m": {self.m}}}'


@dataclass(frozen=True)
class Stream:
    """Two files, and two ways of cutting them into epochs.

    Attributes:
        files: Lines; the first of each is a record.
        growth: How many lines of each file are there before each epoch but the last.
        limits: The most records of an epoch, for the growing and for the whole input.
    """

    files: tuple[tuple[str, ...], tuple[str, ...]]
    growth: tuple[tuple[int, int], ...]
    limits: tuple[int, int]


# Line ends to Python and not to JSON: see ``test_a_key_with_a_line_break``.
LINE_BREAKS: Final = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_KEYS = st.one_of(
    st.none(),
    st.sampled_from(["a", "b", "", " ", "é", "e\u0301", "日本", "🜚", '"\\', "NULL"]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4),
)
# Around the beginning of 1970, where whole numbers change their sign, and around now.
_BASES = st.sampled_from(
    [datetime(1969, 12, 31, 23, 59, 40, tzinfo=UTC), datetime(2026, 2, 28, 23, 59, 40, tzinfo=UTC)]
)
_GARBAGE = st.sampled_from(["", "   ", "nonsense", "[]", '{"k": "a"}', '{"at": null, "i": 1}', "{"])


@st.composite
def _events(draw: st.DrawFn, base: datetime, place: int) -> str:
    """Time goes on by a second or so, on edges of windows and beside them, and back a little."""
    second = place + draw(st.integers(-7, 1))
    micros = draw(st.sampled_from([0, 0, 1, -1, 500_000]))
    return Event(
        k=draw(_KEYS),
        i=draw(st.none() | st.integers(-60, 60) | st.sampled_from([2**31 - 1, -(2**31)])),
        d=draw(st.none() | st.integers(-6400, 6400).map(lambda n: n / 64)),
        m=draw(st.none() | st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n) / 100)),
        at=base + timedelta(seconds=second, microseconds=micros),
        ascii=draw(st.booleans()),
    ).line()


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Two files of up to forty lines."""
    base = draw(_BASES)
    files = []
    for _ in range(2):
        count = draw(st.integers(15, 40))
        rest = [
            draw(_GARBAGE if draw(st.integers(0, 15)) == 0 else _events(base, place))
            for place in range(1, count)
        ]
        files.append((draw(_events(base, 0)), *rest))
    growth = []
    for _ in range(draw(st.integers(0, 2))):
        one, two = (draw(st.integers(1, len(lines))) for lines in files)
        growth.append((one, two))
    growth.sort()
    limits = (draw(st.integers(15, 60)), draw(st.sampled_from([25, 1000])))
    return Stream((files[0], files[1]), tuple(growth), limits)


def expected(root: Path) -> dict[str, Rows]:
    """DuckDB's answer, by view."""
    answer = Answer()
    answer.add("events", root / "input" / "events", COLUMNS, DELAY)
    return {
        "tumbled": answer.rows(TUMBLED),
        "hopped": answer.rows(HOPPED),
        "mixed": answer.rows(MIXED),
    }
