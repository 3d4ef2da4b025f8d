"""A pipeline that is changed while it runs goes on with its state, or is refused; never wrong."""

from __future__ import annotations

import dataclasses
import random
from collections import defaultdict

import pytest

from laminar_dagster.core.errors import EpochNotCommitted, PipelineChanged, StateIncompatible
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.ports import Admission
from laminar_dagster.core.upkeep import Rescale
from laminar_dagster.runtime.deployment import changes_since
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.rerun import rerun
from laminar_dagster.runtime.steps import plan
from laminar_dagster.runtime.survey import newest_manifest, survey
from laminar_dagster.runtime.upkeep import plan_upkeep
from laminar_dagster.testing.crash import Crash
from tests.integration.spark.conftest import Build
from tests.integration.spark.dying_engine import DyingEngine
from tests.integration.spark.project import (
    PER_MINUTE,
    SINKS,
    SOURCES,
    Project,
    Record,
    random_records,
    run_until_done,
)

FEWER = PER_MINUTE.replace("SUM(price) AS money,", "CAST(0 AS DECIMAL(20, 2)) AS money,")
OTHER_ORDER = PER_MINUTE.replace(
    "COUNT(*) AS clicks, SUM(n) AS total", "SUM(n) AS total, COUNT(*) AS clicks"
)
FILTERED = PER_MINUTE.replace("n >= 0", "n >= 1")


def verdicts(pipeline: Pipeline) -> dict[str, str]:
    parent = newest_manifest(pipeline.checkpoints, survey(pipeline.checkpoints))
    assert pipeline.definition
    changes = changes_since(pipeline.definition, parent, pipeline.checkpoints)
    return {str(each.operator_id): each.verdict for each in changes}


def totals(project: Project) -> dict[tuple[str, str], tuple[int, int]]:
    rows = project.query("SELECT page, minute, clicks, total FROM pm")
    return {(str(p), _minute(m)): (int(str(c)), int(str(t))) for p, m, c, t in rows}


def expected_totals(project: Project) -> dict[tuple[str, str], tuple[int, int]]:
    found = project.expected().items()
    return {(page, _minute(minute.isoformat())): row[:2] for (page, minute), row in found}


def _minute(spelled: object) -> str:
    return str(spelled)[:16].replace("T", " ")


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({"per_minute": FEWER}, "migrate"),
        ({"per_minute": OTHER_ORDER}, "keep"),
        ({"sources": SOURCES.replace("n INT", "n BIGINT, more DATE")}, "rebuild"),
        ({"per_minute": FILTERED}, "rebuild"),
    ],
)
def test_state_goes_on_or_is_refused(
    project: Project, build: Build, changed: dict[str, str], verdict: str
) -> None:
    chance = random.Random(1)
    project.append("a.ndjson", random_records(chance, 300))
    before = build(limits=Admission(max_records=170))
    assert verdicts(before) == {"per_minute": "new"}
    EpochRunner(before).run()
    project.write(**changed)
    after = build()
    assert verdicts(after) == {"per_minute": verdict}
    if verdict == "rebuild":
        for _ in range(2):
            with pytest.raises(StateIncompatible, match="per_minute"):
                EpochRunner(after).run()
        project.write()
        after = build()
    EpochRunner(after).run()
    assert len(totals(project)) > 5
    assert totals(project) == expected_totals(project)


ADDED = "EMIT {} WITH ({}state.added = '{}')"
TOTALS = "SELECT page, COUNT(*) AS clicks, {} AS more FROM clicks GROUP BY page " + ADDED
HOURS = (
    "SELECT page, window_end AS until, SUM(clicks) AS clicks FROM per_minute"
    " GROUP BY TUMBLE(minute, INTERVAL '3' MINUTE), page"
)
MORE_SINKS = """
CREATE SINK totals_sink FROM totals
WITH (connector = 'sqlite', path = 'out.db', table = 'totals', mode = 'upsert', key = 'page');
CREATE SINK hours_sink FROM hours WITH (connector = 'sqlite', path = 'out.db', table = 'hours');
"""


def with_more(project: Project, *, clicks: str, more: str, buckets: int = 4) -> None:
    """Windows that show NULL for what they have missed, groups that count from then on."""
    project.write(
        per_minute=PER_MINUTE.replace("COUNT(*) AS clicks", f"COUNT(*) AS clicks, {clicks}")
        + ADDED.format("ON WINDOW CLOSE", "", "null"),
        totals=TOTALS.format(more, "CHANGES", "state.ttl = 'unbounded', ", "from_now"),
        hours=HOURS,
    )
    folder = project.root / "dbt_like_configs" / "clicks"
    (folder / "sinks.sql").write_text(SINKS + MORE_SINKS)
    config = f"name: clicks\nstore: state\nbuckets: {buckets}\n"
    (folder / "pipeline.yml").write_text(config)


def test_an_aggregate_is_added_to_open_windows_and_groups(project: Project, build: Build) -> None:
    """It is NULL, or counts from then on, where it has missed something; elsewhere it is exact."""
    chance = random.Random(8)
    first, second = random_records(chance, 260), random_records(chance, 500, begin=130)
    with_more(project, clicks="CAST(NULL AS INT) AS low", more="CAST(0 AS BIGINT)")
    project.append("a.ndjson", first)
    EpochRunner(build()).run()
    known = project.on_time()
    horizon = max(record.at for record in known)
    with_more(project, clicks="MIN(n) AS low", more="SUM(n)")
    after = build(limits=Admission(max_records=150))
    assert verdicts(after) == {"per_minute": "migrate", "totals": "migrate", "hours": "keep"}
    project.append("a.ndjson", second)
    with pytest.raises(Crash):
        EpochRunner(dataclasses.replace(after, engine=DyingEngine(after.engine))).run()
    EpochRunner(after).run()
    assert rerun(after, EpochNumber(2)).is_identical
    # Spread anew right after it, and once more in the middle of what follows.
    with_more(project, clicks="MIN(n) AS low", more="SUM(n)", buckets=3)
    after = build(limits=Admission(max_records=150))
    EpochRunner(after).run(plan_upkeep(after, Rescale(buckets_before=4, buckets_after=3)))
    last = run_until_done(after)[-1]
    assert [(each.partial, each.epoch) for entry in last.operators for each in entry.added] == [
        ("min(n)", 2),
        ("sum(n)", 2),
    ]
    assert rerun(after, last.epoch).is_identical
    _check_minutes(project, known)
    rows = {page: (clicks, more) for page, clicks, more in project.query("SELECT * FROM totals")}
    assert len(rows) == 5
    for page, found in rows.items():
        mine = [each for each in project.on_time() if each.page == page]
        since = [each.n for each in mine[sum(each.page == page for each in known) :]]
        assert found == (len(mine), sum(since))
    hours = project.query("SELECT page, until, clicks FROM hours")
    assert len(hours) > 5 and min(str(until) for _, until, _ in hours) < str(horizon)


def _check_minutes(project: Project, known: list[Record]) -> None:
    """A window and page of which something was known when the aggregate came shows NULL."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for each in project.on_time():
        if each.n >= 0:
            groups[each.page, _minute(each.at.isoformat())].append(each.n)
    began = {(each.page, _minute(each.at.isoformat())) for each in known if each.n >= 0}
    rows = project.query("SELECT page, minute, clicks, low FROM pm")
    shown = {(str(page), _minute(minute)): low for page, minute, _, low in rows}
    assert shown == {key: None if key in began else min(groups[key]) for key in shown}
    assert {None} < set(shown.values())
    assert set(shown) == set(totals(project)) == set(expected_totals(project))
    assert totals(project) == expected_totals(project)


def test_a_wider_column_is_migrated(project: Project, build: Build) -> None:
    # The sink's table stays as it is, so the output keeps its type.
    narrow = PER_MINUTE.replace("WHERE n >= 0", "").replace("MAX(n)", "CAST(MAX(n) AS INT)")
    project.write(per_minute=narrow)
    project.append("a.ndjson", random_records(random.Random(2), 300))
    EpochRunner(build(limits=Admission(max_records=170))).run()
    project.write(per_minute=narrow, sources=SOURCES.replace("n INT", "n BIGINT"))
    after = build()
    assert verdicts(after) == {"per_minute": "migrate"}
    EpochRunner(after).run()
    expected: dict[tuple[str, str], list[int]] = defaultdict(list)
    for record in project.on_time():
        expected[record.page, _minute(record.at.isoformat())].append(record.n)
    rows = project.query("SELECT page, minute, total, most FROM pm")
    assert len(rows) > 5
    for page, minute, total, most in rows:
        found = expected[str(page), _minute(minute)]
        assert (total, most) == (sum(found), max(found))


def test_a_plan_of_the_version_before_is_carried_out_by_the_new_one(
    project: Project, build: Build
) -> None:
    """As when a broken query is mended: the epoch is planned, and has to go on."""
    project.append("a.ndjson", random_records(random.Random(3), 200))
    plan(build(), EpochNumber(1))
    more = SOURCES + SOURCES.replace("clicks", "others").replace("'input'", "'more'")
    (project.root / "more").mkdir()
    project.write(sources=more, large="SELECT page, amount AS twice, at FROM others")
    after = build()
    EpochRunner(after).run()
    assert len(totals(project)) == len(project.expected())
    assert project.query("SELECT count(*) FROM pm") == [(len(project.expected()),)]
    manifest = newest_manifest(after.checkpoints, survey(after.checkpoints))
    assert manifest and manifest.fingerprint == after.fingerprint
    assert [each.source_id for each in manifest.sources] == ["clicks"]


def test_a_source_that_was_planned_must_stay(project: Project, build: Build) -> None:
    project.append("a.ndjson", random_records(random.Random(4), 50))
    plan(build(), EpochNumber(1))
    renamed = {
        name: sql.replace("FROM clicks", "FROM hits")
        for name, sql in {
            "per_minute": PER_MINUTE,
            "large": "SELECT page, amount AS twice, at FROM clicks",
        }.items()
    }
    project.write(sources=SOURCES.replace("clicks", "hits"), **renamed)
    with pytest.raises(PipelineChanged, match="no source clicks"):
        EpochRunner(build()).run()


def test_a_re_run_is_identical_and_leaves_nothing(project: Project, build: Build) -> None:
    project.append("a.ndjson", random_records(random.Random(5), 300))
    pipeline = build(limits=Admission(max_records=170))
    for _ in range(2):
        EpochRunner(pipeline).run()
    objects = sorted(info.key for info in pipeline.checkpoints.objects.list(""))
    for epoch in (EpochNumber(1), EpochNumber(2)):
        found = rerun(pipeline, epoch)
        assert found.is_identical
        assert found.compared > 8
    assert sorted(info.key for info in pipeline.checkpoints.objects.list("")) == objects
    with pytest.raises(EpochNotCommitted):
        rerun(pipeline, EpochNumber(3))
    project.write(per_minute=OTHER_ORDER)
    with pytest.raises(PipelineChanged, match="fingerprint"):
        rerun(build(), EpochNumber(1))


def test_a_model_that_is_not_deterministic_is_caught_and_named(
    project: Project, build: Build
) -> None:
    project.write(
        config="determinism: warn\n",
        large="SELECT page, rand() AS twice, at FROM clicks",
        per_minute=PER_MINUTE.replace("SUM(n)", "SUM(CAST(rand() * 1000 AS INT))"),
    )
    project.append("a.ndjson", random_records(random.Random(6), 300))
    pipeline = build()
    EpochRunner(pipeline).run()
    found = rerun(pipeline, EpochNumber(1))
    named = {(each.kind, each.name.partition(":")[0]) for each in found.differences}
    assert ("sink", "big") in named
    assert ("sink", "table_sink") in named
    assert ("operator", "per_minute") in named
    assert ("counts", "records") not in named
