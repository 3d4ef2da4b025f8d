"""No key is taken for proven, or refused, that is not: random views, answered by DuckDB."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from random import Random

import duckdb
import pytest

from laminar_dagster.config.connectors import SourceTraits
from laminar_dagster.config.mistakes import InvalidPipeline
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.config.row_key_reader import RowReader
from laminar_dagster.core.ids import SourceId
from tests.unit.config import random_views
from tests.unit.config.folders import load
from tests.unit.config.random_views import View, Views
from tests.unit.config.test_row_keys import CONNECTORS

SIZES = (6, 12, 24, 48, 100, 200)
ROUNDS = 5
TRAITS = {SourceId(each): SourceTraits(enforces_keys=True) for each in ("users", "shares")}
Key = tuple[str, tuple[str, ...]]


def random_pipeline(folder: Path, chance: Random) -> tuple[PipelineModel, list[View]]:
    """A pipeline of a few views, and what they are in DuckDB."""
    views = Views(chance)
    files = {"sources.sql": random_views.SOURCES}
    model = None
    for attempt in range(12):
        view = views.make()
        try:
            wider = {**files, f"models/{view.name}.sql": view.sql}
            model = load(folder / str(attempt), wider, connectors=CONNECTORS)
        except InvalidPipeline:
            continue
        files = wider
        views.known.append(view)
        if len(views.made) == 4:
            break
    assert model is not None
    return model, views.made


@pytest.mark.parametrize("seed", range(20))
def test_what_is_known_of_keys_is_so(tmp_path: Path, seed: int) -> None:
    """Rows are alike in no key that is proven, and sooner or later in each that is too small.

    Unless there are not two rows to be alike, since no row or one meets a condition.
    """
    chance = Random(seed)
    model, views = random_pipeline(tmp_path, chance)
    reader = RowReader(model.sources, model.views, model.references, TRAITS)
    proven: set[Key] = set()
    small: set[Key] = set()
    for view in views:
        rows = reader.of_view(view.name)
        for size in (1, 2, 3):
            for key in combinations(view.columns, size):
                if rows.identifies(key):
                    proven.add((view.name, key))
                elif rows.is_too_small(key):
                    small.add((view.name, key))
    has_several: set[Key] = set()
    has_repeats: set[Key] = set()
    for number, size in enumerate(SIZES * ROUNDS):
        if number >= len(SIZES) and small <= has_repeats:
            break
        with duckdb.connect(config={"threads": 1}) as database:
            random_views.fill(database, chance, size)
            for view in views:
                database.execute(f"CREATE TABLE {view.name} AS {view.in_duckdb}")
            for each in proven | (small - has_repeats):
                count, alike = random_views.repeats(database, *each)
                has_several |= {each} if count > 1 else set()
                has_repeats |= {each} if alike > 1 else set()
    shown = [f"{view.name}: {view.sql}" for view in views]
    assert not proven & has_repeats, shown
    assert not (small & has_several) - has_repeats, shown


def test_the_random_views_are_of_every_kind(tmp_path: Path) -> None:
    """Else the test above would say nothing: most of what is made is allowed, and has a key."""
    texts, proven = [], 0
    for seed in range(25):
        model, views = random_pipeline(tmp_path / str(seed), Random(seed))
        texts += [each.sql for each in views]
        reader = RowReader(model.sources, model.views, model.references, TRAITS)
        proven += sum(reader.of_view(each.name).identifies([*each.columns]) for each in views)
    assert len(texts) >= 75
    assert proven >= 25
    kinds = ("GROUP BY", "DISTINCT", "ROW_NUMBER", "TUMBLE", "HOP", "UNION ALL", "LEFT JOIN")
    for each in (*kinds, "SEMI JOIN", "ANTI JOIN", "JOIN pages"):
        assert any(each in text for text in texts), each
