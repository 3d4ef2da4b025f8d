"""``laminar fork``, ``laminar branch`` and ``laminar promote``, without Spark."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from laminar_dagster.cli.main import cli
from laminar_dagster.core import layout
from laminar_dagster.core.ids import BranchName
from laminar_dagster.runtime.branches.promoting import Promoter
from laminar_dagster.runtime.branches.records import mark_dropped
from laminar_dagster.stores.local import LocalStore
from tests.unit.cli.conditions import Laminar, Project, flip_bit
from tests.unit.runtime.branches.conditions import FIX, RIGHT, Version, World


@pytest.fixture
def world(project: Project) -> World:
    """A pipeline in memory in the project's store: three epochs, and a branch from the first."""
    world = World(LocalStore(project.store))
    world.arrive(1, 2, 3, 4, 5, 6)
    world.run(3)
    return world


@pytest.fixture
def laminar(project: Project, world: World) -> Laminar:
    return project.laminar


# --- list ---------------------------------------------------------------------------------------


def test_branches_are_listed_with_how_far_they_are(laminar: Laminar, world: World) -> None:
    assert "has no branch" in laminar("branch", "list").stdout
    assert laminar.json("branch", "list") == {"pipeline": "clicks", "branches": []}
    replay = world.fork(1)
    assert "2 epochs behind" in laminar("branch", "list").stdout
    [*replay.run()]
    assert "caught up" in laminar("branch", "list", "clicks").stdout
    Promoter(world.main(RIGHT), replay).promote()
    world.run(1, RIGHT)
    assert "promoted in epoch 4" in laminar("branch", "list").stdout
    (found,) = laminar.json("branch", "list")["branches"]
    assert found == {
        "branch": "fix",
        "state": "promoted",
        "from_epoch": 1,
        "at_epoch": 3,
        "behind": 0,
        "promoted_in": 4,
        "fingerprint": "right",
        "created_at": "2026-01-01T00:00:00Z",
        "sinks": ["table", "log"],
    }


def test_a_branch_that_is_being_dropped_says_so(laminar: Laminar, world: World) -> None:
    world.fork(1)
    mark_dropped(world.store, FIX, world.clock)
    assert "being dropped" in laminar("branch", "list").stdout
    error = laminar.error("branch", "diff", "fix", exit_code=3)
    assert error["kind"] == "branch_mismatch"
    assert laminar("branch", "drop", "fix", "--yes").exit_code == 0


def test_a_damaged_record_is_an_integrity_error(
    laminar: Laminar, world: World, project: Project
) -> None:
    world.fork(1)
    flip_bit(project.store / layout.branch_key(FIX))
    laminar.error("branch", "list", exit_code=4)
    laminar.error("checkpoints", "gc", "--pipeline", "clicks", exit_code=4)


# --- diff ---------------------------------------------------------------------------------------


def test_differences_are_shown_with_a_sample(laminar: Laminar, world: World) -> None:
    [*world.fork(1).run()]
    shown = laminar("branch", "diff", "clicks", "fix", "--limit", "1").stdout
    assert "Where they differ, 2 epochs compared" in shown
    assert "table: only in the pipeline, the first 1" in shown
    assert "log" not in shown
    found = laminar.json("branch", "diff", "fix", "--limit", "all")
    assert (found["is_same"], found["behind"]) == (False, 0)
    table, log = found["sinks"]
    assert (table["sink"], table["only_main"], table["only_branch"]) == ("table", 4, 4)
    assert [each["epoch"] for each in table["epochs"]] == [2, 3]
    assert [each["total"] for each in table["sample_main"]] == [6, 10, 15, 21]
    assert [each["total"] for each in table["sample_branch"]] == [9, 17, 27, 39]
    assert (log["only_main"], log["sample_main"]) == (0, [])
    assert all(each["is_same"] for each in log["epochs"])


def test_a_branch_that_is_alike_says_so(laminar: Laminar, world: World) -> None:
    [*world.fork(3).run()]
    assert "the same rows" in laminar("branch", "diff", "fix").stdout


def test_a_branch_that_is_behind_is_warned_about(laminar: Laminar, world: World) -> None:
    world.fork(1)
    assert "the branch is 2 epochs behind" in laminar("branch", "diff", "fix").stderr


# --- drop ---------------------------------------------------------------------------------------


def test_a_branch_is_dropped_when_somebody_says_yes(
    laminar: Laminar, world: World, project: Project
) -> None:
    world.fork(1)
    tables = project.root / "branches" / "memory" / "fix" / "table"
    tables.mkdir(parents=True)
    assert laminar("branch", "drop", "fix").exit_code == 130
    asked = CliRunner().invoke(cli, [*laminar.before, "branch", "drop", "fix"], input="n\n")
    assert asked.exit_code == 130
    assert tables.exists()
    assert "say --yes" in laminar.json("branch", "drop", "fix", exit_code=2)["error"]["message"]
    found = laminar.json("branch", "drop", "clicks", "fix", "--yes")
    assert (found["branch"], found["objects"] > 3) == ("fix", True)
    assert not tables.exists()
    assert [*world.store.list(layout.BRANCHES)] == []


# --- wrong names --------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["diff", "drop", "run", "promote"])
def test_an_unknown_branch_is_named_with_those_there_are(
    laminar: Laminar, world: World, command: str
) -> None:
    group = [command] if command == "promote" else ["branch", command]
    more = ["--yes"] if command == "drop" else []
    assert "laminar fork" in laminar.error(*group, "fax", *more, exit_code=2)["hint"]
    world.fork(1, name=BranchName("fix"))
    error = laminar.error(*group, "fax", *more, exit_code=2)
    assert (error["kind"], error["hint"]) == ("unknown_branch", "there is: fix")


def test_names_that_cannot_be(laminar: Laminar) -> None:
    assert laminar("branch", "diff", "a", "b", "c").exit_code == 2
    assert laminar("branch", "diff").exit_code == 2
    for name, kind in (("../x", "invalid_name"), ("a b", "invalid_name"), ("", "usage")):
        error = laminar.error("fork", "--from-epoch", "0", "--as", name, exit_code=2)
        assert error["kind"] == kind
    error = laminar.error("branch", "diff", "nowhere", "fix", exit_code=2)
    assert error["kind"] == "unknown_pipeline"


# --- fork ---------------------------------------------------------------------------------------


def test_a_fork_that_cannot_be_is_refused_before_spark_starts(
    laminar: Laminar, world: World
) -> None:
    def refused(epoch: str, exit_code: int) -> str:
        found = laminar.error("fork", "--from-epoch", epoch, "--as", "new", exit_code=exit_code)
        return str(found["kind"])

    assert refused("9", 2) == "epoch_not_committed"
    # The pipeline in memory wrote down nothing of what it computes.
    assert refused("1", 3) == "cannot_fork"
    assert laminar("fork", "--from-epoch", "-1", "--as", "new").exit_code == 2
    assert laminar("fork", "--as", "new").exit_code == 2
    assert [*world.store.list(layout.BRANCHES)] == []


def test_a_name_that_is_taken_is_refused(laminar: Laminar, world: World) -> None:
    world.fork(1)
    error = laminar.error("fork", "--from-epoch", "0", "--as", "fix", exit_code=3)
    assert error["kind"] == "branch_mismatch"
    assert "from epoch 1, not 0" in error["message"]
    # It was made by another version than the project's.
    for command in (("branch", "run", "fix"), ("promote", "fix")):
        assert laminar.error(*command, exit_code=3)["kind"] == "branch_mismatch"


def test_a_plan_says_that_the_version_was_replaced(project: Project) -> None:
    laminar, world = project.laminar, World(LocalStore(project.store))
    mine = Version(laminar.json("plan")["fingerprint"])
    world.arrive(1, 2)
    world.run(1, mine)
    assert laminar.json("plan")["is_replaced"] is False
    Promoter(world.main(RIGHT), world.fork(0)).promote()
    assert laminar.json("plan", exit_code=3)["is_replaced"] is True
    assert "a branch was promoted in place of this version" in laminar("plan").stdout


def test_a_pipeline_that_has_not_run_has_no_branches(project: Project) -> None:
    laminar = project.laminar
    for command in (
        ("fork", "--from-epoch", "0", "--as", "fix"),
        ("branch", "list"),
        ("branch", "diff", "fix"),
        ("promote", "fix"),
    ):
        assert laminar.error(*command, exit_code=2)["kind"] == "no_epochs"
    assert not project.store.exists()
