"""Which late records a source hands on, and which operators make the same: without Spark."""

from __future__ import annotations

from pathlib import Path

from laminar_dagster.config.model import PipelineModel
from laminar_dagster.config.operators import stateful_operators
from laminar_dagster.spark.late_records import lateness_of_sources, readings_through_views
from laminar_dagster.spark.twins import partials_key, twins
from tests.unit.config.folders import load

SOURCES = """CREATE SOURCE TABLE a (k STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts)
WITH (connector = 'file', path = 'a');
CREATE SOURCE TABLE b (k STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts)
WITH (connector = 'file', path = 'b');
"""
MINUTES = "SELECT window_end AS e, {} FROM {} GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), k"
LATE = " EMIT ON WINDOW CLOSE WITH (allowed.lateness = '{}')"


def model(folder: Path, **views: str) -> PipelineModel:
    files = {f"models/{name}.sql": sql for name, sql in views.items()}
    return load(folder, {"s.sql": SOURCES, **files})


def test_a_source_hands_on_what_the_most_patient_window_takes(tmp_path: Path) -> None:
    found = model(
        tmp_path,
        few=MINUTES.format("count(*) AS c", "a") + LATE.format("1s"),
        clean="SELECT k, n + 1 AS n, ts FROM a UNION ALL SELECT k, n, ts FROM b",
        more=MINUTES.format("count(*) AS c", "clean") + LATE.format("3s"),
        above="SELECT window_end AS e, sum(c) AS c FROM more "
        "GROUP BY TUMBLE(e, INTERVAL '1' HOUR)" + LATE.format("1h"),
        plain=MINUTES.format("sum(n) AS s", "b"),
    )
    assert lateness_of_sources(found) == {"a": 3_000_000, "b": 3_000_000}
    assert readings_through_views(found) == {"a": 1, "b": 1}


def test_a_view_that_puts_out_results_too_is_not_read_past(tmp_path: Path) -> None:
    """It is computed once, with what is on time: nobody would take what its source handed on."""
    found = model(
        tmp_path,
        counts="SELECT window_end AS ts, count(*) AS n FROM b "
        "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
        mixed="SELECT ts, n FROM a UNION ALL SELECT ts, n FROM counts",
        late="SELECT window_end AS e, sum(n) AS s FROM mixed "
        "GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)" + LATE.format("1m"),
    )
    assert lateness_of_sources(found) == {}


def test_nobody_takes_late_records(tmp_path: Path) -> None:
    found = model(tmp_path, plain=MINUTES.format("sum(n) AS s", "b"))
    assert lateness_of_sources(found) == {}
    assert not readings_through_views(found)


def keys(found: PipelineModel) -> dict[str, object]:
    return {
        str(operator): partials_key(query)
        for view in found.views
        for operator, query in stateful_operators(view)
    }


def test_what_is_shown_of_a_state_does_not_count(tmp_path: Path) -> None:
    same = MINUTES.format("k, avg(n) AS m", "a")
    found = model(
        tmp_path,
        one=same,
        two=f"{MINUTES.format('avg(n) * 2 AS x, upper(k) AS k', 'a')} HAVING avg(n) > 1",
        other=MINUTES.format("sum(n) AS x", "a"),
        filtered=MINUTES.format("avg(n) AS x", "a WHERE n > 1"),
        elsewhere=MINUTES.format("avg(n) AS x", "b"),
        late=same + LATE.format("1s"),
    )
    known = keys(found)
    assert known["one"] == known["two"]
    assert len(set(known.values())) == 5
    assert twins(found)[known["one"]] == 2


def test_an_operator_over_another_of_its_view_keeps_to_itself(tmp_path: Path) -> None:
    """The one below it has a state of its own, which has to go on."""
    inner = MINUTES.format("k, count(*) AS c", "a")
    outer = f"SELECT window_end AS e, sum(c) AS c FROM ({inner}) "
    outer += "GROUP BY TUMBLE(e, INTERVAL '1' HOUR)"
    known = keys(model(tmp_path, one=outer, two=outer))
    assert known["one"] is None and known["two"] is None
    assert known["one.in"] == known["two.in"] is not None


def test_ranks_that_are_equal_are_made_once(tmp_path: Path) -> None:
    ranks = (
        "SELECT k, n FROM a QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY n) <= {} "
        "EMIT CHANGES WITH (state.ttl = '1d')"
    )
    known = keys(model(tmp_path, x=ranks.format(2), y=ranks.format(2), z=ranks.format(3)))
    assert known["x"] == known["y"] != known["z"]
