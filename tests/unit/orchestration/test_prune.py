"""What Dagster remembers stays bounded, and nothing of anybody else's is touched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import dagster as dg
import pytest

from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.orchestration import private_api
from laminar_dagster.orchestration.history_window import HistoryWindow, newest_epoch
from laminar_dagster.orchestration.private_api import ProjectCode
from laminar_dagster.orchestration.prune import Forgotten, forget
from tests.unit.orchestration.conditions import FILES, Stage
from tests.unit.orchestration.instance_rows import files, rows, rows_of_runs

EPOCHS = "laminar_clicks_epochs"
SUCCESS, FAILURE = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE
NOTHING = Forgotten()
CODE = ProjectCode.of(Path("/project"), "definitions.py", "project")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def on_disk(tmp_path: Path, home: Path) -> Iterator[Stage]:
    """The pipeline, and an instance on SQLite. Two epochs are to be remembered."""
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        stage = Stage(tmp_path, instance)
        stage.files["pipeline.yml"] = FILES["pipeline.yml"].replace("history: 4", "history: 2")
        yield stage


def run_epochs(stage: Stage, *epochs: int) -> None:
    for epoch in epochs:
        stage.arrive(epoch)
        assert stage.run("epoch_and_commit", [epoch]).success


def partitions(stage: Stage) -> list[int]:
    return sorted(int(key) for key in stage.instance.get_dynamic_partitions(EPOCHS))


def epochs_of_runs(instance: dg.DagsterInstance, pipeline: str = "clicks") -> list[int | None]:
    """The epochs of a pipeline's runs that are remembered, the newest run first."""
    wanted = dg.RunsFilter(tags={"laminar/pipeline": pipeline})
    return [newest_epoch(run) for run in instance.get_runs(wanted)]


def record_run(
    instance: dg.DagsterInstance,
    tags: Mapping[str, str],
    status: dg.DagsterRunStatus = SUCCESS,
    job: str = "clicks_epoch",
    assets: frozenset[dg.AssetKey] | None = None,
) -> str:
    """A run that is recorded without having been run."""
    run = dg.DagsterRun(
        job,
        tags=tags,
        status=status,
        asset_selection=assets,
        remote_job_origin=CODE.remote_origin(job),
    )
    return str(instance.add_run(run).run_id)


def of_epoch(epoch: int, pipeline: str = "clicks") -> dict[str, str]:
    return {"laminar/pipeline": pipeline, "laminar/epoch": str(epoch)}


def window(stage: Stage, newest: int) -> HistoryWindow:
    return HistoryWindow.of(stage.stream, EpochNumber(newest))


def forget_all(stage: Stage, newest: int, at_once: int = 500) -> Forgotten:
    *_, done = [NOTHING, *forget(stage.instance, window(stage, newest), at_once)]
    return done


@pytest.mark.slow
def test_what_is_older_than_the_window_goes_with_everything_it_left(
    on_disk: Stage, home: Path
) -> None:
    run_epochs(on_disk, 1)
    assert on_disk.run("verify").success
    old = [run.run_id for run in on_disk.instance.get_runs()]
    run_epochs(on_disk, 2, 3)
    kept = on_disk.instance.get_runs(dg.RunsFilter(tags={"laminar/epoch": "3"}))[0]
    before = rows_of_runs(on_disk.instance, old), rows_of_runs(on_disk.instance, [kept.run_id])
    events = len(on_disk.instance.all_logs(kept.run_id))
    assert all(before[0].values()), "each table has something of the old runs"

    pruned = on_disk.run("prune")

    assert pruned.success
    assert partitions(on_disk) == [2, 3]
    assert epochs_of_runs(on_disk.instance) == [None, 3, 2]
    assert set(rows_of_runs(on_disk.instance, old).values()) == {0}
    left = [name for name in files(home) if any(run_id in name for run_id in old)]
    assert left == []
    for asset in ("epoch_plan", "totals_staged", "state_snapshot", "checkpoint_manifest"):
        assert on_disk.materialized(asset) == [2, 3]
    logged = [entry.message for entry in on_disk.instance.all_logs(pruned.run_id)]
    told = "dagster: forgot 1 partitions, 2 runs with their events, and 0 events that no run"
    assert any(told in message for message in logged)
    assert any("it remembers epochs 2 to 3" in message for message in logged)
    # What stays is whole.
    assert rows_of_runs(on_disk.instance, [kept.run_id]) == before[1]
    assert len(on_disk.instance.all_logs(kept.run_id)) == events
    assert on_disk.checkpoints.prepared(EpochNumber(3))


def test_epochs_that_no_run_has_told_of_are_forgotten_too(on_disk: Stage) -> None:
    cursor = None
    for number in range(1, 4):
        on_disk.arrive(number)
        on_disk.runner().run()
        result = on_disk.tick("commit_sensor", cursor)
        assert len(result.asset_events) == 5, "one for each asset"
        cursor = result.cursor

    done = forget_all(on_disk, on_disk.newest, at_once=2)

    assert (done.runs, done.events, done.partitions) == (0, 5, 1)
    assert partitions(on_disk) == [2, 3, 4]
    assert on_disk.materialized("checkpoint_manifest") == [2, 3]
    assert rows(on_disk.instance)["event_logs"] == 2 * 5
    told = on_disk.instance.all_logs("", of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    assert len(told) == 2 * 5, "in the file of such events as well"


def test_what_others_have_in_the_instance_stays(stage: Stage) -> None:
    run_epochs(stage, 1, 2, 3, 4, 5)
    instance, key = stage.instance, "000000000001"
    theirs = dg.AssetKey("orders")
    instance.add_dynamic_partitions("days", [key])
    instance.add_dynamic_partitions(EPOCHS, ["by hand"])
    instance.report_runless_asset_event(dg.AssetMaterialization(theirs, partition=key))
    others = [
        record_run(instance, of_epoch(1, "orders"), job="orders_epoch"),
        record_run(instance, {"dagster/partition": key}, job="daily"),
        record_run(
            instance, {"dagster/partition": key}, FAILURE, "__ASSET_JOB", frozenset([theirs])
        ),
        record_run(
            instance,
            {"dagster/partition": key},
            FAILURE,
            "__ASSET_JOB",
            frozenset([theirs, dg.AssetKey(["clicks", "epoch_plan"])]),
        ),
        record_run(instance, {}, job="__ASSET_JOB"),
    ]

    assert stage.run("prune").success

    assert instance.get_dynamic_partitions("days") == [key]
    assert set(instance.get_dynamic_partitions(EPOCHS)) == {
        "by hand",
        *(f"{number:012}" for number in range(2, 6)),
    }
    assert instance.get_materialized_partitions(theirs) == {key}
    assert all(map(instance.has_run, others))


@pytest.mark.parametrize(
    "status",
    [
        dg.DagsterRunStatus.QUEUED,
        dg.DagsterRunStatus.NOT_STARTED,
        dg.DagsterRunStatus.STARTING,
        dg.DagsterRunStatus.STARTED,
        dg.DagsterRunStatus.CANCELING,
    ],
)
def test_a_run_under_way_stays(stage: Stage, status: dg.DagsterRunStatus) -> None:
    busy = record_run(stage.instance, of_epoch(1), status)
    over = record_run(stage.instance, of_epoch(1))
    assert forget_all(stage, 100).runs == 1
    assert stage.instance.has_run(busy)
    assert not stage.instance.has_run(over)


def test_a_range_stays_until_its_last_epoch_goes(stage: Stage) -> None:
    first, last = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
    tags = {**of_epoch(2), first: "000000000001", last: "000000000006"}
    failed_in_2 = record_run(stage.instance, tags, FAILURE)
    assert forget_all(stage, 9).runs == 0
    assert stage.instance.has_run(failed_in_2)
    assert forget_all(stage, 10).runs == 1


def test_a_run_from_an_assets_page_that_did_not_get_far_is_ours(stage: Stage) -> None:
    own = frozenset([dg.AssetKey(["clicks", "epoch_plan"]), dg.AssetKey(["clicks", "table"])])
    tags = {"dagster/partition": "000000000001"}
    stray = record_run(stage.instance, tags, FAILURE, "__ASSET_JOB", own)
    assert forget_all(stage, 4).runs == 0
    assert forget_all(stage, 5).runs == 1
    assert not stage.instance.has_run(stray)


def test_runs_without_an_epoch_go_with_the_epochs_of_their_time(stage: Stage) -> None:
    pipeline = {"laminar/pipeline": "clicks"}
    made = [
        record_run(stage.instance, each)
        for each in (pipeline, of_epoch(1), pipeline, of_epoch(2), pipeline, of_epoch(3))
    ]
    assert forget_all(stage, 4).runs == 0, "every epoch is in the window"
    assert forget_all(stage, 6).runs == 5
    assert [run_id for run_id in made if stage.instance.has_run(run_id)] == [made[5]]


def test_without_epochs_as_many_runs_stay_as_epochs_would(stage: Stage) -> None:
    made = [record_run(stage.instance, {"laminar/pipeline": "clicks"}) for _ in range(7)]
    assert forget_all(stage, 0).runs == 3
    assert [run_id for run_id in made if stage.instance.has_run(run_id)] == made[3:]


@pytest.mark.parametrize("at_once", [1, 2, 3, 500])
def test_no_page_is_passed_over(stage: Stage, at_once: int) -> None:
    # Old and new ones by turns: what is deleted is often where the next page begins.
    for number in (1, 9, 2, 3, 8, 4, 5, 5, 7, 1):
        record_run(stage.instance, of_epoch(number))
    stage.instance.add_dynamic_partitions(EPOCHS, [f"{number:012}" for number in range(1, 10)])
    done = forget_all(stage, 9, at_once)
    assert (done.runs, done.partitions) == (7, 5)
    assert epochs_of_runs(stage.instance) == [7, 8, 9]
    assert partitions(stage) == [6, 7, 8, 9]
    assert forget_all(stage, 9, at_once) == NOTHING


def test_whoever_is_killed_between_batches_leaves_nothing_behind(stage: Stage) -> None:
    for number in range(1, 9):
        record_run(stage.instance, of_epoch(number))
        event = dg.AssetMaterialization(["clicks", "totals_staged"], partition=f"{number:012}")
        stage.instance.report_runless_asset_event(event)
    stage.instance.add_dynamic_partitions(EPOCHS, [f"{number:012}" for number in range(1, 9)])
    rounds = 0
    while partitions(stage) != [5, 6, 7, 8]:
        # Killed after a single batch.
        next(forget(stage.instance, window(stage, 8), at_once=1))
        rounds += 1
        assert rounds < 40
    assert epochs_of_runs(stage.instance) == [8, 7, 6, 5]
    assert stage.materialized("totals_staged") == [5, 6, 7, 8]
    assert forget_all(stage, 8).partitions == 0


@pytest.mark.slow
def test_whoever_is_killed_within_a_batch_finds_the_run_again(
    on_disk: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_epochs(on_disk, 1, 2, 3)
    (old,) = on_disk.instance.get_runs(dg.RunsFilter(tags={"laminar/epoch": "1"}))

    class Killed(BaseException):
        pass

    class Deadly:
        def delete(self) -> None:
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        # The runs' own tables come last.
        patch.setattr(private_api, "RunTagsTable", Deadly())
        next(forget(on_disk.instance, window(on_disk, 3)))
    assert rows_of_runs(on_disk.instance, [old.run_id])["event_logs"] == 0
    assert on_disk.instance.has_run(old.run_id), "the run itself goes last"
    assert partitions(on_disk) == [1, 2, 3]

    forget_all(on_disk, 3)

    assert set(rows_of_runs(on_disk.instance, [old.run_id]).values()) == {0}
    assert partitions(on_disk) == [2, 3]


@pytest.mark.slow
def test_the_home_stays_bounded(on_disk: Stage, home: Path) -> None:
    """Epochs and prunes by turns: after the first window, nothing grows any more."""
    counted: list[dict[str, int]] = []
    sizes: list[int] = []
    for first in (1, 3, 5):
        run_epochs(on_disk, first, first + 1)
        assert on_disk.run("prune").success
        counted.append({**rows(on_disk.instance), "files": len(files(home))})
        sizes.append(sum(files(home).values()))
    assert counted[1] == counted[2]
    # Two epochs and a prune leave some 500 KB; the index keeps free pages for the next ones.
    assert sizes[2] - sizes[1] < 64 * 1024, sizes
