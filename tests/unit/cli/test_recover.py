"""`laminar recover`: for people and for programs, with and without damage."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from laminar_dagster.cli import progress, recover
from laminar_dagster.core import layout
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.recovery import RecoveryPhase, RecoveryProgress
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.testing.memory_pipeline import MemoryEngine
from tests.unit.cli.conditions import History, Project, flip_bit

Open = Callable[[History], list[int]]


@pytest.fixture
def open_it(monkeypatch: pytest.MonkeyPatch) -> Open:
    """Let the project's pipeline be one in memory; tells which epochs it computes."""

    def open_it(history: History) -> list[int]:
        computed: list[int] = []

        class Told(MemoryEngine):
            def compute(self, plan, parent, attempt):  # type: ignore[no-untyped-def]
                computed.append(int(plan.epoch))
                return super().compute(plan, parent, attempt)

        def open_pipeline(*_args: object) -> Pipeline:
            made = history.pipeline()
            return replace(made, engine=Told(made.checkpoints.objects, history.log))

        monkeypatch.setattr(recover, "open_pipeline", open_pipeline)
        return computed

    return open_it


def test_before_the_first_epoch(project: Project) -> None:
    assert project.laminar.error("recover", exit_code=2)["kind"] == "no_epochs"


def test_nothing_is_damaged(project: Project, open_it: Open) -> None:
    history = project.history(5)
    computed = open_it(history)
    before = history.files()
    document = project.laminar.json("recover")
    assert (document["epoch"], document["checkpoint_id"]) == (5, history.ids[5])
    assert (document["repairs"], document["not_repaired"]) == ([], [])
    assert document["source_offsets"] == {
        "numbers": [
            {"type": "kafka", "topic": "numbers", "partition": 0, "offset": 15},
            {"type": "kafka", "topic": "numbers", "partition": 1, "offset": 5},
        ]
    }
    (operator,) = document["operators"]
    assert (operator["operator"], operator["partitions"]) == ("totals", [0, 1])
    told = project.laminar("recover", "clicks")
    assert (told.exit_code, told.stderr) == (0, "")
    assert f"checkpoint: epoch 5, {history.ids[5]}" in told.stdout
    assert "1 operator, 2 partitions restored" in told.stdout
    assert "damaged:    nothing" in told.stdout
    assert "`laminar run clicks` goes on after epoch 5." in told.stdout
    assert computed == [], "Spark is started only for a run"
    assert history.files() == before


def test_what_was_damaged_is_told_and_mended(project: Project, open_it: Open) -> None:
    history = project.history(5)
    computed = open_it(history)
    state = next(iter((history.root / layout.checkpoint_folder(history.ids[5])).rglob("0.delta")))
    flip_bit(state)
    (history.root / layout.LATEST).unlink()
    state_key = state.relative_to(history.root).as_posix()
    dry = project.laminar.json("recover", "--dry-run")
    assert dry["is_dry_run"] is True
    assert dry["unfinished"] == [], "without a pointer, what every sink has is finished too"
    assert computed == []
    told = project.laminar("recover", "--dry-run")
    assert "Would be mended: 2 objects" in told.stdout
    assert "Nothing was changed. `laminar recover clicks` does it." in told.stdout
    document = project.laminar.json("recover")
    assert document["fallback_attempts"] == 1
    assert [(each["key"], each["repair"], each["kind"]) for each in document["repairs"]] == [
        (state_key, "rebuilt", "checksum_mismatch"),
        (layout.LATEST, "put back", "object_missing"),
    ]
    assert dry["repairs"] == document["repairs"]
    assert computed == [5]
    assert project.laminar.json("recover")["repairs"] == []
    history.arrive()
    EpochRunner(history.pipeline()).run()
    assert sorted(history.table.rows) == history.log.expected()


def test_a_table_of_what_was_mended(project: Project, open_it: Open) -> None:
    history = project.history(3)
    open_it(history)
    manifest = layout.manifest_key(history.ids[3])
    (history.root / manifest).unlink()
    flip_bit(history.path(3, "staged/table/rows.json"))
    told = project.laminar("recover")
    assert told.exit_code == 0
    assert "Mended: 1 object" in told.stdout
    assert manifest in told.stdout
    assert "put back: from the record of the winner" in told.stdout
    assert "Damaged, and not needed to go on" in told.stdout
    assert "damaged:    2 objects" in told.stdout


def test_an_unfinished_epoch_is_told(project: Project, open_it: Open) -> None:
    history = project.history(2)
    open_it(history)
    history.arrive()
    EpochRunner(history.pipeline()).prepare(EpochNumber(3))
    (unfinished,) = project.laminar.json("recover")["unfinished"]
    assert (unfinished["epoch"], unfinished["next_step"]) == (3, "WriteManifest")
    told = project.laminar("recover").stdout
    assert "unfinished: epoch 3, next: write the manifest" in told
    assert "goes on after epoch 2" in told


def test_what_cannot_be_mended_is_refused_by_name(project: Project, open_it: Open) -> None:
    history = project.history(4)
    open_it(history)
    (history.root / layout.plan_key(EpochNumber(4))).unlink()
    (history.root / layout.prepared_key(EpochNumber(4))).unlink()
    before = history.files()
    for wish in ((), ("--dry-run",)):
        error = project.laminar.error("recover", *wish, exit_code=3)
        assert error["kind"] == "cannot_rebuild"
        assert "backup" in error["hint"]
    assert history.files() == before


def test_limits(project: Project, open_it: Open) -> None:
    history = project.history(3)
    open_it(history)
    # Written by the first epoch, and needed since.
    (history.root / layout.checkpoint_folder(history.ids[1])).joinpath(
        "operators/totals/0.snap"
    ).unlink()
    error = project.laminar.error("recover", "--max-fallbacks", "2", exit_code=4)
    assert error["kind"] == "all_checkpoints_corrupt"
    assert "--max-fallbacks" in error["hint"]
    limited = project.laminar.json("recover", "--dry-run", "--max-fallbacks", "3")
    unlimited = project.laminar.json("recover")
    assert limited["fallback_attempts"] == unlimited["fallback_attempts"] == 3


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--timeout", "0s"), "must be more than 0s"),
        (("--timeout", "soon"), "not a duration"),
        (("--max-fallbacks", "-1"), "max-fallbacks"),
        (("--epoch", "0"), "epoch"),
        (("--operators", "a,,b"), "list of names"),
        (("--into", "pyproject.toml"), ""),
    ],
)
def test_wrong_input(project: Project, args: tuple[str, ...], message: str) -> None:
    if args[0] == "--into":
        args = ("--into", str(project.folder / "pipeline.yml"))
    error = project.laminar.error("recover", *args, exit_code=2)
    assert message in error["message"]


def test_unknown_names(project: Project, open_it: Open) -> None:
    open_it(project.history(2))
    assert project.laminar.error("recover", "other", exit_code=2)["kind"] == "unknown_pipeline"
    error = project.laminar.error("recover", "--operators", "sums", exit_code=2)
    assert error["kind"] == "unknown_operator"
    error = project.laminar.error("recover", "--epoch", "9", exit_code=2)
    assert error["kind"] == "epoch_not_committed"


def test_the_state_of_one_operator_into_a_folder(
    project: Project, open_it: Open, tmp_path: Path
) -> None:
    history = project.history(3)
    open_it(history)
    folder = tmp_path / "restored"
    told = project.laminar("recover", "--operators", "totals", "--into", str(folder))
    assert told.exit_code == 0
    assert f"The restored state is in {folder}." in told.stdout
    names = sorted(path.name for path in (folder / "totals").iterdir())
    assert names == ["0-0.snap", "0-1.delta", "0-2.delta", "1-0.snap", "1-1.delta", "1-2.delta"]


def test_dagster_is_a_witness(
    project: Project, open_it: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows an epoch that the store has not."""
    import dagster as dg

    from laminar_dagster.orchestration.resident import open_home

    history = project.history(2)
    open_it(history)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    assert project.laminar.json("recover")["epoch"] == 2
    with open_home(str(home)) as instance:
        instance.report_runless_asset_event(
            dg.AssetMaterialization(
                dg.AssetKey(["clicks", "checkpoint_manifest"]),
                metadata={"epoch": "3", "checkpoint": history.ids[2]},
            )
        )
    error = project.laminar.error("recover", exit_code=3)
    assert error["kind"] == "store_set_back"
    assert "Dagster knows of epoch 3" in error["message"]


def test_a_witness_that_is_away_holds_nothing_up(
    project: Project, open_it: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Dagster writes its events to is no database."""
    from laminar_dagster.orchestration.resident import open_home

    open_it(project.history(2))
    home = tmp_path / "home"
    home.mkdir()
    with open_home(str(home)):
        pass
    databases = list(home.rglob("*.db"))
    assert databases
    for database in databases:
        database.write_bytes(b"no database" * 500)
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    told = project.laminar("recover")
    assert told.exit_code == 0
    assert "what it knows of checkpoints is not compared" in told.stderr


def test_progress_in_words() -> None:
    told = RecoveryProgress(
        phase=RecoveryPhase.DOWNLOADING_SNAPSHOTS,
        progress=0.5,
        estimated_remaining=12.3,
        bytes_downloaded=1024,
        total_bytes=4096,
        operators_restored=0,
        total_operators=1,
    )
    assert progress.describe_progress(told) == "1.0 KiB of 4.0 KiB, 12s left"
    assert progress.describe_progress(replace(told, total_bytes=0)) == ""
    assert set(progress._PHASES) == {phase.value for phase in RecoveryPhase}


def test_recovering_without_damage_starts_no_spark(project: Project) -> None:
    """Nor is it imported; a bare look at a store takes no seconds."""
    code = (
        "import sys; from laminar_dagster.runtime.recovery import RecoveryManager;"
        "assert 'pyspark' not in sys.modules and 'pyarrow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
