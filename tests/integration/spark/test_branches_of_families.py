"""Branches over joins, reference tables, rows that become several, and models in Python.

A wrong version runs for two epochs, between which the reference tables change. The right one is
forked, compared and promoted; afterwards every sink holds what DuckDB gives.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from laminar_dagster.core.errors import CannotFork, VersionReplaced
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.runtime.branches.promoting import Promoter
from laminar_dagster.runtime.branches.replaying import Replay
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.rerun import rerun
from tests.integration.spark.branches import Branch, Branched, crash_until_done, run, totals
from tests.integration.spark.conftest import Build
from tests.integration.spark.features import Feature, answers, lay_out, published, write_references
from tests.integration.spark.project import Project, Record, random_records
from tests.integration.spark.test_python_models import FEATURES as OVER_PYTHON
from tests.integration.spark.test_python_models import NUMBERED, PYTHON, SPREAD
from tests.integration.spark.test_sql_explode import FEATURES as EXPLODED
from tests.integration.spark.test_sql_groups import FEATURES as GROUPS
from tests.integration.spark.test_sql_joins import JOINS
from tests.integration.spark.test_sql_references import FEATURES as REFERENCED

# Many views in every epoch.
pytestmark = pytest.mark.timeout(900)

Features = Mapping[str, Feature]


@dataclass
class Repair:
    """A wrong version of some features, and how it is put right."""

    project: Project
    build: Build
    right: Features
    python: Mapping[str, str]
    later: list[Record | str]

    def run_wrong(self, wrong: Features, python: Mapping[str, str], seed: int) -> Pipeline:
        """Two epochs of the wrong version, each with a state of the reference tables of its own."""
        chance = random.Random(seed)
        records = random_records(chance, 300)
        lay_out(self.project, {**self.right, **wrong}, {**self.python, **python}, buckets=2)
        pipeline = self.build()
        write_references(self.project, 1)
        self.project.append("a.ndjson", records[:140])
        run(pipeline, 1)
        write_references(self.project, 2)
        self.later += records[140:]
        self.project.append("a.ndjson", records[140:])
        run(pipeline, 1)
        assert not self.is_right()
        return pipeline

    def replay(self, branch: Branch) -> tuple[Branched, Replay]:
        """The right version in a branch, while the tables that the plans have pinned are away."""
        lay_out(self.project, self.right, self.python, buckets=2)
        shutil.rmtree(self.project.root / "tags")
        (self.project.root / "titles.csv").unlink()
        fix = branch("fix")
        replay = fix.fork(0)
        assert [done.report.epoch for done in replay.run()] == [1, 2]
        write_references(self.project, 2)
        return fix, replay

    def go_on(self, wrong: Pipeline, right: Pipeline) -> None:
        """The right version goes on, and the wrong one cannot."""
        assert self.is_right()
        assert rerun(right, EpochNumber(3)).is_identical
        with pytest.raises(VersionReplaced):
            run(wrong, 1)
        more = random_records(random.Random(3), 80, begin=150)
        self.later += more
        self.project.append("a.ndjson", more)
        run(right, 1)
        assert self.is_right()

    def is_right(self) -> bool:
        found = published(self.project, self.right)
        expected = answers(self.project, self.right, self.later)
        return all(found[name] == expected[name] for name in self.right)


def changed(feature: Feature, old: str, new: str) -> Feature:
    assert old in feature.sql
    return replace(feature, sql=feature.sql.replace(old, new))


def test_joins_are_put_right_under_crashes(project: Project, build: Build, branch: Branch) -> None:
    below = {name: GROUPS[name] for name in ("totals", "best")}
    names = ("followed", "answered", "with_totals", "unlike")
    repair = Repair(project, build, {**below, **{name: JOINS[name] for name in names}}, {}, [])
    wrong = repair.run_wrong(
        {
            "followed": changed(JOINS["followed"], "> 2", "> 9"),
            "with_totals": changed(JOINS["with_totals"], "clicks > 40", "clicks > 20"),
            "unlike": changed(JOINS["unlike"], "a.n > b.n", "a.n > b.n + 1"),
        },
        {},
        seed=21,
    )
    fix, replay = repair.replay(branch)
    found = totals(fix.main, replay.record)
    assert found["to_answered"] == found["to_totals"] == (0, 0)
    assert found["to_followed"][0] == 0 < found["to_followed"][1]
    assert found["to_unlike"][0] > 0
    right = build()
    assert crash_until_done(right, replay) > 1
    repair.go_on(wrong, right)


def test_tables_and_exploded_rows_are_replayed_with_what_the_plans_have_pinned(
    project: Project, build: Build, branch: Branch
) -> None:
    features = {
        **REFERENCED,
        "tagged": replace(REFERENCED["tagged"], key="tag, until"),
        "by_letter": replace(EXPLODED["by_letter"], key="letter, until"),
        "sizes": EXPLODED["sizes"],
    }
    repair = Repair(project, build, features, {}, [])
    wrong = repair.run_wrong(
        {
            "tagged": changed(features["tagged"], "n <> 4", "n <> 5"),
            "any_tag": changed(features["any_tag"], "page = of_page", "page = of_page AND n > 1"),
            "by_letter": changed(features["by_letter"], "'c', 'd'", "'d', 'c'"),
            "sizes": changed(features["sizes"], "'a', 'b'", "'b', 'x'"),
        },
        {},
        seed=22,
    )
    fix, replay = repair.replay(branch)
    found = totals(fix.main, replay.record)
    assert found["to_titled"] == found["to_untagged"] == (0, 0)
    for name in ("tagged", "any_tag", "by_letter", "sizes"):
        assert min(found[f"to_{name}"]) > 0, name
    right = build()
    Promoter(right, replay).promote()
    repair.go_on(wrong, right)


def test_models_in_python_are_put_right(project: Project, build: Build, branch: Branch) -> None:
    keys = {"turns": "page, until", "told": "page, until", "numbers": "page, n, us"}
    features = {name: replace(OVER_PYTHON[name], key=key) for name, key in keys.items()}
    repair = Repair(project, build, features, PYTHON, [])
    mistakes = {
        "spread": SPREAD.replace('clicks["n"], 0)', 'clicks["n"], 1)'),
        "numbered": NUMBERED.replace("0), 1)", "0), 2)"),
    }
    assert all(mistakes[name] != PYTHON[name] for name in mistakes)
    wrong = repair.run_wrong({}, mistakes, seed=23)
    lay_out(project, features, PYTHON, buckets=2)
    # What a function gave is in the state of what reads it.
    with pytest.raises(CannotFork, match="epoch 1: operator"):
        branch("too_late").fork(1)
    fix, replay = repair.replay(branch)
    found = totals(fix.main, replay.record)
    assert min(found["to_numbers"]) > 0
    assert max(found["to_turns"]) > 0 < max(found["to_told"])
    right = build()
    Promoter(right, replay).promote()
    repair.go_on(wrong, right)
