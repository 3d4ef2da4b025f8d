from __future__ import annotations

from datetime import timedelta

import pytest

from laminar_dagster.core import layout
from laminar_dagster.core.ids import EpochNumber
from tests.unit.cli.conditions import History, Laminar, flip_bit, older


def test_a_dry_run_removes_nothing(laminar: Laminar, history: History) -> None:
    before = history.files()
    for args in (("--json",), ()):
        assert laminar("checkpoints", "gc", "--retain", "2", "--dry-run", *args).exit_code == 0
    assert history.files() == before


def test_removes_exactly_what_the_dry_run_said(laminar: Laminar, history: History) -> None:
    attempt = history.attempt(3)
    for path in history.root.rglob("*.json"):
        older(path, timedelta(hours=2))
    before = history.files()
    promised = laminar.json("checkpoints", "gc", "--retain", "2", "--dry-run")
    sizes = {name: (history.root / name).stat().st_size for name in before}
    done = laminar.json("checkpoints", "gc", "--retain", "2")

    assert (promised.pop("is_dry_run"), done.pop("is_dry_run")) == (True, False)
    assert promised == done
    assert before - history.files() == set(done["removed"]["objects"])
    assert done["removed"]["bytes"] == sum(sizes[name] for name in done["removed"]["objects"])
    assert sorted(done["removed"]["checkpoints"]) == [history.ids[epoch] for epoch in (1, 2, 3)]
    assert done["removed"]["attempts"] == [attempt]
    assert done["retained"] == [
        {"checkpoint_id": history.ids[epoch], "epoch": epoch} for epoch in (5, 4)
    ]
    # What is left is whole, and a second run finds nothing.
    assert laminar.json("checkpoints", "verify")["checkpoints"] == 2
    assert laminar.json("checkpoints", "gc", "--retain", "2")["removed"]["objects"] == []


def test_tells_people_what_goes_and_what_stays(laminar: Laminar, history: History) -> None:
    plan = laminar("checkpoints", "gc", "--retain", "2", "--dry-run")
    assert (plan.exit_code, plan.stderr) == (0, "")
    assert plan.stdout.startswith("Stays\n")
    stays, goes = plan.stdout.split("Would go")
    assert [history.ids[epoch] in stays for epoch in range(1, 6)] == [False] * 3 + [True] * 2
    assert [history.ids[epoch] in goes for epoch in range(1, 6)] == [True] * 3 + [False] * 2
    assert "Would remove 3 checkpoints, " in goes
    done = laminar("checkpoints", "gc", "--retain", "2").stdout
    assert "Would" not in done
    assert "Removed 3 checkpoints, " in done
    assert "2 checkpoints kept." in done
    assert "No garbage. 2 checkpoints kept." in laminar("checkpoints", "gc").stdout


def test_keeps_ten_unless_told_otherwise(laminar: Laminar, history: History) -> None:
    history.run(7)
    done = laminar.json("checkpoints", "gc", "--dry-run")
    assert [row["epoch"] for row in done["retained"]] == list(range(12, 2, -1))


def test_spares_an_attempt_within_the_grace_period(laminar: Laminar, history: History) -> None:
    attempt = history.attempt(3)
    older(history.root / layout.attempt_key(attempt), timedelta(minutes=50))
    assert laminar.json("checkpoints", "gc", "--dry-run")["removed"]["attempts"] == []
    found = laminar.json("checkpoints", "gc", "--dry-run", "--grace", "45m")
    assert found["removed"]["attempts"] == [attempt]


def test_leaves_strangers_alone(laminar: Laminar, history: History) -> None:
    stranger = history.root / "checkpoints" / "notes.txt"
    stranger.write_text("mine")
    assert laminar.json("checkpoints", "gc", "--retain", "1")["foreign"] == [
        "checkpoints/notes.txt"
    ]
    assert "Left alone, not known to be garbage: 1 object" in laminar("checkpoints", "gc").stdout
    assert stranger.read_text() == "mine"


def test_clears_unfinished_writes(laminar: Laminar, history: History) -> None:
    leftover = history.root / ".tmp" / "half"
    leftover.write_bytes(b"half")
    older(leftover, timedelta(hours=2))
    assert "Cleared 1 unfinished write." in laminar("checkpoints", "gc").stdout
    assert not leftover.exists()


def test_removes_nothing_when_what_stays_is_damaged(laminar: Laminar, history: History) -> None:
    history.flip(4, "manifest.json")
    before = history.files()
    error = laminar.error("checkpoints", "gc", "--retain", "2", exit_code=4)
    assert error["kind"] == "checksum_mismatch"
    assert history.files() == before


def test_a_long_list_is_cut_for_people_and_whole_for_programs(
    laminar: Laminar, history: History
) -> None:
    history.run(18)
    args = ("checkpoints", "gc", "--retain", "1", "--dry-run")
    assert "2 more; --json lists every one." in laminar(*args).stdout
    assert len(laminar.json(*args)["removed"]["checkpoints"]) == 22


@pytest.mark.parametrize("retain", ["0", "-1", "ten", "1.5", ""])
def test_refuses_to_keep_nothing(laminar: Laminar, history: History, retain: str) -> None:
    before = history.files()
    error = laminar.error("checkpoints", "gc", "--retain", retain, exit_code=2)
    assert "--retain" in error["message"]
    assert history.files() == before


@pytest.mark.parametrize("grace", ["1", "h", "-1h", "1y", "1h 1x", "", "ten minutes", "9999999d"])
def test_refuses_a_grace_that_is_no_duration(laminar: Laminar, grace: str) -> None:
    error = laminar.error("checkpoints", "gc", "--grace", grace, exit_code=2)
    assert "--grace" in error["message"]


def test_an_empty_store_has_no_garbage(empty: Laminar) -> None:
    assert empty.json("checkpoints", "gc")["removed"]["objects"] == []
    assert empty("checkpoints", "gc").stdout == "No garbage. 0 checkpoints kept.\n"


def test_a_lost_pointer_costs_no_checkpoint_that_may_be_needed(
    laminar: Laminar, history: History
) -> None:
    flip_bit(history.root / layout.LATEST)
    done = laminar.json("checkpoints", "gc", "--retain", "1")
    assert [row["epoch"] for row in done["retained"]] == [5, 4, 3, 2, 1]
    assert (history.root / layout.plan_key(EpochNumber(1))).exists()
