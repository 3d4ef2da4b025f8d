"""A small pipeline on files, and its answer computed without the engine."""

from __future__ import annotations

import json
import random
import sqlite3
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline

START = datetime(2026, 1, 1, tzinfo=UTC)
DELAY = timedelta(seconds=5)
SOURCES = """
CREATE SOURCE TABLE clicks (
  page STRING, amount DOUBLE, price DECIMAL(10, 2), n INT, at TIMESTAMP,
  WATERMARK FOR at AS at - INTERVAL '5' SECOND
) WITH (connector = 'file', path = 'input', format = 'ndjson', 'idle.timeout' = '1d');
"""
PER_MINUTE = """
SELECT page, window_start AS minute, COUNT(*) AS clicks, SUM(n) AS total, SUM(price) AS money,
       ROUND(AVG(amount), 6) AS mean, MIN(amount) AS least, MAX(n) AS most
FROM clicks WHERE n >= 0
GROUP BY TUMBLE(at, INTERVAL '1' MINUTE), page
HAVING COUNT(*) > 1
"""
LARGE = "SELECT upper(page) AS page, amount * 2 AS twice, at FROM clicks WHERE amount > 0.9"
SINKS = """
CREATE SINK table_sink FROM per_minute WITH (connector = 'sqlite', path = 'out.db', table = 'pm');
CREATE SINK lake FROM per_minute WITH (connector = 'delta', path = 'lake');
CREATE SINK big FROM large WITH (connector = 'sqlite', path = 'out.db', table = 'large');
"""


@dataclass
class Record:
    """A click, where it stands in its file."""

    page: str
    amount: float
    price: int
    n: int
    at: datetime

    def line(self) -> str:
        return json.dumps(
            {
                "page": self.page,
                "amount": self.amount,
                "price": self.price / 100,
                "n": self.n,
                "at": self.at.isoformat().replace("+00:00", "Z"),
            }
        )


@dataclass
class Project:
    """A project's folder, its input, and what must come of it."""

    root: Path
    files: dict[str, list[Record | str]] = field(default_factory=lambda: defaultdict(list))

    def write(self, *, config: str = "", sources: str = SOURCES, **models: str) -> None:
        """Lay the project out; ``models`` in place of the usual ones."""
        folder = self.root / "dbt_like_configs" / "clicks"
        (folder / "models").mkdir(parents=True, exist_ok=True)
        (self.root / "input").mkdir(exist_ok=True)
        (folder / "pipeline.yml").write_text(f"name: clicks\nstore: state\nbuckets: 4\n{config}")
        (folder / "sources.sql").write_text(sources)
        (folder / "sinks.sql").write_text(SINKS)
        for name, sql in {"per_minute": PER_MINUTE, "large": LARGE, **models}.items():
            (folder / "models" / f"{name}.sql").write_text(sql)

    def append(self, file: str, records: list[Record | str]) -> None:
        """More input."""
        self.files[file].extend(records)
        with (self.root / "input" / file).open("a") as out:
            for record in records:
                out.write((record.line() if isinstance(record, Record) else record) + "\n")

    def on_time(self, lateness: timedelta = timedelta(0)) -> list[Record]:
        """What is not late, or not too late: judged by the order within its own file alone."""
        found = []
        for records in self.files.values():
            newest: datetime | None = None
            for record in records:
                if isinstance(record, str):
                    continue
                if newest is None or record.at >= newest - DELAY - lateness:
                    found.append(record)
                newest = record.at if newest is None else max(newest, record.at)
        return found

    def watermark(self) -> datetime:
        marks = []
        for records in self.files.values():
            times = [each.at for each in records if isinstance(each, Record)]
            marks.append(max(times) - DELAY)
        return min(marks)

    def expected(self) -> dict[tuple[str, datetime], tuple[int, int, int, float, float, int]]:
        """The closed windows, by page and minute."""
        groups: dict[tuple[str, datetime], list[Record]] = defaultdict(list)
        for record in self.on_time():
            if record.n >= 0:
                minute = record.at.replace(second=0, microsecond=0)
                groups[record.page, minute].append(record)
        closed = self.watermark()
        return {
            key: (
                len(rows),
                sum(row.n for row in rows),
                sum(row.price for row in rows),
                round(sum(row.amount for row in rows) / len(rows), 6),
                min(row.amount for row in rows),
                max(row.n for row in rows),
            )
            for key, rows in groups.items()
            if len(rows) > 1 and key[1] + timedelta(minutes=1) <= closed
        }

    def expected_large(self) -> list[tuple[str, float]]:
        return sorted((r.page.upper(), r.amount * 2) for r in self.on_time() if r.amount > 0.9)

    def query(self, sql: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.root / "out.db")) as database:
            return database.execute(sql).fetchall()


def random_records(
    chance: random.Random, count: int, *, begin: float = 0, disorder: float = 8
) -> list[Record | str]:
    """Clicks over some minutes, a little out of order, some of it late, some of it garbage."""
    found: list[Record | str] = []
    for place in range(count):
        if chance.random() < 0.02:
            found.append(chance.choice(["", "nonsense", '{"at": 1', '{"page": "x"}', "[1]"]))
            continue
        seconds = begin + place * 0.5 - chance.random() * disorder
        at = START + timedelta(microseconds=round(seconds * 1e6))
        found.append(
            Record(
                page=f"p{chance.randint(0, 4)}",
                amount=chance.random(),
                price=chance.randint(0, 10_000),
                n=chance.randint(-2, 9),
                at=at,
            )
        )
    return found


def run_until_done(pipeline: Pipeline) -> list[CheckpointManifest]:
    """Epochs until one reads nothing."""
    found = []
    while True:
        report = EpochRunner(pipeline).run()
        manifest = pipeline.checkpoints.manifest(report.checkpoint_id)
        assert manifest
        found.append(manifest)
        if manifest.counts.read == 0:
            return found
