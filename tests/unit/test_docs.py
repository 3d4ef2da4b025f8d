"""What the documentation shows runs as it stands."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from laminar_dagster.config.contract_checks import CHECKS, REFUSED
from laminar_dagster.config.contract_rules import ColumnRule
from laminar_dagster.config.contract_types import read_dtype
from laminar_dagster.core.ids import EpochNumber, PipelineName
from laminar_dagster.sinks.sqlite.sink import SqliteSink
from tests.unit.sinks.staging import SINK, staged
from tests.unit.spark.staged_contracts import read_rules

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


def test_the_reader_in_the_format_description_reads_a_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "docs" / "checkpoint-format.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    golden = (ROOT / "tests" / "golden" / "v1" / "manifest_small.json").read_bytes()
    (tmp_path / "manifest.json").write_bytes(golden)
    monkeypatch.chdir(tmp_path)
    found: dict[str, object] = {}
    exec(compile(code, "checkpoint-format.md", "exec"), found)
    manifest = found["manifest"]
    assert isinstance(manifest, dict)
    assert manifest["version"] == 1
    damaged = golden.replace(b'"version":1', b'"version":2', 1)
    (tmp_path / "manifest.json").write_bytes(damaged)
    with pytest.raises(AssertionError):
        exec(compile(code, "checkpoint-format.md", "exec"), {})


def test_the_models_of_the_page_are_those_of_the_example_and_pass_its_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = (ROOT / "docs" / "python-models.md").read_text()
    steps, parts, carts, test = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    models = ROOT / "dbt_like_configs" / "visitors" / "models"
    assert steps == (models / "steps.py").read_text()
    assert parts == (models / "path_parts.py").read_text()
    assert carts == (models / "left_carts.py").read_text()
    monkeypatch.chdir(models.parent)
    found: dict[str, Any] = {}
    exec(compile(test, "python-models.md", "exec"), found)
    found["test_a_cart_is_left_after_two_minutes"]()


def test_every_type_and_check_of_a_contract_is_on_its_page(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "contracts.md").read_text()
    types = re.findall(r"^\| `([A-Z][^|]*)` \| (`.*`) \|$", text, re.MULTILINE)
    assert len(types) == 16
    for sql, spellings in types:
        (kind,) = read_dtype("REAL" if sql == "FLOAT" else "int32" if sql == "INT" else sql)[:1]
        for spelling in re.findall(r"`([^`]*)`", spellings):
            rule = ColumnRule("v", spelling, read_dtype(spelling), nullable=True, line=1)
            assert rule.allows(kind), (sql, spelling)
    named = set(re.findall(r"`(\w+)`", text))
    assert set(CHECKS) <= named
    assert set(REFUSED) & named
    (example,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    columns = ("page", "minute", "clicks", "revenue")
    assert len(read_rules(tmp_path, example, columns).checks) == 3


def test_the_queries_of_the_page_on_sqlite_give_what_it_says(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "sinks-sqlite.md").read_text()
    rows = re.findall(r"^\| `(/\S*)` \| (\S+) \| (\d) \| (\S+) \| (.*) \|$", text, re.MULTILINE)
    prices = [re.search(r"[\d.]+", parts) for *_, parts in rows]
    view = pa.table(
        {
            "page": [page for page, *_ in rows],
            "minute": pa.array(
                [datetime.fromisoformat(f"2026-01-01T{minute}Z") for _, minute, *_ in rows],
                pa.timestamp("us", "UTC"),
            ),
            "views": [int(views) for _, _, views, *_ in rows],
            "revenue": pa.array([Decimal(row[3]) for row in rows], pa.decimal128(20, 2)),
            "parts": pa.array(
                [{"price": Decimal(price[0])} if price else None for price in prices],
                pa.struct([("price", pa.decimal128(10, 2))]),
            ),
        }
    )
    path = tmp_path / "clicks.db"
    sink = SqliteSink(
        SINK, PipelineName("p"), path, "page_minutes", mode="upsert", key=("page", "minute")
    )
    sink.commit(EpochNumber(1), staged(view))
    (reading,) = re.findall(r"## Reading.*?```sql\n(.*?)```", text, re.DOTALL)
    queries = re.findall(r"^(SELECT.*?;) +-- (\S+)$", reading, re.MULTILINE | re.DOTALL)
    assert len(queries) == reading.count(";") == 7
    with closing(sqlite3.connect(path)) as database:
        for query, answer in queries:
            assert str(database.execute(query).fetchone()[0]) == answer, query
        # The page says what becomes of the JSON: that it is not a number is why it is cast.
        texts = database.execute("SELECT parts ->> 'price' FROM page_minutes ORDER BY 1").fetchall()
    assert texts == [(None,), ("12.00",), ("9.50",)]


def pages() -> list[Path]:
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(found)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
