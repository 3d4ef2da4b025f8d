"""What the sensors ask for: the next epoch when it is due, commits in order, never one twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from laminar_dagster.core.errors import AuthFailed, InvalidConfig, LaminarError
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.ports import Violation
from tests.unit.orchestration.conditions import Stage


def asked(result: dg.SensorResult) -> list[tuple[str | None, str | None]]:
    return [(request.run_key, request.partition_key) for request in result.run_requests or ()]


def reason(result: dg.SensorResult) -> str:
    skipped = result.skip_reason
    assert isinstance(skipped, dg.SkipReason)
    return skipped.skip_message or ""


class Clock:
    """Moves the sensors' time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = timedelta(0)
        clock = self

        class Moved(datetime):
            @classmethod
            def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
                return datetime.now(UTC) + clock.ahead

        monkeypatch.setattr("laminar_dagster.orchestration.sensors.datetime", Moved)

        class MovedClock:
            def now(self) -> datetime:
                return datetime.now(UTC) + clock.ahead

        monkeypatch.setattr("laminar_dagster.orchestration.stream.SystemClock", MovedClock)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


# --- the epoch sensor ---------------------------------------------------------------------------


def test_nothing_is_asked_for_when_nothing_waits(stage: Stage) -> None:
    result = stage.tick("epoch_sensor")
    assert asked(result) == []
    assert reason(result) == "nothing waits to be read"


def test_more_than_an_epoch_takes_is_due_at_once(stage: Stage) -> None:
    stage.arrive(*range(9))
    result = stage.tick("epoch_sensor")
    assert asked(result) == [("clicks:1:epoch:1", "000000000001")]
    assert stage.instance.has_dynamic_partition("laminar_clicks_epochs", "000000000001")
    assert stage.follow(result).success


def test_little_is_due_when_it_has_waited_long_enough(stage: Stage, clock: Clock) -> None:
    stage.arrive(1)
    first = stage.tick("epoch_sensor")
    assert "an epoch is made of it in 20 s" in reason(first)
    clock.ahead = timedelta(seconds=12)
    second = stage.tick("epoch_sensor", first.cursor)
    assert "in 8 s" in reason(second)
    clock.ahead = timedelta(seconds=21)
    third = stage.tick("epoch_sensor", second.cursor)
    assert asked(third) == [("clicks:1:epoch:1", "000000000001")]
    assert third.cursor == ""


def test_a_cursor_of_another_version_is_as_good_as_none(stage: Stage) -> None:
    stage.arrive(1)
    assert "in 20 s" in reason(stage.tick("epoch_sensor", "what is this"))


def test_an_epoch_is_not_asked_for_before_the_last_is_committed(stage: Stage) -> None:
    stage.arrive(*range(9))
    stage.run("epoch", [1])
    assert reason(stage.tick("epoch_sensor")) == "epoch 1 is prepared and waits for its commit"


def test_a_planned_epoch_is_carried_out_without_waiting(stage: Stage) -> None:
    stage.arrive(1)
    stage.violations = (Violation("contract", "totals", "no"),)
    stage.run("epoch_and_commit", [1])
    stage.violations = ()
    assert asked(stage.tick("epoch_sensor")) == [("clicks:1:epoch:1", "000000000001")]


def test_who_is_at_it_is_not_disturbed(stage: Stage) -> None:
    stage.arrive(*range(9))
    run = stage.instance.create_run_for_job(
        stage.defs.resolve_job_def("clicks_epoch"),
        tags={"dagster/partition": "000000000001", "laminar/pipeline": "clicks"},
        status=dg.DagsterRunStatus.STARTED,
    )
    assert reason(stage.tick("epoch_sensor")) == f"run {run.run_id} is at epoch 1"


def test_what_cannot_pass_by_itself_is_not_tried_again(stage: Stage, clock: Clock) -> None:
    stage.arrive(*range(9))
    stage.violations = (Violation("contract", "totals", "no"),)
    stage.follow(stage.tick("epoch_sensor"))
    clock.ahead = timedelta(days=1)
    assert "failed with gate_failed, which does not pass by itself" in reason(
        stage.tick("epoch_sensor")
    )


def test_what_may_pass_is_tried_again_later_and_later(stage: Stage, clock: Clock) -> None:
    stage.arrive(*range(9))

    def stumble(_plan: object) -> tuple[Violation, ...]:
        raise ZeroDivisionError

    stage.stream.gate = stumble
    stage.follow(stage.tick("epoch_sensor"))
    assert "tried again in 5 s" in reason(stage.tick("epoch_sensor"))
    clock.ahead = timedelta(seconds=6)
    second = stage.tick("epoch_sensor")
    assert asked(second) == [("clicks:1:epoch:2", "000000000001")]
    stage.follow(second)
    clock.ahead = timedelta(0)
    assert "tried again in 10 s" in reason(stage.tick("epoch_sensor"))


def test_a_changed_pipeline_is_tried_at_once(stage: Stage) -> None:
    stage.arrive(*range(9))
    stage.violations = (Violation("contract", "totals", "no"),)
    stage.follow(stage.tick("epoch_sensor"))
    assert "does not pass by itself" in reason(stage.tick("epoch_sensor"))
    stage.files["contracts/totals.yml"] += "  ts: {nullable: true}\n"
    stage.load_again()
    assert "tried again" in reason(stage.tick("epoch_sensor"))


def test_a_source_that_is_away_is_told_not_raised(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    from laminar_dagster.core.errors import SourceUnavailable

    def away(*_: object) -> object:
        raise SourceUnavailable("numbers", "no answer from ann:tr0ub@host://")

    monkeypatch.setattr("laminar_dagster.testing.memory_pipeline.MemorySource.plan", away)
    assert "error[source_unavailable]" in reason(stage.tick("epoch_sensor"))


# --- the commit sensor --------------------------------------------------------------------------


def test_the_next_epoch_can_always_be_chosen(stage: Stage) -> None:
    result = stage.tick("commit_sensor")
    assert asked(result) == []
    assert stage.instance.get_dynamic_partitions("laminar_clicks_epochs") == ["000000000001"]
    stage.arrive(1)
    stage.run("epoch_and_commit", [1])
    stage.tick("commit_sensor")
    keys = stage.instance.get_dynamic_partitions("laminar_clicks_epochs")
    assert keys == ["000000000001", "000000000002"]


def test_a_prepared_epoch_is_committed_once(stage: Stage) -> None:
    stage.arrive(1, 2)
    stage.run("epoch", [1])
    result = stage.tick("commit_sensor")
    assert asked(result) == [("clicks:1:commit:1", "000000000001")]
    assert stage.follow(result).success
    assert stage.world.table.rows == stage.world.log.expected()
    assert asked(stage.tick("commit_sensor")) == []


def test_a_failed_commit_is_asked_for_again_under_another_key(
    stage: Stage, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laminar_dagster.orchestration.failures._RETRIES", 0)
    stage.arrive(1, 2)
    stage.run("epoch", [1])
    stage.world.table.is_away = True
    stage.follow(stage.tick("commit_sensor"))
    assert "failed with sink_unavailable; tried again in" in reason(stage.tick("commit_sensor"))
    stage.world.table.is_away = False
    clock.ahead = timedelta(seconds=6)
    again = stage.tick("commit_sensor")
    assert asked(again) == [("clicks:1:commit:2", "000000000001")]
    assert stage.follow(again).success
    assert stage.world.table.rows == stage.world.log.expected()


@pytest.mark.parametrize(
    ("error", "told", "told_of_the_changed"),
    [
        (
            InvalidConfig("sinks.sql:1", "the table has no such column"),
            "failed with invalid_config, which does not pass by itself",
            "failed with invalid_config; tried again in",
        ),
        (
            AuthFailed("sink table", "wrong password"),
            "failed with auth_failed; tried again in",
            "failed with auth_failed; tried again in",
        ),
    ],
    ids=["a mistake", "a secret"],
)
def test_a_commit_that_was_mended_is_tried_again(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    error: LaminarError,
    told: str,
    told_of_the_changed: str,
) -> None:
    stage.arrive(1, 2)
    stage.run("epoch", [1])

    def refuse(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("laminar_dagster.testing.memory_pipeline.MemorySink.commit", refuse)
        stage.follow(stage.tick("commit_sensor"))
    assert told in reason(stage.tick("commit_sensor"))
    stage.files["contracts/totals.yml"] += "  ts: {nullable: true}\n"
    stage.load_again()
    assert told_of_the_changed in reason(stage.tick("commit_sensor"))


def test_a_run_that_does_both_halves_is_left_alone(stage: Stage) -> None:
    stage.arrive(1, 2)
    stage.run("epoch", [1])
    stage.instance.create_run_for_job(
        stage.defs.resolve_job_def("clicks_epoch_and_commit"),
        tags={"laminar/pipeline": "clicks", "laminar/epoch": "1"},
        status=dg.DagsterRunStatus.STARTED,
    )
    assert "is at epoch 1" in reason(stage.tick("commit_sensor"))


def test_epochs_that_ran_without_dagster_are_told_to_it(stage: Stage) -> None:
    stage.arrive(*range(9))
    for _ in range(3):
        stage.runner().run()
    assert stage.materialized("checkpoint_manifest") == []
    result = stage.tick("commit_sensor")
    assert stage.materialized("checkpoint_manifest") == [1, 2, 3]
    assert stage.materialized("epoch_plan") == [1, 2, 3]
    again = stage.tick("commit_sensor", result.cursor)
    assert again.asset_events == []


def test_what_a_run_is_about_to_tell_is_not_told_for_it(stage: Stage) -> None:
    stage.arrive(1)
    stage.runner().run()
    run = stage.instance.create_run_for_job(
        stage.defs.resolve_job_def("clicks_commit"),
        tags={"laminar/pipeline": "clicks", "laminar/epoch": "1"},
        status=dg.DagsterRunStatus.STARTED,
    )
    first = stage.tick("commit_sensor")
    assert first.asset_events == []
    stage.instance.report_run_failed(run, "killed")
    assert stage.tick("commit_sensor", first.cursor).asset_events


def test_another_store_than_before_is_noticed(stage: Stage) -> None:
    stage.arrive(1)
    stage.runner().run()
    result = stage.tick("commit_sensor", '{"epoch": 40}')
    assert result.cursor == '{"epoch":0}'
    assert stage.tick("commit_sensor", result.cursor).asset_events


def test_only_the_window_of_epochs_is_told(stage: Stage) -> None:
    stage.files["pipeline.yml"] = stage.files["pipeline.yml"].replace("history: 4", "history: 2")
    stage.arrive(*range(12))
    for _ in range(4):
        stage.runner().run()
    stage.tick("commit_sensor")
    assert stage.materialized("checkpoint_manifest") == [3, 4]


# --- the schedule -------------------------------------------------------------------------------


def test_a_schedule_asks_for_the_next_epoch_by_the_clock(stage: Stage) -> None:
    # A schedule's context takes only an instance that another process could open.
    stage.instance = dg.DagsterInstance.local_temp(str(stage.project))
    stage.files["pipeline.yml"] += "schedule: '*/5 * * * *'\n"
    schedule = stage.defs.resolve_schedule_def("clicks_epoch_schedule")
    assert schedule.cron_schedule == "*/5 * * * *"
    context = dg.build_schedule_context(instance=stage.instance)
    request = schedule(context)
    assert isinstance(request, dg.RunRequest)
    assert (request.run_key, request.partition_key) == ("clicks:1:epoch:1", "000000000001")
    assert stage.instance.has_dynamic_partition("laminar_clicks_epochs", "000000000001")
    stage.run("epoch", [1])
    assert stage.checkpoints.prepared(EpochNumber(1))
    skipped = schedule(context)
    assert isinstance(skipped, dg.SkipReason)


@pytest.mark.parametrize("status", ["running", "stopped"])
def test_the_sensor_for_epochs_is_on_from_the_start_where_the_pipeline_says_so(
    stage: Stage, status: str
) -> None:
    text = stage.files["pipeline.yml"]
    stage.files["pipeline.yml"] = text.replace(
        "max_delay: 20s", f"max_delay: 20s, sensor: {status}"
    )
    sensor = stage.defs.resolve_sensor_def("clicks_epoch_sensor")
    assert sensor.default_status.name == status.upper()
