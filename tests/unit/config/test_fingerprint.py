"""A fingerprint changes when, and only when, what is computed may change."""

from __future__ import annotations

from pathlib import Path

import pytest

from laminar_dagster.config.definition import define
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.core.deployment import Verdict, compare_definitions
from tests.unit.config.folders import CONFIG, load

SOURCE = """CREATE SOURCE TABLE s (k STRING, x INT, ts TIMESTAMP,
WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH (connector = 'kafka', topic = 'a', 'bootstrap.servers' = 'h:1', password = '${PW}');
"""
CLEAN = "SELECT k, x + 1 AS y, ts FROM s WHERE x > 0"
COUNTS = """SELECT window_start, k, sum(y) AS total FROM clean
GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), k HAVING sum(y) > 1"""
SINK = "CREATE SINK o FROM counts WITH (connector = 'sqlite', path = 'a.db');"
FILES = {
    "a.sql": SOURCE + SINK,
    "models/clean.sql": CLEAN,
    "models/counts.sql": COUNTS,
}


def read(folder: Path, changed: dict[str, str] | None = None, secret: str = "p") -> PipelineModel:
    files = {key: text for key, text in {**FILES, **(changed or {})}.items() if text}
    number = len(list(folder.iterdir()))
    return load(folder / str(number), files, {"PW": secret})


SAME = [
    {
        "models/clean.sql": "-- why\nselect k, (x)+1 as y,\n\tts from S c where x>0".replace(
            "(x)", "c.x"
        )
    },
    {"models/counts.sql": f"CREATE MATERIALIZED VIEW counts AS {COUNTS} EMIT ON WINDOW CLOSE"},
    {"models/clean.sql": "", "z.sql": f"CREATE VIEW clean AS {CLEAN};"},
    {"a.sql": SOURCE.replace("h:1", "other:2") + SINK},
    {"a.sql": SOURCE.replace("kafka'", "kafka' , client.id = 'x'") + SINK},
    {"a.sql": SOURCE + SINK.replace("a.db", "b.db")},
    {"a.sql": SOURCE},
    {
        "pipeline.yml": f"{CONFIG}epoch: {{max_records: 3}}\n"
        "spark: {spark.sql.shuffle.partitions: 9}\n"
    },
    {
        "models/counts.sql": COUNTS.replace("TUMBLE(ts", "tumble(Ts").replace(
            "'1' MINUTE", "60 seconds"
        )
    },
]


@pytest.mark.parametrize("changed", SAME)
def test_what_computes_the_same_has_the_same_fingerprint(
    tmp_path: Path, changed: dict[str, str]
) -> None:
    before, after = read(tmp_path), read(tmp_path, changed, secret="another")
    assert before.fingerprint == after.fingerprint
    assert [*define(before).operators] == [*define(after).operators]


# And what becomes of the state of the windows.
OTHER: list[tuple[dict[str, str], Verdict]] = [
    ({"a.sql": SOURCE.replace("x INT", "x BIGINT")}, "rebuild"),
    ({"a.sql": SOURCE.replace("x INT", "x INT, y DATE")}, "keep"),
    ({"a.sql": SOURCE.replace("'5'", "'6'")}, "keep"),
    ({"a.sql": SOURCE.replace("'a'", "'b'")}, "rebuild"),
    ({"a.sql": SOURCE.replace("topic", "format = 'csv', topic")}, "rebuild"),
    ({"models/clean.sql": CLEAN.replace("> 0", "> 1")}, "rebuild"),
    ({"models/clean.sql": CLEAN.replace("x + 1", "x + 2")}, "rebuild"),
    ({"models/counts.sql": COUNTS.replace("> 1", "> 2")}, "keep"),
    ({"models/counts.sql": COUNTS.replace("AS total", "AS sum_of_y")}, "keep"),
    ({"models/counts.sql": COUNTS.replace("sum(y) AS", "sum(y) * 2 AS")}, "keep"),
    ({"models/counts.sql": COUNTS.replace("sum", "max")}, "rebuild"),
    ({"models/counts.sql": COUNTS.replace("'1' MINUTE", "'2' MINUTE")}, "rebuild"),
    ({"pipeline.yml": f"{CONFIG}buckets: 9\n"}, "rescale"),
    ({"models/more.sql": "SELECT k FROM s"}, "keep"),
    ({"pipeline.yml": f"{CONFIG}spark: {{spark.sql.ansi.enabled: false}}\n"}, "keep"),
]


@pytest.mark.parametrize(("changed", "verdict"), OTHER)
def test_what_may_compute_something_else_has_another(
    tmp_path: Path, changed: dict[str, str], verdict: Verdict
) -> None:
    before, after = read(tmp_path), read(tmp_path, changed)
    assert before.fingerprint != after.fingerprint
    (change,) = compare_definitions(define(before), define(after))
    assert (change.operator_id, change.verdict) == ("counts", verdict)


def test_a_fingerprint_is_the_same_tomorrow(tmp_path: Path) -> None:
    # Change FINGERPRINT_VERSION when this changes: every pipeline is then a changed one.
    assert read(tmp_path).fingerprint == (
        "2082c0d3e104b8d28deb09ba2cf968c15c34c08cbb215de1574c3821af631162"
    )
