"""Queries over a stream of changes: none of them may count what was taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from laminar_dagster.config.connectors import Connectors
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.config.relations import WindowAggregate
from laminar_dagster.sources.kafka.traits import kafka_traits
from tests.unit.config.folders import load, mistakes

CONNECTORS = Connectors(
    sources={"kafka": ("*",), "file": ("*",)},
    sinks={"delta": ("*",)},
    traits={"kafka": kafka_traits},
)
SOURCES = """\
CREATE SOURCE TABLE s (id INT, x INT, ts TIMESTAMP, WATERMARK FOR ts) WITH (
    connector = 'kafka', format = 'debezium-json', 'debezium.before' = 'required');
CREATE SOURCE TABLE loose (id INT, x INT, ts TIMESTAMP, WATERMARK FOR ts) WITH (
    connector = 'kafka', format = 'debezium-json');
CREATE SOURCE TABLE plain (id INT, x INT, ts TIMESTAMP, WATERMARK FOR ts) WITH (
    connector = 'file');
"""
TUMBLE = "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)"


def load_view(folder: Path, *queries: str) -> PipelineModel:
    views = {f"models/v{number}.sql": text for number, text in enumerate(queries)}
    return load(folder, {"sources.sql": SOURCES, **views}, connectors=CONNECTORS)


def wrong(folder: Path, *queries: str) -> list[str]:
    views = {f"models/v{number}.sql": text for number, text in enumerate(queries)}
    return mistakes(folder, {"sources.sql": SOURCES, **views}, connectors=CONNECTORS)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM s",
        "SELECT id, _weight FROM s",
        "SELECT id FROM s WHERE _weight = 1",
        "SELECT id, IF(_weight = 1, 'came', 'went') AS what FROM s",
        "SELECT id, x FROM plain",
        "SELECT id, _weight FROM s UNION ALL SELECT id, _weight FROM loose",
        "SELECT id, _weight FROM s UNION ALL SELECT id, 1 FROM plain",
        f"SELECT window_end, SUM(x * _weight) AS total FROM s {TUMBLE}",
        f"SELECT window_end, SUM(_weight) AS n FROM s {TUMBLE} HAVING SUM(_weight) > 0",
        f"SELECT window_end, id FROM s {TUMBLE}, id HAVING SUM(_weight) > 0",
        f"SELECT window_end, COUNT(*) AS n, MAX(x) AS x FROM s WHERE _weight = 1 {TUMBLE}",
        f"SELECT window_end, COUNT(*) AS n FROM loose WHERE _weight = 1 {TUMBLE}",
        f"SELECT window_end, _weight AS way, COUNT(*) AS n FROM s {TUMBLE}, _weight",
        f"SELECT window_end, COUNT(*) AS n FROM plain {TUMBLE}",
        f"SELECT window_end, COUNT(*) AS n, SUM(x) AS s, MAX(x) AS x FROM s {TUMBLE}",
        f"SELECT window_end, id FROM s {TUMBLE}, id",
    ],
)
def test_a_query_that_knows_of_weights_is_read(tmp_path: Path, query: str) -> None:
    assert len(load_view(tmp_path, query).views) == 1


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        (
            "SELECT id FROM s",
            "1:1: `_weight` of `s` is left out: deletes would look like rows (select `_weight` "
            "too, or only rows that came with WHERE _weight = 1)",
        ),
        (
            "SELECT id FROM (SELECT id, _weight FROM s)",
            "1:1: `_weight` of the query in FROM is left out: deletes would look like rows "
            "(select `_weight` too, or only rows that came with WHERE _weight = 1)",
        ),
        (
            f"SELECT window_end, COUNT(*) AS n, SUM(_weight) AS w FROM s {TUMBLE}",
            "1:20: COUNT over `s` would count rows that were taken back (write SUM(_weight); "
            "with a column, SUM(IF(x IS NULL, 0, _weight)))",
        ),
        (
            f"SELECT window_end, SUM(x) AS n, SUM(_weight) AS w FROM s {TUMBLE}",
            "1:20: SUM over `s` would count rows that were taken back (write SUM(x * _weight))",
        ),
        (
            f"SELECT window_end, COUNT(*) AS n FROM loose {TUMBLE}",
            "1:1: an update in `loose` may come without the row before it "
            "(set 'debezium.before' = 'required')",
        ),
        (
            f"SELECT window_end, APPROX_COUNT_DISTINCT(x) AS n FROM s {TUMBLE}",
            "1:20: a sketch of `s` cannot undo a row that is taken back "
            "(write COUNT(DISTINCT x), which keeps every value)",
        ),
        (
            "SELECT id, COUNT(*) AS n FROM s GROUP BY SESSION(ts, INTERVAL '1' MINUTE), id",
            "1:1: a session of `s` cannot come apart when a row is taken back "
            "(use TUMBLE or HOP, or WHERE _weight = 1)",
        ),
        (
            f"SELECT window_end, AVG(x * _weight) AS n FROM s {TUMBLE}",
            "1:20: AVG over `s` would count rows that were taken back "
            "(write SUM(x * _weight) / SUM(_weight))",
        ),
        (
            f"SELECT window_end, MAX(_weight) AS n FROM s {TUMBLE}",
            "1:20: MAX over `s` would count rows that were taken back (it cannot be taken back; "
            "WHERE _weight = 1 looks at rows that came alone)",
        ),
        (
            f"SELECT window_end, SUM(_weight) AS n FROM s {TUMBLE} HAVING MIN(x) > 0",
            "1:93: MIN over `s` would count rows that were taken back (it cannot be taken back; "
            "WHERE _weight = 1 looks at rows that came alone)",
        ),
        (
            f"SELECT window_end, SUM(x * _weight) AS n FROM loose {TUMBLE}",
            "1:20: an update in `loose` may come without the row before it "
            "(set 'debezium.before' = 'required')",
        ),
        (
            f"SELECT window_end, SUM(_weight) AS n FROM (SELECT * FROM loose) {TUMBLE}",
            "1:20: an update in the query in FROM may come without the row before it "
            "(set 'debezium.before' = 'required')",
        ),
        (
            f"SELECT window_end, _weight, COUNT(*) AS n FROM s {TUMBLE}, _weight",
            "1:1: the name `_weight` is reserved (rows of a window are never deleted)",
        ),
        (
            "SELECT _weight, id FROM s UNION ALL SELECT id, _weight FROM s",
            "1:37: this query of a UNION ALL has `_weight` in another place "
            "(it stands at the same place in each)",
        ),
        (
            "SELECT id, x FROM plain UNION ALL SELECT id, _weight FROM s",
            "1:35: this query of a UNION ALL has `_weight` in another place "
            "(it stands at the same place in each)",
        ),
    ],
)
def test_a_query_that_would_count_what_is_gone_is_refused(
    tmp_path: Path, query: str, problem: str
) -> None:
    assert wrong(tmp_path, query) == [f"models/v0.sql:{problem}"]


def test_weights_are_followed_through_views(tmp_path: Path) -> None:
    first = "SELECT id, x, ts, _weight FROM loose"
    query = f"SELECT window_end, COUNT(*) AS n FROM v0 {TUMBLE}"
    (problem,) = wrong(tmp_path, first, query)
    assert "an update in `v0` may come without the row before it" in problem
    view = load_view(tmp_path, first.replace("loose", "s"), query).views[1]
    assert isinstance(view.query, WindowAggregate)
    assert view.query.weight == "_weight"
    (problem,) = wrong(tmp_path, first, f"SELECT window_end, SUM(_weight) AS n FROM v0 {TUMBLE}")
    assert "an update in `v0` may come without the row before it" in problem
