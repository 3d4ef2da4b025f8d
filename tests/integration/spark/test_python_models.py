"""Models in Python on a real Spark, as ``test_sql_groups`` does it for SQL."""

from __future__ import annotations

import random

import pytest

from laminar_dagster.core.errors import ModelFailed
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.state_reader import compare_states, read_state
from tests.integration.spark.conftest import Build
from tests.integration.spark.features import (
    SESSIONS,
    Feature,
    lay_out,
    tell,
    write_references,
)
from tests.integration.spark.project import Project, random_records

SPREAD = '''
"""Clicks that are worth something, each once or twice."""
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.models import TIMESTAMP, model


@model(
    reads="clicks",
    columns={"page": pa.string(), "n": pa.int64(), "turn": pa.int64(), "at": TIMESTAMP},
    event_time="at",
)
def spread(clicks: pa.Table) -> pa.Table:
    known = clicks.filter(pc.greater(clicks["n"], 0))
    turns = pc.if_else(pc.greater(known["n"], 6), "1 2", "1")
    split = pc.split_pattern(turns, " ").combine_chunks()
    rows = known.take(pc.list_parent_indices(split))
    turn = pc.list_flatten(split).cast(pa.int64())
    return pa.table({"page": rows["page"], "n": rows["n"], "turn": turn, "at": rows["at"]})
'''
FRAMES = '''
"""The clicks of `spread` from data frame to data frame, with types that pandas itself has not."""
import pandas as pd
import pyarrow as pa

from laminar_dagster.models import TIMESTAMP, model

COLUMNS = {
    "page": pa.string(),
    "price": pa.decimal128(10, 2),
    "turn": pa.int64(),
    "large": pa.int32(),
    "names": pa.list_(pa.string()),
    "at": TIMESTAMP,
}


@model(reads="clicks", columns=COLUMNS, event_time="at")
def frames(clicks: pd.DataFrame) -> pd.DataFrame:
    known = clicks[clicks["n"] > 0]
    rows = known.assign(turn=[[1, 2] if n > 6 else [1] for n in known["n"]]).explode("turn")
    large = rows["n"].where(rows["n"] > 4)
    return rows.assign(large=large, names=[[page, "x"] for page in rows["page"]])[list(COLUMNS)]
'''
EPISODES = '''
"""Visits, put out when nothing came for four seconds: how often a click was worth more."""
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.models import TIMESTAMP, Step, keyed_operator


@keyed_operator(
    reads="spread",
    keys=["page"],
    event_time="at",
    takes=["n"],
    state={"clicks": pa.int64(), "rises": pa.int64(), "last": pa.int64(), "since": TIMESTAMP},
    columns={"clicks": pa.int64(), "rises": pa.int64(), "since": TIMESTAMP},
    ttl="unbounded",
)
class Episodes:
    def on_rows(self, rows: pa.Table, state: pa.Table) -> Step:
        rises = pc.fill_null(pc.greater(rows["n"], state["last"]), False).cast(pa.int64())
        kept = {
            "clicks": pc.add(pc.fill_null(state["clicks"], 0), 1),
            "rises": pc.add(pc.fill_null(state["rises"], 0), rises),
            "last": rows["n"],
            "since": pc.coalesce(state["since"], rows["at"]),
        }
        return Step(state=kept, timer=pc.add(rows["at"], pa.scalar(timedelta(seconds=4))))

    def on_timers(self, timers: pa.Table, state: pa.Table) -> Step:
        told = state.select(["clicks", "rises", "since"])
        names = ["clicks", "rises", "last", "since"]
        gone = {name: pa.nulls(state.num_rows, state[name].type) for name in names}
        return Step(state=gone, rows=told)
'''
NUMBERED = '''
"""Clicks with their number since the page and value were last silent for 15 seconds."""
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.models import Step, keyed_operator


@keyed_operator(
    reads="clicks",
    keys=["page", "n"],
    event_time="at",
    takes=[],
    state={"seen": pa.int64()},
    columns={"seen": pa.int64()},
    ttl=timedelta(seconds=15),
)
class Numbered:
    def on_rows(self, rows: pa.Table, state: pa.Table) -> Step:
        seen = pc.add(pc.fill_null(state["seen"], 0), 1)
        return Step(state={"seen": seen}, rows={"seen": seen})
'''
PYTHON = {"spread": SPREAD, "frames": FRAMES, "episodes": EPISODES, "numbered": NUMBERED}
# SQL over models in Python, of which one reads another.
FEATURES = {
    "turns": Feature(
        "SELECT page, unix_micros(window_end) AS until, COUNT(*) AS turns, SUM(n * turn) AS worth"
        " FROM spread GROUP BY TUMBLE(at, INTERVAL '10' SECOND), page",
        "SELECT page, (us // 10000000 + 1) * 10000000 AS until, count(*), sum(n * turn)"
        " FROM clicks, (VALUES (1), (2)) AS each (turn) WHERE n > 0 AND (turn = 1 OR n > 6)"
        " GROUP BY page, until HAVING until <= (SELECT w FROM mark)",
    ),
    "framed": Feature(
        "SELECT page, unix_micros(window_end) AS until, COUNT(*) AS turns, SUM(turn) AS total,"
        " CAST(SUM(price) * 100 AS BIGINT) AS cents, COUNT(large) AS large, SUM(large) AS worth,"
        " MIN(array_join(names, '-')) AS names"
        " FROM frames GROUP BY TUMBLE(at, INTERVAL '10' SECOND), page",
        "SELECT page, (us // 10000000 + 1) * 10000000 AS until, count(*), sum(turn), sum(cents),"
        " count(*) FILTER (WHERE n > 4), sum(n) FILTER (WHERE n > 4), page || '-x'"
        " FROM clicks, (VALUES (1), (2)) AS each (turn) WHERE n > 0 AND (turn = 1 OR n > 6)"
        " GROUP BY page, until HAVING until <= (SELECT w FROM mark)",
    ),
    "told": Feature(
        "SELECT page, unix_micros(at) AS until, clicks, rises, unix_micros(since) AS since"
        " FROM episodes",
        SESSIONS.replace("FROM clicks", "FROM twice")
        .format(keys="page", gap=4_000_000)
        .replace(
            "WITH before",
            "WITH twice AS (SELECT clicks.* FROM clicks, (VALUES (1), (2)) AS each (turn)"
            " WHERE n > 0 AND (turn = 1 OR n > 6)), before",
        )
        + ", risen AS (SELECT *, n > lag(n) OVER (PARTITION BY page, session ORDER BY us) AS rose"
        " FROM numbered) SELECT page, max(us) + 4000000, count(*), count(*) FILTER (WHERE rose),"
        " min(us) FROM risen GROUP BY page, session"
        " HAVING max(us) + 4000000 <= (SELECT w FROM mark)",
    ),
    "numbers": Feature(
        "SELECT page, n, unix_micros(at) AS us, seen FROM numbered",
        SESSIONS.format(keys="page, n", gap=15_000_000)
        + "SELECT page, n, us, row_number() OVER (PARTITION BY page, n, session ORDER BY us)"
        " FROM numbered WHERE us < (SELECT w FROM mark)",
    ),
}


def test_models_in_python_give_what_duckdb_gives(project: Project, build: Build) -> None:
    pipeline, manifest, _ = tell(project, build, FEATURES, PYTHON)
    state = read_state(pipeline.checkpoints, manifest, "episodes")
    assert state.values == ("clicks", "rises", "last", "since", "timer", "waiting")
    assert state.rows.num_rows > 0
    assert compare_states(state, state).num_rows == 0
    assert manifest.counts.read == 0


def test_an_error_of_a_model_is_told_with_its_line(project: Project, build: Build) -> None:
    """Whether it is a function or an operator; and the epoch can be redone with a mended one."""
    broken = {
        "spread": SPREAD.replace(
            "turn = pc.list_flatten", "turn = rows['nobody'] or pc.list_flatten"
        ),
        "numbered": NUMBERED.replace('state["seen"]', 'state["nobody"]'),
    }
    project.append("a.ndjson", random_records(random.Random(2), 40))
    write_references(project, 1)
    for name, view in (("spread", "turns"), ("numbered", "numbers")):
        features = {view: FEATURES[view]}
        lay_out(project, features, {name: broken[name]}, buckets=2)
        with pytest.raises(ModelFailed) as caught:
            EpochRunner(build()).run()
        assert caught.value.operator_id == name
        assert f"models/{name}.py:" in caught.value.where
        assert "KeyError" in caught.value.reason
