"""A bug is fixed in a branch, and promoted: the sinks hold the answer of the fixed model."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from laminar_dagster.cli.main import cli
from laminar_dagster.core.errors import (
    CannotFork,
    CannotRetract,
    PipelineChanged,
    VersionReplaced,
)
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.ports import Admission
from laminar_dagster.runtime.branches.promoting import Promoter
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.rerun import rerun
from laminar_dagster.testing.crash import Crash
from laminar_dagster.testing.faulty_store import Fault, FaultyStore
from tests.integration.spark.branches import Branch, crash_until_done, run, totals
from tests.integration.spark.conftest import Build
from tests.integration.spark.project import LARGE, PER_MINUTE, Project, random_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SINKS = """
CREATE SINK table_sink FROM per_minute WITH (
  connector = 'sqlite', path = 'out.db', table = 'pm', mode = 'upsert', key = 'page, minute');
CREATE SINK lake FROM large WITH (connector = 'delta', path = 'lake');
CREATE SINK recent_sink FROM recent WITH (
  connector = 'sqlite', path = 'out.db', table = 'recent', mode = 'upsert', key = 'page, n');
"""
# Groups that come and go: each is a row of the sink until it was silent for long.
SILENCE = timedelta(seconds=15)
RECENT = """SELECT page, n, COUNT(*) AS clicks, SUM(price) AS money FROM clicks WHERE n >= 0
GROUP BY page, n EMIT CHANGES WITH (state.ttl = '15s')"""
WRONG_RECENT = RECENT.replace("n >= 0", "n >= 2 AND amount > 0.1")
# A window that should be counted is left out, and rows of every window are.
WRONG_FILTER = PER_MINUTE.replace("n >= 0", "n >= 1").replace("COUNT(*) > 1", "COUNT(*) > 3")
WRONG_KEYS = PER_MINUTE.replace("SELECT page,", "SELECT upper(page) AS page,")
TOO_FEW = LARGE.replace("0.9", "0.95")
SOME = Admission(max_records=150)


def lay_out(project: Project, **models: str) -> None:
    project.write(**{"recent": RECENT, **models})
    (project.root / "dbt_like_configs" / "clicks" / "sinks.sql").write_text(SINKS)


def windows(project: Project) -> dict[tuple[str, str], tuple[object, ...]]:
    rows = project.query("SELECT page, minute, clicks, total, mean FROM pm")
    return {(str(page), _minute(minute)): tuple(rest) for page, minute, *rest in rows}


def right_windows(project: Project) -> dict[tuple[str, str], tuple[object, ...]]:
    return {
        (page, _minute(minute.isoformat())): (row[0], row[1], row[3])
        for (page, minute), row in project.expected().items()
    }


def recent(project: Project) -> dict[tuple[str, int], int]:
    rows = project.query("SELECT page, n, clicks FROM recent")
    return {(str(page), int(str(n))): int(str(clicks)) for page, n, clicks in rows}


def right_recent(project: Project) -> dict[tuple[str, int], int]:
    """How many clicks the newest stretch of each group has, if it has not ended."""
    known: dict[tuple[str, int], list[datetime]] = defaultdict(list)
    for each in sorted(project.on_time(), key=lambda record: record.at):
        if each.n >= 0:
            mine = known[each.page, each.n]
            if mine and each.at >= mine[-1] + SILENCE:
                mine.clear()
            mine.append(each.at)
    mark = project.watermark()
    return {key: len(times) for key, times in known.items() if times[-1] + SILENCE > mark}


def _minute(spelled: object) -> str:
    return str(spelled)[:16].replace("T", " ")


def lake(folder: Path) -> Counter[tuple[object, ...]]:
    rows = DeltaTable(folder).to_pyarrow_table().to_pylist()
    return Counter((row["page"], row["twice"]) for row in rows)


def test_a_fix_that_changes_the_state_is_forked_from_the_beginning(
    project: Project, build: Build, branch: Branch
) -> None:
    lay_out(project, per_minute=WRONG_FILTER, large=TOO_FEW, recent=WRONG_RECENT)
    chance = random.Random(11)
    project.append("a.ndjson", random_records(chance, 400))
    wrong = build(limits=SOME)
    run(wrong, 2)
    lay_out(project)
    fix = branch("fix")
    with pytest.raises(CannotFork, match=r"epoch 1: operator per_minute.*filter"):
        fix.fork(1)
    replay = fix.fork(0)
    objects = {info.key for info in fix.main.objects.list("epochs/")}
    assert [done.report.epoch for done in replay.run()] == [1, 2]
    # The pipeline went on meanwhile, with what it has loaded, and nobody noticed.
    run(wrong, 1)
    assert {info.key for info in fix.main.objects.list("epochs/")} > objects
    assert windows(project) != right_windows(project)
    assert recent(project) != right_recent(project)
    found = totals(fix.main, replay.record)
    assert found["lake"][0] == 0 < found["lake"][1]
    assert min(found["table_sink"]) > 0
    # Promoted by a process that is killed again and again; it replays epoch 3 on the way.
    fixed = build(limits=SOME)
    assert crash_until_done(fixed, replay) > 1
    assert windows(project) == right_windows(project)
    assert recent(project) == right_recent(project)
    assert lake(project.root / "lake") == Counter(project.expected_large())
    assert lake(project.root / "branches" / "clicks" / "fix" / "lake") == lake(
        project.root / "lake"
    )
    assert rerun(fixed, EpochNumber(4)).is_identical
    # Promoted is promoted, and what was replaced cannot go on.
    promoted = Promoter(fixed, replay).promote()
    assert (promoted.epoch, promoted.report) == (4, None)
    with pytest.raises(VersionReplaced, match="epoch 5"):
        run(wrong, 1)
    project.append("a.ndjson", random_records(chance, 150, begin=200))
    run(fixed, 2)
    with pytest.raises(VersionReplaced, match="epoch 7"):
        run(wrong, 1)
    assert len(windows(project)) > 10
    assert windows(project) == right_windows(project)
    assert len(recent(project)) > 5
    assert recent(project) == right_recent(project)
    assert lake(project.root / "lake") == Counter(project.expected_large())


def test_a_bad_version_is_taken_back_from_where_it_began(
    project: Project, build: Build, branch: Branch
) -> None:
    lay_out(project)
    chance = random.Random(12)
    project.append("a.ndjson", random_records(chance, 400))
    good = build(limits=SOME)
    run(good, 1)
    lay_out(project, per_minute=WRONG_KEYS)
    bad = build(limits=SOME)
    run(bad, 2)
    wrong = {key for key in windows(project) if key not in right_windows(project)}
    assert len(wrong) > 5
    lay_out(project)
    back = branch("back")
    replay = back.fork(1)
    assert [done.report.epoch for done in replay.run()] == [2, 3]
    both = (len(wrong), len(wrong))
    assert totals(back.main, replay.record) == {
        "lake": (0, 0),
        "recent_sink": (0, 0),
        "table_sink": both,
    }
    # The plan is there, and its author gone: the version that is replaced leaves it alone.
    with pytest.raises(Crash):
        Promoter(dies_after_planning(good), replay).promote()
    with pytest.raises(PipelineChanged, match="promotion of branch back"):
        run(bad, 1)
    run(good, 1)
    assert windows(project) == right_windows(project)
    project.append("a.ndjson", random_records(chance, 150, begin=200))
    run(good, 1)
    with pytest.raises(VersionReplaced):
        run(bad, 1)
    assert windows(project) == right_windows(project)
    assert recent(project) == right_recent(project)
    assert lake(project.root / "lake") == Counter(project.expected_large())


def dies_after_planning(pipeline: Pipeline) -> Pipeline:
    """A process that is gone as soon as it has planned an epoch."""
    inner = pipeline.checkpoints.objects

    def fault() -> Fault | None:
        before = store.operations[:-1]
        has_planned = any(name == "create" and "plan" in key for name, key in before)
        return Fault.CRASH_BEFORE if has_planned else None

    store = FaultyStore(inner, fault)
    return replace(pipeline, checkpoints=CheckpointStore(store))


def test_a_sink_that_would_have_to_forget_is_refused_before_anything_changes(
    project: Project, build: Build, branch: Branch
) -> None:
    lay_out(project)
    project.append("a.ndjson", random_records(random.Random(13), 200))
    main = build()
    run(main, 1)
    lay_out(project, large=TOO_FEW)
    fix = branch("fix")
    replay = fix.fork(0)
    assert len([*replay.run()]) == 1
    keys = sorted(info.key for info in main.checkpoints.objects.list(""))
    before = windows(project), lake(project.root / "lake")
    fewer = lake(project.root / "branches" / "clicks" / "fix" / "lake")
    gone = sum((lake(project.root / "lake") - fewer).values())
    with pytest.raises(CannotRetract, match=f"sink lake: it appends, and holds {gone} rows"):
        Promoter(build(), replay).promote()
    assert sorted(info.key for info in main.checkpoints.objects.list("")) == keys
    assert (windows(project), lake(project.root / "lake")) == before
    # The version that is there goes on.
    run(main, 1)


def test_the_command_line_from_a_wrong_model_to_a_right_one(
    project: Project, spark: SparkSession
) -> None:
    def laminar(*args: str, exit_code: int = 0) -> Any:
        result = CliRunner().invoke(cli, ["--project", str(project.root), *args, "--json"])
        assert result.exit_code == exit_code, result.output
        return json.loads(result.stdout)

    lay_out(project, per_minute=WRONG_FILTER)
    project.append("a.ndjson", random_records(random.Random(14), 300))
    laminar("run", "--epochs", "1")
    lay_out(project)
    refused = laminar("fork", "--from-epoch", "1", "--as", "fix", exit_code=3)
    assert "--from-epoch 0" in refused["error"]["hint"]
    made = laminar("fork", "--from-epoch", "0", "--as", "fix")
    assert ([each["epoch"] for each in made["epochs"]], made["from_epoch"]) == ([1], 0)
    found = laminar("branch", "diff", "fix", "--limit", "2")
    (table,) = (each for each in found["sinks"] if each["sink"] == "table_sink")
    assert table["only_branch"] > 2 == len(table["sample_branch"])
    assert laminar("branch", "run", "fix")["epochs"] == []
    promoted = laminar("promote", "fix")
    assert (promoted["epoch"], promoted["was_promoted_before"]) == (2, False)
    assert laminar("promote", "clicks", "fix")["was_promoted_before"] is True
    assert windows(project) == right_windows(project)
    assert laminar("branch", "list")["branches"][0]["promoted_in"] == 2
    assert laminar("epochs", "show", "2")["epoch"] == 2
    assert laminar("plan")["verdict"] == "keep"
    assert laminar("branch", "drop", "fix", "--yes")["branch"] == "fix"
    assert not (project.root / "branches" / "clicks" / "fix").exists()
    assert laminar("checkpoints", "verify", "--pipeline", "clicks")["is_whole"] is True
    # Without the branch the promotion itself cannot be run again, and says so.
    assert laminar("verify", "--epoch", "2", exit_code=2)["error"]["kind"] == "unknown_branch"
