"""Pipelines of random views over random rows, in SQL that DuckDB answers too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

import duckdb

SOURCES: Final = """
CREATE SOURCE TABLE bids (
    auction BIGINT, bidder BIGINT, channel STRING, day DATE, price INT, hot BOOLEAN,
    ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH (connector = 'file', path = 'bids');
CREATE SOURCE TABLE users (id BIGINT, name STRING, level INT, PRIMARY KEY (id))
WITH (connector = 'captured', table = 'users');
CREATE SOURCE TABLE shares (owner BIGINT, firm STRING, n INT, PRIMARY KEY (owner, firm))
WITH (connector = 'captured', table = 'shares');
CREATE REFERENCE TABLE pages (page STRING, rank_of INT, PRIMARY KEY (page))
WITH (connector = 'file', path = 'p', 'refresh.interval' = 'never');
"""
_TABLES: Final = {
    "bids": {
        "auction": "BIGINT",
        "bidder": "BIGINT",
        "channel": "VARCHAR",
        "day": "DATE",
        "price": "INT",
        "hot": "BOOLEAN",
        "ts": "TIMESTAMP",
    },
    "users": {"id": "BIGINT", "name": "VARCHAR", "level": "INT"},
    "shares": {"owner": "BIGINT", "firm": "VARCHAR", "n": "INT"},
    "pages": {"page": "VARCHAR", "rank_of": "INT"},
}
_KEYS: Final = {"users": ("id",), "shares": ("owner", "firm"), "pages": ("page",)}
_VALUES: Final = {
    "BIGINT": ("0", "1", "2", "3"),
    "INT": ("0", "1", "2"),
    "VARCHAR": ("'a'", "'b'", "'c'", "'1'", "'01'", "'2'", "'3'"),
    "DATE": tuple(f"DATE '2026-01-0{day}'" for day in (1, 2, 3, 4)),
    "BOOLEAN": ("true", "false"),
    "TIMESTAMP": tuple(
        f"TIMESTAMP '2026-01-01 00:0{at}'" for at in ("0:01", "0:31", "1:02", "2:03")
    ),
}
# Of the columns of a key, so that there are some rows.
_OF_KEYS: Final = {"BIGINT": tuple(map(str, range(10))), "VARCHAR": _VALUES["VARCHAR"]}
_FOREVER: Final = " EMIT CHANGES WITH (state.ttl = 'unbounded')"
_WHOLE: Final = ("BIGINT", "INT")


@dataclass
class View:
    """A table or view.

    Attributes:
        columns: Types as DuckDB calls them, by name.
        changes: Whether rows are taken back, so that a projection has to name ``_weight``.
        sql: As a pipeline has it.
        in_duckdb: As DuckDB has it.
    """

    name: str
    columns: dict[str, str]
    changes: bool = False
    sql: str = ""
    in_duckdb: str = ""


@dataclass
class Views:
    """Makes views, each of those before it."""

    chance: Random
    known: list[View] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with the sources."""
        for name in ("bids", "users", "shares"):
            self.known.append(View(name, {**_TABLES[name]}, changes=name != "bids"))

    @property
    def made(self) -> list[View]:
        """Without the sources."""
        return self.known[3:]

    def make(self) -> View:
        """A view that is not added yet: it may not be allowed."""
        name = f"v{len(self.known)}"
        kinds = (self._select, self._group, self._ranked, self._join, self._distinct, self._window)
        more = (self._group, self._join, self._union, self._lookup)
        return self.chance.choice((*kinds, *more))(name)

    def _pick(self, columns: Sequence[str], most: int = 3) -> list[str]:
        return self.chance.sample(columns, self.chance.randint(1, min(most, len(columns))))

    def _input(self) -> View:
        return self.chance.choice((*self.known, *self.made))

    def _condition(self, columns: dict[str, str]) -> str:
        """Of some rows; empty of all."""
        if self.chance.random() < 0.4:
            return ""
        name = self.chance.choice([*columns])
        kind = columns[name]
        other = [each for each in columns if columns[each] == kind and each != name]
        value = self.chance.choice(_VALUES[kind])
        if other and self.chance.random() < 0.4:
            one = f"{name} = {self.chance.choice(other)}"
        elif kind == "BOOLEAN":
            shapes = "{0}|NOT {0}|{0} = {1}|{0} <> {1}|{0} IS TRUE|{0} IS NOT TRUE|{0} >= {1}"
            one = self.chance.choice(f"{shapes}|{{0}} IS DISTINCT FROM {{1}}".split("|"))
        else:
            shapes = "{0} = {1}|{0} = {1}|{0} <> {1}|{0} >= {1}|{0} IS NULL|{0} IS NOT NULL"
            one = self.chance.choice(f"{shapes}|{{0}} IN ({{1}})|NOT {{0}} = {{1}}".split("|"))
        one = one.format(name, value)
        if self.chance.random() < 0.3:
            one += self.chance.choice((" AND ", " OR ")) + (self._condition(columns) or "true")
        return one

    def _where(self, columns: dict[str, str]) -> str:
        condition = self._condition(columns)
        return f" WHERE {condition}" if condition else ""

    def _expression(self, columns: dict[str, str], prefix: str = "") -> tuple[str, str]:
        """A column, or what is computed of one or two; and its type."""
        name = self.chance.choice([*columns])
        kind, text = columns[name], prefix + name
        if self.chance.random() < 0.6:
            return text, kind
        if kind in _WHOLE:
            choices = [(f"CAST({text} AS BIGINT)", "BIGINT"), (f"{text} % 2", kind)]
            choices += [(f"CAST({text} AS STRING)", "VARCHAR"), ("7", "INT")]
            return self.chance.choice(choices)
        if kind == "VARCHAR":
            return self.chance.choice([(f"upper({text})", kind), ("'x'", kind)])
        if kind == "BOOLEAN":
            return f"NOT {text}", kind
        return f"CAST({text} AS DATE)", "DATE"

    def _shown(self, columns: dict[str, str], most: int = 4) -> tuple[list[str], dict[str, str]]:
        shown, types = [], {}
        for number in range(self.chance.randint(1, most)):
            text, types[f"c{number}"] = self._expression(columns)
            shown.append(f"{text} AS c{number}")
        return shown, types

    def _select(self, name: str) -> View:
        below = self._input()
        shown, types = self._shown(below.columns)
        rest = f"FROM {below.name}{self._where(below.columns)}"
        weight = ", _weight" if below.changes else ""
        same = f"SELECT {', '.join(shown)} {rest}"
        return View(name, types, below.changes, f"SELECT {', '.join(shown)}{weight} {rest}", same)

    def _distinct(self, name: str) -> View:
        below = self._input()
        shown, types = self._shown(below.columns)
        sql = f"SELECT DISTINCT {', '.join(shown)} FROM {below.name}{self._where(below.columns)}"
        return View(name, types, True, sql + _FOREVER, sql)

    def _group(self, name: str) -> View:
        below = self._input()
        keys = [self._expression(below.columns) for _ in range(self.chance.randint(1, 3))]
        keys = [*dict.fromkeys(keys)]
        texts = [text for text, _ in keys]
        if any(text in ("7", "'x'") for text in texts):
            texts = [*below.columns][:2]
            keys = [(each, below.columns[each]) for each in texts]
        put_out = self.chance.sample(keys, self.chance.randint(1, len(keys)))
        types = {f"c{number}": kind for number, (_, kind) in enumerate(put_out)}
        shown = [f"{text} AS c{number}" for number, (text, _) in enumerate(put_out)]
        shown.append("COUNT(*) AS n")
        types["n"] = "BIGINT"
        largest = self.chance.choice([*below.columns])
        if below.columns[largest] != "BOOLEAN":
            shown.append(f"MAX({largest}) AS most")
            types["most"] = below.columns[largest]
        sql = f"SELECT {', '.join(shown)} FROM {below.name}{self._where(below.columns)}"
        sql += f" GROUP BY {', '.join(texts)}"
        if self.chance.random() < 0.2:
            sql += " HAVING COUNT(*) = 1"
        return View(name, types, True, sql + _FOREVER, sql)

    def _ranked(self, name: str) -> View:
        below = self._input()
        keys, order = self._pick([*below.columns], 2), self._pick([*below.columns], 1)
        shown, limit = self._pick([*below.columns]), self.chance.choice((1, 1, 2, 3))
        types = {each: below.columns[each] for each in shown}
        if "place" in below.columns:
            return self._select(name)
        place = ""
        if self.chance.random() < 0.7:
            place, types["place"] = ", place", "INT"
        direction = self.chance.choice(("", " DESC"))
        sql = (
            f"SELECT {', '.join(shown)}{place} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY"
            f" {', '.join(keys)} ORDER BY {', '.join(order)}{direction}) AS place"
            f" FROM {below.name}{self._where(below.columns)}) WHERE place <= {limit}"
        )
        return View(name, types, True, sql + _FOREVER, sql)

    def _join(self, name: str) -> View:
        left, right = self._input(), self._input()
        pairs = [
            (one, other)
            for one in left.columns
            for other in right.columns
            if left.columns[one] == right.columns[other] != "BOOLEAN"
        ]
        if not pairs:
            return self._select(name)
        chosen = self.chance.sample(pairs, self.chance.randint(1, min(3, len(pairs))))
        kind = self.chance.choice(("", "", "LEFT ", "SEMI ", "ANTI ", "FULL "))
        shown, types = [], {}
        for number in range(self.chance.randint(1, 4)):
            side, table = self.chance.choice((("a", left), ("b", right)))
            if kind in ("SEMI ", "ANTI "):
                side, table = "a", left
            text, types[f"c{number}"] = self._expression(table.columns, f"{side}.")
            shown.append(f"{text} AS c{number}")
        on = " AND ".join(f"a.{one} = b.{other}" for one, other in chosen)
        sql = f"SELECT {', '.join(shown)} FROM {left.name} a {kind}JOIN {right.name} b ON {on}"
        return View(name, types, True, sql + _FOREVER, sql)

    def _window(self, name: str) -> View:
        keys = self._pick(["auction", "channel", "day", "ts", "hot"], 2)
        put_out = self._pick(keys, 2)
        types = {each: _TABLES["bids"][each] for each in put_out}
        where = self._where(_TABLES["bids"])
        edges = self._pick(["window_start AS since", "window_end AS until"], 2)
        types |= {each.split()[-1]: "TIMESTAMP" for each in edges} | {"n": "BIGINT"}
        shown = ", ".join([*put_out, *edges, "COUNT(*) AS n"])
        slides = self.chance.random() < 0.5
        by = (
            "HOP(ts, INTERVAL '30' SECOND, INTERVAL '1' MINUTE)"
            if slides
            else ("TUMBLE(ts, INTERVAL '1' MINUTE)")
        )
        sql = f"SELECT {shown} FROM bids{where} GROUP BY {by}, {', '.join(keys)}"
        step = 30 if slides else 60
        starts = (0, 30) if slides else (0,)
        spread = ", ".join(str(each) for each in starts)
        same = (
            f"SELECT {shown} FROM (SELECT *, window_start + INTERVAL 60 SECOND AS window_end FROM"
            f" (SELECT *, time_bucket(INTERVAL {step} SECOND, ts) - unnest([{spread}]) * INTERVAL 1"
            f" SECOND AS window_start FROM bids{where} ) WHERE ts IS NOT NULL)"
            f" GROUP BY window_start, window_end, {', '.join(keys)}"
        )
        return View(name, types, False, sql, same)

    def _union(self, name: str) -> View:
        below = self._input()
        shown, types = self._shown(below.columns)
        weight = ", _weight" if below.changes else ""
        rests = [f"FROM {below.name}{self._where(below.columns)}" for _ in range(2)]
        sql = " UNION ALL ".join(f"SELECT {', '.join(shown)}{weight} {each}" for each in rests)
        same = " UNION ALL ".join(f"SELECT {', '.join(shown)} {each}" for each in rests)
        return View(name, types, below.changes, sql, same)

    def _lookup(self, name: str) -> View:
        below = self._input()
        texts = [each for each in below.columns if below.columns[each] == "VARCHAR"]
        if not texts:
            return self._select(name)
        kind, by = self.chance.choice(("", "LEFT ")), self.chance.choice(texts)
        mine = self._pick([*below.columns])
        types = {each: below.columns[each] for each in mine} | {"of_page": "INT", "one": "INT"}
        shown = ", ".join(f"b.{each}" for each in mine)
        more = "p.rank_of AS of_page, COALESCE(p.rank_of, 9) AS one"
        rest = f"FROM {below.name} b {kind}JOIN pages p ON b.{by} = p.page"
        weight = ", b._weight" if below.changes else ""
        same = f"SELECT {shown}, {more} {rest}"
        return View(name, types, below.changes, f"SELECT {shown}, {more}{weight} {rest}", same)


def fill(database: duckdb.DuckDBPyConnection, chance: Random, most: int) -> None:
    """Put random rows into the tables, of which no two have one key."""
    for table, columns in _TABLES.items():
        shown = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        database.execute(f"CREATE OR REPLACE TABLE {table} ({shown})")
        key, seen = _KEYS.get(table, ()), set()
        rows = []
        for _ in range(chance.randint(most // 2, most)):
            row = {
                name: "NULL"
                if name not in key and chance.random() < 0.15
                else chance.choice((_OF_KEYS if name in key else _VALUES)[kind])
                for name, kind in columns.items()
            }
            values = tuple(row[each] for each in key)
            if not key or values not in seen:
                seen.add(values)
                rows.append(f"({', '.join(row.values())})")
        if rows:
            database.execute(f"INSERT INTO {table} VALUES {', '.join(rows)}")


def repeats(database: duckdb.DuckDBPyConnection, view: str, key: Sequence[str]) -> tuple[int, int]:
    """How many rows have no null in some columns, and the most of them that are alike in these."""
    listed = ", ".join(key)
    there = " AND ".join(f"{each} IS NOT NULL" for each in key)
    alike = f"SELECT COUNT(*) AS n FROM {view} WHERE {there} GROUP BY {listed}"
    found = database.execute(f"SELECT COALESCE(SUM(n), 0), COALESCE(MAX(n), 0) FROM ({alike})")
    rows, most = found.fetchall()[0]
    return int(rows), int(most)
