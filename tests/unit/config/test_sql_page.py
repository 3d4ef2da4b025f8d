"""What ``docs/sql.md`` says of SQL is what the code does with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from laminar_dagster.config.sql.page import page
from laminar_dagster.config.sql.refusal import Refusal
from laminar_dagster.config.sql.refusals import refusals
from laminar_dagster.config.sql.support import SUPPORTED, TABLES
from laminar_dagster.config.sql.supported import Supported
from tests.unit.config.folders import load, mistakes

PAGE = Path(__file__).parents[3] / "docs" / "sql.md"


def test_the_page_is_made_of_the_tables() -> None:
    assert PAGE.read_text() == page(), "python -m laminar_dagster.config.sql.page > docs/sql.md"


@pytest.mark.parametrize(
    "row", [each for rows in SUPPORTED.values() for each in rows], ids=lambda row: row.name
)
def test_an_example_of_what_is_supported_is_read(tmp_path: Path, row: Supported) -> None:
    model = load(tmp_path, {"tables.sql": TABLES, "models/example.sql": row.example})
    assert "example" in [view.name for view in model.views]


@pytest.mark.parametrize(
    "refused", [each for each in refusals() if each.example], ids=lambda each: each.name
)
def test_an_example_of_what_is_refused_is_refused_by_its_name(
    tmp_path: Path, refused: Refusal
) -> None:
    found = mistakes(tmp_path, {"tables.sql": TABLES, "models/example.sql": refused.example})
    told = [each for each in found if f": {refused.problem}" in each]
    assert len(told) == 1, found
    assert refused.instead in told[0]
