"""What feeds an operator, and what kind of rows come out of a view: without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from laminar_dagster.config.model import PipelineModel
from laminar_dagster.core.ids import CheckpointId, OperatorId
from laminar_dagster.spark.feeding import Feeding
from laminar_dagster.spark.operators import Operators
from laminar_dagster.spark.watermarks import SourceClock
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.config.folders import load

SOURCES = "".join(
    f"""CREATE SOURCE TABLE {name} (k STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts)
WITH (connector = 'file', path = '{name}');
"""
    for name in "abc"
)
MINUTES = (
    "SELECT k, window_end AS e, COUNT(*) AS n FROM {} GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), k"
)
TOTALS = "SELECT k, SUM(n) AS n FROM {} GROUP BY k EMIT CHANGES WITH (state.ttl = 'unbounded')"


def model(folder: Path, **views: str) -> PipelineModel:
    files = {f"models/{name}.sql": sql for name, sql in views.items()}
    return load(folder, {"s.sql": SOURCES, **files})


def test_an_operator_has_the_clocks_of_its_own_inputs(tmp_path: Path) -> None:
    found = model(
        tmp_path,
        below=MINUTES.format("a"),
        both=f"{MINUTES.format('a')} UNION ALL {MINUTES.format('b')}",
        above="SELECT x.k FROM below x JOIN b y ON x.k = y.k AND y.ts BETWEEN x.e AND"
        " x.e + INTERVAL '1' HOUR",
    )
    clocks = {name: SourceClock(name, None, ()) for name in "abc"}
    nothing = CheckpointId.from_parts(1, 1)
    operators = Operators(Feeding(found, ()), clocks, {}, {}, (), 1, nothing, MemoryStore())
    both, above = (
        next(view.query for view in found.views if view.name == name) for name in ("both", "above")
    )
    heard = [
        [clock.source_id for clock in operators.ground(OperatorId("x"), *inputs)["clocks"]]
        for inputs in (
            (both.parts[0].source,),  # type: ignore[union-attr]
            (both.parts[1].source,),  # type: ignore[union-attr]
            (above.source.left.source, above.source.right.source),  # type: ignore[union-attr]
            (above.source.left.source,),  # type: ignore[union-attr]
        )
    ]
    assert heard == [["a"], ["b"], ["a", "b"], ["a"]]


@pytest.mark.parametrize(
    ("sql", "tells_differences"),
    [
        ("SELECT k, n FROM a", False),
        ("SELECT k, n, _weight FROM totals WHERE n > 1", True),
        (TOTALS.format("totals"), True),
        ("SELECT x.k FROM a x JOIN b y ON x.k = y.k EMIT CHANGES WITH (state.ttl='1d')", True),
        ("SELECT k, n, _weight FROM totals UNION ALL SELECT k, n, _weight FROM totals", True),
        ("SELECT k, n FROM counts UNION ALL SELECT k, n FROM a", False),
        ("SELECT k, e FROM (SELECT k, explode(array(1, 2)) AS e FROM b)", False),
    ],
)
def test_changes_in_all_are_told_from_one_after_the_other(
    tmp_path: Path, sql: str, tells_differences: bool
) -> None:
    below = {"totals": TOTALS.format("a"), "counts": MINUTES.format("b")}
    found = model(tmp_path, **below, view=sql)
    view = next(each for each in found.views if each.name == "view")
    assert Feeding(found, ()).tells_differences(view.query) is tells_differences
