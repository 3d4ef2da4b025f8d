"""Writes pipelines into folders, and says in short what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from laminar_dagster.config.connectors import Connectors
from laminar_dagster.config.mistakes import InvalidPipeline
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.config.project import load_pipeline
from laminar_dagster.config.relations import PythonKeyed, PythonRows, Query

CONFIG = "name: shop\nstore: .laminar/store\n"
SOURCES = """\
CREATE SOURCE TABLE clicks (
    user_id BIGINT, page STRING, amount DECIMAL(10, 2), device STRUCT<os: STRING>,
    tags ARRAY<STRING>, ts TIMESTAMP, `a b` INT,
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (connector = 'file', path = 'clicks');
CREATE SOURCE TABLE plain (id INT, at TIMESTAMP) WITH (connector = 'file', path = 'plain');
CREATE VIEW per_minute AS
SELECT window_start, window_end, page, count(*) AS n
FROM clicks GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), page;
"""


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """A folder ``shop`` with these files, and a ``pipeline.yml`` if there is none among them."""
    root = folder / "shop"
    for name, content in {"pipeline.yml": CONFIG, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def load(
    folder: Path,
    files: Mapping[str, str | bytes],
    environment: Mapping[str, str] | None = None,
    connectors: Connectors | None = None,
) -> PipelineModel:
    """Load a pipeline of these files."""
    return load_pipeline(write(folder, files), environment or {}, connectors)


def mistakes(
    folder: Path,
    files: Mapping[str, str | bytes],
    environment: Mapping[str, str] | None = None,
    connectors: Connectors | None = None,
) -> list[str]:
    """What is wrong with a pipeline, with paths from its folder."""
    root = write(folder, files)
    with pytest.raises(InvalidPipeline) as caught:
        load_pipeline(root, environment or {}, connectors)
    return [each.replace(f"{root}/", "") for each in caught.value.lines()]


def wrong_query(folder: Path, sql: str) -> list[str]:
    """What is wrong with one query over ``SOURCES``."""
    return mistakes(folder, {"sources.sql": SOURCES, "models/m.sql": sql})


def read_query(folder: Path, sql: str, config: str = CONFIG) -> Query:
    """One query over ``SOURCES``."""
    files = {"pipeline.yml": config, "sources.sql": SOURCES, "models/m.sql": sql}
    model = load(folder, files)
    query = next(each.query for each in model.views if each.name == "m")
    assert not isinstance(query, PythonRows | PythonKeyed)
    return query
