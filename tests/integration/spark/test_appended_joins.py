"""Inner joins of what only grows, appended: no row is ever taken back, however epochs are cut."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import cast

import pytest
from deltalake import DeltaTable

from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.ports import Admission, Sink, StagedOutput
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.rerun import rerun
from laminar_dagster.testing.crash import Crash
from tests.integration.spark.conftest import Build
from tests.integration.spark.dying_engine import DyingEngine
from tests.integration.spark.project import Project, Record, random_records, run_until_done

COLUMNS = "SELECT a.page, a.n, unix_micros(a.at) AS since, unix_micros(b.at) AS until FROM clicks a"
ON = "ON a.page = b.page AND a.n = b.n"
VIEWS = {
    "within": f"{COLUMNS} JOIN clicks b {ON} AND b.at BETWEEN a.at AND a.at + INTERVAL '3' SECOND",
    "kept": f"{COLUMNS} JOIN clicks b {ON} EMIT CHANGES WITH (state.ttl = '4s')",
    "ever": f"{COLUMNS} JOIN clicks b {ON} AND a.n > 6 EMIT CHANGES WITH (state.ttl = 'unbounded')",
    "chosen": "SELECT page, n, since, until, _weight FROM ever WHERE until > since",
    "partnered": "SELECT a.page, a.n, unix_micros(a.at) AS since, 0 AS until FROM clicks a"
    " SEMI JOIN clicks b ON a.page = b.page AND a.n = b.n - 1"
    " EMIT CHANGES WITH (state.ttl = 'unbounded')",
}


def expected(clicks: list[Record]) -> dict[str, Counter[tuple[object, ...]]]:
    pairs = [
        (a.page, a.n, round(a.at.timestamp() * 1e6), round(b.at.timestamp() * 1e6))
        for a in clicks
        for b in clicks
        if a.page == b.page and a.n == b.n
    ]
    ever = [row for row in pairs if row[1] > 6]
    return {
        "within": Counter(row for row in pairs if 0 <= row[3] - row[2] <= 3_000_000),
        "kept": Counter(row for row in pairs if abs(row[3] - row[2]) < 4_000_000),
        "ever": Counter(ever),
        "chosen": Counter(row for row in ever if row[3] > row[2]),
        "partnered": Counter(
            (a.page, a.n, round(a.at.timestamp() * 1e6), 0)
            for a in clicks
            if any(a.page == b.page and a.n == b.n - 1 for b in clicks)
        ),
    }


class _Dying:
    """A sink before whose commit the process dies."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def __getattr__(self, name: str) -> object:
        return getattr(self._sink, name)

    def commit(self, epoch: EpochNumber, staged: StagedOutput) -> None:
        raise Crash


@pytest.mark.parametrize("most", [90, 1000])
def test_an_inner_join_is_appended_pair_by_pair(project: Project, build: Build, most: int) -> None:
    folder = project.root / "dbt_like_configs" / "clicks"
    for each in (folder / "models").iterdir():
        each.unlink()
    for name, sql in VIEWS.items():
        (folder / "models" / f"{name}.sql").write_text(sql)
    (folder / "sinks.sql").write_text(
        "\n".join(
            f"CREATE SINK {name}_table FROM {name}"
            f" WITH (connector = 'sqlite', path = 'out.db', table = '{name}');"
            f"CREATE SINK {name}_lake FROM {name} WITH (connector = 'delta', path = '{name}');"
            for name in VIEWS
        )
    )
    chance = random.Random(3)
    clicks = random_records(chance, 140)
    pipeline = build(limits=Admission(max_records=most))
    project.append("a.ndjson", clicks[:60])
    EpochRunner(pipeline).run()
    project.append("b.ndjson", clicks[60:])
    # It dies while it computes, then after half of the sinks have committed.
    with pytest.raises(Crash):
        EpochRunner(replace(pipeline, engine=DyingEngine(pipeline.engine))).run()
    sinks = tuple(
        cast(Sink, _Dying(each)) if each.sink_id < "kept" else each for each in pipeline.sinks
    )
    with pytest.raises(Crash):
        EpochRunner(replace(pipeline, sinks=sinks)).run()
    manifests = run_until_done(pipeline)
    verdict = rerun(pipeline, manifests[0].epoch)
    assert verdict.is_identical, verdict
    answer = expected(project.on_time())
    for name in VIEWS:
        columns = "page, n, since, until"
        table = Counter(project.query(f"SELECT {columns} FROM {name}"))
        assert table == answer[name], name
        lake = DeltaTable(project.root / name).to_pyarrow_table().select(columns.split(", "))
        assert Counter(zip(*lake.to_pydict().values(), strict=True)) == answer[name], name
        assert len(answer[name]) > 5, name
