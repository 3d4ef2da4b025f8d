"""A change of what an operator reads: an aggregate of a view below it, or a reference table."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from laminar_dagster.config.definition import define
from laminar_dagster.core.definition import PipelineDefinition
from laminar_dagster.core.deployment import OperatorChange, compare_definitions
from tests.unit.config.folders import SOURCES, load

BELOW = (
    "SELECT window_end, page, {} AS p, COUNT(*) AS n FROM clicks"
    " GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), page"
)
ABOVE = "SELECT page, MAX(p) AS m FROM va GROUP BY page EMIT CHANGES WITH (state.ttl = '1d')"


def over(folder: Path, aggregate: str) -> PipelineDefinition:
    """A view ``vb`` over an aggregate of the view ``va``."""
    views = {"models/va.sql": BELOW.format(aggregate), "models/vb.sql": ABOVE}
    return define(load(folder / str(len([*folder.iterdir()])), {"s.sql": SOURCES, **views}))


def change(old: PipelineDefinition, new: PipelineDefinition, operator: str) -> OperatorChange:
    (found,) = (each for each in compare_definitions(old, new) if each.operator_id == operator)
    return found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("PERCENTILE(amount, 0.5)", "PERCENTILE(amount, 0.9)"),
        ("PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY amount)", "PERCENTILE(amount, 0.1)"),
        ("APPROX_PERCENTILE(amount, 0.5)", "APPROX_PERCENTILE(amount, 0.9)"),
        ("APPROX_PERCENTILE(amount, 0.5, 100)", "APPROX_PERCENTILE(amount, 0.5, 1000)"),
        ("APPROX_COUNT_DISTINCT(user_id)", "APPROX_COUNT_DISTINCT(user_id, 0.01)"),
        ("CORR(amount, user_id)", "CORR(amount, `a b`)"),
        ("COUNT(DISTINCT user_id)", "COUNT(DISTINCT user_id, amount)"),
        ("STRING_AGG(page, ',')", "STRING_AGG(page, ';')"),
        ("STRING_AGG(page, ',')", "STRING_AGG(DISTINCT page, ',')"),
        (
            "LISTAGG(page, ',') WITHIN GROUP (ORDER BY ts)",
            "LISTAGG(page, ',') WITHIN GROUP (ORDER BY ts DESC)",
        ),
        (
            "LISTAGG(page, ',') WITHIN GROUP (ORDER BY ts)",
            "LISTAGG(page, ',') WITHIN GROUP (ORDER BY amount)",
        ),
        ("MAX_BY(amount, ts)", "MAX_BY(amount, user_id)"),
    ],
)
def test_every_argument_of_an_aggregate_below_counts(tmp_path: Path, old: str, new: str) -> None:
    found = change(over(tmp_path, old), over(tmp_path, new), "vb")
    assert (found.verdict, found.reasons) == ("rebuild", ("`va`, which it reads, has changed",))


@pytest.mark.parametrize("argument", ["CORR(amount, x)", "LISTAGG(page) WITHIN GROUP (ORDER BY x)"])
def test_what_every_argument_is_computed_from_counts(tmp_path: Path, argument: str) -> None:
    def given(x: str) -> PipelineDefinition:
        views = {
            "models/v0.sql": f"SELECT page, amount, {x} AS x, ts FROM clicks",
            "models/va.sql": BELOW.format(argument).replace("clicks", "v0"),
            "models/vb.sql": ABOVE,
        }
        return define(load(tmp_path / str(len([*tmp_path.iterdir()])), {"s.sql": SOURCES, **views}))

    assert change(given("user_id"), given("user_id + 1"), "vb").verdict == "rebuild"


def test_an_aggregate_that_it_does_not_use_still_does_not_count(tmp_path: Path) -> None:
    old, new = "MAX(amount)", "MAX(amount) AS p, PERCENTILE(amount, 0.9) AS other, MIN(amount)"
    views = {"models/vb.sql": ABOVE}
    changed = BELOW.format(new).replace("AS p, COUNT(*) AS n", "AS least, COUNT(*) AS n")
    after = define(load(tmp_path / "n", {"s.sql": SOURCES, "models/va.sql": changed, **views}))
    assert change(over(tmp_path, old), after, "vb").verdict == "keep"


# What was written down before every argument counted.
EARLIER = {
    "SUM(amount)": "aebcb152102e897ee2ae3e4a72f24375d57fa91c662ecf9eebfd44398f6ec0c9",
    "MAX_BY(amount, ts)": "146dde3ca5774059aedb70ac0372171da09c3da8916ff4c80f80f1f8a5059bb5",
    "COUNT(DISTINCT user_id, amount)": (
        "d27d77cee478879cb31a088a658e35ff9345814b4dcea3c4ca8d6085ac97ae94"
    ),
    "STRING_AGG(page, ',')": "a43664d526155f6631dcdd42208fc9aa55c175f72474334154dffe158f0a3246",
    "PERCENTILE(amount, 0.5)": "8d9803ff622df628e78c52e89fa6cefc74d452267ad0c034897c55635b78a36a",
}


def as_earlier(new: PipelineDefinition, aggregate: str) -> PipelineDefinition:
    *others, vb = new.operators
    assert vb.operator_id == "vb"
    return structs.replace(new, operators=(*others, structs.replace(vb, input=EARLIER[aggregate])))


@pytest.mark.parametrize("aggregate", EARLIER)
def test_a_stored_definition_of_before_makes_no_rebuild_of_what_is_the_same(
    tmp_path: Path, aggregate: str
) -> None:
    now = over(tmp_path, aggregate)
    assert change(as_earlier(now, aggregate), now, "vb").verdict == "keep"


@pytest.mark.parametrize("aggregate", ["SUM(amount)", "MAX_BY(amount, ts)"])
def test_what_was_told_wholly_before_is_told_in_the_same_words(
    tmp_path: Path, aggregate: str
) -> None:
    assert over(tmp_path, aggregate).operators[-1].input == EARLIER[aggregate]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("STRING_AGG(page, ',')", "STRING_AGG(page)"),
        ("COUNT(DISTINCT user_id, amount)", "COUNT(DISTINCT user_id)"),
        ("PERCENTILE(amount, 0.5)", "PERCENTILE(amount, 0.9)"),
    ],
)
def test_a_stored_definition_of_before_hides_no_change(tmp_path: Path, old: str, new: str) -> None:
    before = as_earlier(over(tmp_path, old), old)
    assert change(before, over(tmp_path, new), "vb").verdict == "rebuild"
