"""The pipeline that the proofs run: two sources, a window and a union, SQLite and Delta out."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

NAME: Final = "shop"
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
SOURCES: Final = """
CREATE SOURCE TABLE clicks (
  page STRING, amount DOUBLE, price DECIMAL(10, 2), n INT, at TIMESTAMP,
  WATERMARK FOR at AS at - INTERVAL '5' SECOND
) WITH (connector = 'file', path = 'input/clicks', format = 'ndjson', 'idle.timeout' = '1d');
CREATE SOURCE TABLE refunds (
  page STRING, amount DOUBLE, at TIMESTAMP,
  WATERMARK FOR at AS at - INTERVAL '5' SECOND
) WITH (connector = 'file', path = 'input/refunds', format = 'ndjson', 'idle.timeout' = '1d');
"""
MODELS: Final = {
    "per_minute": """
SELECT page, window_start AS minute, COUNT(*) AS clicks, SUM(n) AS total, SUM(price) AS money,
       AVG(amount) AS mean, MIN(amount) AS least, MAX(n) AS most
FROM clicks WHERE n >= 0
GROUP BY TUMBLE(at, INTERVAL '1' MINUTE), page
""",
    "moves": """
SELECT page, amount, at FROM clicks WHERE n >= 0
UNION ALL
SELECT page, 0 - amount AS amount, at FROM refunds
""",
}
SINKS: Final = """
CREATE SINK minutes FROM per_minute
  WITH (connector = 'sqlite', path = 'out.db', table = 'per_minute');
CREATE SINK lake FROM moves WITH (connector = 'delta', path = 'lake');
"""


@dataclass(frozen=True)
class Layout:
    """A pipeline as its author writes it."""

    store: str = "state"
    max_records: int = 1_000_000
    sources: str = SOURCES
    models: Mapping[str, str] = field(default_factory=lambda: MODELS)
    sinks: str = SINKS
    contracts: Mapping[str, str] = field(default_factory=dict)
    buckets: int = 4


def write_pipeline(root: Path, layout: Layout) -> None:
    """Lay a project out; what was there is replaced."""
    folder = root / "dbt_like_configs" / NAME
    for name in ("models", "contracts"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "pipeline.yml").write_text(
        f"name: {NAME}\nstore: {json.dumps(layout.store)}\nbuckets: {layout.buckets}\n"
        f"epoch:\n  max_records: {layout.max_records}\nretention:\n  checkpoints: 1000\n"
    )
    (folder / "sources.sql").write_text(layout.sources)
    (folder / "sinks.sql").write_text(layout.sinks)
    for name, sql in layout.models.items():
        (folder / "models" / f"{name}.sql").write_text(sql)
    for name, contract in layout.contracts.items():
        (folder / "contracts" / f"{name}.yml").write_text(contract)


def append_lines(file: Path, lines: Iterable[str]) -> None:
    """More input."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as out:
        out.writelines(f"{line}\n" for line in lines)


def write_input(root: Path, clicks: int, seed: int = 7, *, begin: float = 0) -> None:
    """Two files of clicks and one of refunds, a third as many: a little late, a little garbage."""
    chance = random.Random(seed)
    for name in ("a", "b"):
        lines = random_lines(chance, clicks // 2, begin=begin)
        append_lines(root / "input" / "clicks" / f"{name}.ndjson", lines)
    lines = random_lines(chance, clicks // 3, begin=begin)
    append_lines(root / "input" / "refunds" / "r.ndjson", lines)


def random_lines(chance: random.Random, count: int, *, begin: float = 0) -> list[str]:
    """Records over some minutes; amounts whose sums are exact in any order."""
    found = []
    for place in range(count):
        if chance.random() < 0.03:
            found.append(chance.choice(["", "nonsense", '{"page": "x"}', "[1]"]))
            continue
        seconds = begin + place * 2 - chance.random() * 9
        at = START + timedelta(microseconds=round(seconds * 1e6))
        found.append(
            json.dumps(
                {
                    "page": f"p{chance.randint(0, 5)}",
                    "amount": chance.randint(0, 4096) / 64,
                    "price": chance.randint(0, 10_000) / 100,
                    "n": chance.randint(-2, 9),
                    "at": at.isoformat().replace("+00:00", "Z"),
                }
            )
        )
    return found
