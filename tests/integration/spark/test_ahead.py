"""A record from the year 9999: set aside by name, or, once let in, put right by a branch."""

from __future__ import annotations

import json
import random
from datetime import timedelta

import pytest

from laminar_dagster.core.errors import DecodeFailed
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.ports import Admission
from laminar_dagster.runtime.branches.promoting import Promoter
from laminar_dagster.runtime.clock import SystemClock
from laminar_dagster.runtime.dead_letters import letters_of, read_letters, replay_letters
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.figures import watermarks_ahead
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.rerun import rerun
from tests.integration.spark.branches import Branch, run
from tests.integration.spark.conftest import Build
from tests.integration.spark.project import SOURCES, Project, random_records, run_until_done

FAR = json.dumps({"page": "p1", "amount": 0.95, "price": 1, "n": 1, "at": "9999-12-31T23:59:59Z"})
UNBOUNDED = SOURCES.replace("'idle.timeout'", "'watermark.max.ahead' = 'unbounded', 'idle.timeout'")
UPSERTS = """
CREATE SINK table_sink FROM per_minute
WITH (connector = 'sqlite', path = 'out.db', table = 'pm', mode = 'upsert', key = 'page, minute');
"""
PUBLISHED = "SELECT page, minute, clicks, total FROM pm ORDER BY 1, 2"


def arrive(project: Project, seed: int, begin: float) -> None:
    """Five minutes of clicks, with one of the year 9999 among the first."""
    found = random_records(random.Random(seed), 600, begin=begin)
    project.append("a", [*found[:20], FAR, *found[20:]])


def minutes(project: Project) -> list[tuple[object, ...]]:
    """The windows that must have been put out."""
    return sorted(
        (page, minute.strftime("%Y-%m-%d %H:%M:%S"), count, total)
        for (page, minute), (count, total, *_) in project.expected().items()
    )


def published(project: Project) -> list[tuple[object, ...]]:
    return [
        (page, str(minute).replace("T", " ")[:19], clicks, total)
        for page, minute, clicks, total in project.query(PUBLISHED)
    ]


def letters(pipeline: Pipeline, manifests: list[CheckpointManifest]) -> list[dict[str, object]]:
    """The bad records that are too far ahead."""
    found: list[dict[str, object]] = []
    for each in (letter for manifest in manifests for letter in letters_of(manifest)):
        if each.kind == "bad":
            for table in read_letters(pipeline.checkpoints, each):
                found += table.to_pylist()
    return [each for each in found if "ahead" in str(each["reason"])]


def test_it_goes_to_the_dead_letters_and_windows_close(project: Project, build: Build) -> None:
    arrive(project, 1, 0)
    arrive(project, 2, 300)
    pipeline = build(limits=Admission(max_records=500))
    manifests = run_until_done(pipeline)
    assert len(manifests) > 2
    assert published(project) == minutes(project) != []
    big = project.query("SELECT page, twice FROM large")
    assert sorted((str(page), twice) for page, twice in big) == project.expected_large()
    found = letters(pipeline, manifests)
    assert [each["raw"] for each in found] == [FAR.encode()] * 2
    plan = pipeline.checkpoints.plan(EpochNumber(1))
    assert plan
    # Of a fraction, as many digits as it has.
    clock, _, fraction = plan.clock.isoformat().removesuffix("+00:00").partition(".")
    clock = f"{clock}.{fraction.rstrip('0')}".rstrip(".")
    assert found[0]["reason"] == (
        "event time 9999-12-31T23:59:59Z is further ahead of the epoch's clock, "
        f"{clock}Z, than `watermark.max.ahead` = '1d' "
        "allows"
    )
    readings = [each.reading for source in manifests for each in source.sources if each.reading]
    assert sum(each.ahead for each in readings) == 2
    assert all(each.counts.is_balanced for each in manifests)
    assert watermarks_ahead(manifests[-1], SystemClock().now()) == ()
    # Run again with another bound, an epoch keeps that of its plan.
    project.write(sources=UNBOUNDED)
    later = build()
    assert rerun(later, EpochNumber(1)).is_identical
    # And whoever has decided that it is right takes it back, as any other row.
    first = next(each for each in letters_of(manifests[0]) if each.kind == "bad")
    assert replay_letters(later.checkpoints, later.sources, first).records
    report = EpochRunner(later).run()
    manifest = later.checkpoints.manifest(report.checkpoint_id)
    assert manifest and manifest.counts.processed == 1
    assert ("P1", 1.9) in project.query("SELECT page, twice FROM large WHERE at LIKE '9999%'")


def test_it_stops_a_pipeline_that_stops_at_bad_records(project: Project, build: Build) -> None:
    project.write(config="on_bad_record: fail\n")
    project.append("a", [FAR])
    with pytest.raises(DecodeFailed, match="9999-12-31T23:59:59Z is further ahead"):
        EpochRunner(build()).run()


def test_a_branch_puts_right_what_it_did_before_there_was_a_bound(
    project: Project, build: Build, branch: Branch
) -> None:
    project.write(sources=UNBOUNDED)
    (project.root / "dbt_like_configs" / "clicks" / "sinks.sql").write_text(UPSERTS)
    arrive(project, 1, 0)
    run(build(), 1)
    project.append("a", random_records(random.Random(2), 600, begin=300))
    before = build()
    run(before, 1)
    assert published(project) != minutes(project)
    stored = before.checkpoints.winner(EpochNumber(2)).manifest
    assert stored.counts.processed == 0 < stored.counts.late
    (told,) = watermarks_ahead(stored, SystemClock().now())
    assert told.ahead > timedelta(days=365 * 7000)

    project.write(sources=SOURCES)
    (project.root / "dbt_like_configs" / "clicks" / "sinks.sql").write_text(UPSERTS)
    # The plans of before have no bound, and give what they gave.
    assert rerun(build(), EpochNumber(1)).is_identical
    replay = branch("fix").fork(0)
    assert [each.report.epoch for each in replay.run()] == [1, 2]
    promoted = Promoter(build(), replay).promote()
    assert promoted.epoch == 3
    assert published(project) == minutes(project)
    # The pipeline goes on from there.
    project.append("a", random_records(random.Random(3), 200, begin=600))
    run(build(), 1)
    assert published(project) == minutes(project)
    latest = build().checkpoints.winner(EpochNumber(4)).manifest
    assert watermarks_ahead(latest, SystemClock().now()) == ()
