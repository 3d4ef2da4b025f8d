"""An epoch as runs of Dagster: computed, committed, computed again, refused."""

from __future__ import annotations

import dagster as dg
import pytest

from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.ports import Violation
from tests.unit.orchestration.conditions import Stage, failure_text
from tests.unit.runtime.observed import ReadingEngine


def check_results(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    return {each.check_name: each for each in result.get_asset_check_evaluations()}


def test_the_epoch_job_publishes_nothing_and_the_commit_job_does(stage: Stage) -> None:
    stage.arrive(1, 2, 3)
    computed = stage.run("epoch", [1])
    assert computed.success
    assert stage.world.table.rows == []
    assert stage.newest == 0
    committed = stage.run("commit", [1])
    assert committed.success
    assert stage.world.table.rows == stage.world.log.expected()
    assert stage.newest == 1
    assert stage.metadata(committed, "checkpoint_manifest")["published"] == "by this run"


def test_one_run_can_do_both(stage: Stage) -> None:
    stage.arrive(1, 2, 3)
    assert stage.run("epoch_and_commit", [1]).success
    assert stage.world.table.rows == stage.world.log.expected()


def test_an_epoch_is_a_dossier(stage: Stage) -> None:
    stage.arrive(1, 2, 3)
    result = stage.run("epoch_and_commit", [1])
    plan = stage.metadata(result, "epoch_plan")
    assert plan["epoch"] == "1"
    assert plan["ranges"].records[0].data == {
        "source": "numbers",
        "partition": "numbers/0",
        "from": "offset 0",
        "to": "offset 3",
        "amount": 3,
        "idle": False,
    }
    assert plan["waiting_records_numbers"] == 0
    state = stage.metadata(result, "state_snapshot")
    assert state["records_read"] == 3
    assert state["state_bytes"] > 0
    assert {"seconds_plan", "seconds_compute", "seconds_gate", "seconds_prepare"} <= state.keys()
    manifest = stage.metadata(result, "checkpoint_manifest")
    assert manifest["previous_checkpoint"] == "none"
    assert manifest["rows_out"] == 3
    assert [row.data["position"] for row in manifest["positions"].records] == [
        "offset 3",
        "offset 0",
    ]
    assert {"seconds_write_manifest", "seconds_commit_sinks"} <= manifest.keys()
    assert stage.metadata(result, "table")["dagster/partition_row_count"] == 3


def test_what_reading_took_is_shown_as_numbers(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.unit.runtime.conditions.MemoryEngine", ReadingEngine)
    stage.arrive(1, 2, 3, 4, 5)
    result = stage.run("epoch_and_commit", [1])
    expected = {
        "records_numbers": 3,
        "bytes_numbers": 1000,
        "fetch_seconds_numbers": 0.5,
        "decode_seconds_numbers": 0.25,
        "pauses_numbers": 3,
        "errors_numbers": 4,
        "dead_letters_numbers": 1,
        "late_numbers": 2,
        "schema_ids_numbers": "7, 9",
        "records_skipped": 0,
        "rows_added": 0,
    }
    for asset in ("state_snapshot", "checkpoint_manifest"):
        found = stage.metadata(result, asset)
        assert {name: found[name] for name in expected} == expected
    (row,) = stage.metadata(result, "epoch_plan")["waiting"].records
    assert row.data == {
        "source": "numbers",
        "partition": "numbers/0",
        "lag": 2,
        "unit": "records",
    }


def test_every_check_has_a_result(stage: Stage) -> None:
    stage.arrive(1, 2, 3)
    found = check_results(stage.run("epoch", [1]))
    assert {name: each.passed for name, each in found.items()} == {
        "contract": True,
        "record_accounting": True,
        "offset_contiguity": True,
        "sink_fit": True,
        "lag": True,
        "retention": True,
        "retention_headroom": True,
        "state_growth": True,
        "watermark_ahead": True,
    }


def test_a_committed_epoch_is_run_again_and_compared(stage: Stage) -> None:
    stage.arrive(1, 2, 3)
    stage.run("epoch_and_commit", [1])
    before = list(stage.world.table.rows)
    again = stage.run("epoch_and_commit", [1])
    assert again.success
    plan = stage.metadata(again, "epoch_plan")
    assert plan["rerun"] == "identical"
    assert plan["hashes_compared"] >= 3
    manifest = stage.metadata(again, "checkpoint_manifest")
    assert manifest["published"] == "before this run, which changed nothing"
    assert stage.world.table.rows == before
    assert stage.newest == 1


def test_an_epoch_that_comes_out_otherwise_is_reported(stage: Stage) -> None:
    stage.arrive(1, 2, 3)
    stage.run("epoch_and_commit", [1])
    stage.world.log.partitions[0][1] = 77
    again = stage.run("epoch", [1])
    assert not again.success
    assert stage.error_kind(again) == "not_reproduced"
    assert "came out otherwise" in failure_text(again)
    assert stage.world.table.rows[1][2] == 2, "what is committed stays"


def test_a_refused_epoch_shows_the_check_that_it_failed(stage: Stage) -> None:
    stage.arrive(1)
    stage.violations = (Violation("contract", "totals", "twice is null in 1 row"),)
    result = stage.run("epoch", [1])
    assert not result.success
    assert stage.error_kind(result) == "gate_failed"
    (failed,) = result.get_asset_check_evaluations()
    assert (failed.asset_key.path[-1], failed.check_name) == ("totals_staged", "contract")
    assert not failed.passed
    assert failed.severity == dg.AssetCheckSeverity.ERROR
    assert "twice is null in 1 row" in (failed.description or "")
    assert stage.world.table.rows == []
    stage.violations = ()
    assert stage.run("epoch_and_commit", [1]).success, "the epoch waits, and can be run again"


def test_records_that_do_not_add_up_fail_the_check_of_the_state(stage: Stage) -> None:
    stage.arrive(1)
    stage.violations = (Violation("record accounting", "totals", "3 were sent, 2 arrived"),)
    (failed,) = stage.run("epoch", [1]).get_asset_check_evaluations()
    assert (failed.asset_key.path[-1], failed.check_name) == ("state_snapshot", "record_accounting")


def test_an_epoch_whose_predecessor_is_missing_is_refused(stage: Stage) -> None:
    stage.arrive(1)
    result = stage.run("epoch", [3])
    assert stage.error_kind(result) == "epoch_out_of_order"
    assert stage.checkpoints.plan(EpochNumber(3)) is None


def test_committing_what_is_not_prepared_is_refused_after_retries(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laminar_dagster.orchestration.failures._FIRST_PAUSE", 0.0)
    result = stage.run("commit", [1])
    assert stage.error_kind(result) == "epoch_not_prepared"


def test_a_service_that_is_away_is_waited_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laminar_dagster.orchestration.failures._FIRST_PAUSE", 0.01)
    stage.arrive(1)
    stage.run("epoch", [1])
    stage.world.table.is_away = True
    result = stage.run("commit", [1])
    assert stage.error_kind(result) == "sink_unavailable"
    assert "error[sink_unavailable]" in failure_text(result)
    retries = [event for event in result.all_events if event.is_step_up_for_retry]
    assert len(retries) == 3
    stage.world.table.is_away = False
    assert stage.run("commit", [1]).success
    assert stage.world.table.rows == stage.world.log.expected()


def test_a_range_is_one_run_in_order(stage: Stage) -> None:
    for number in range(12):
        stage.arrive(number)
    result = stage.run("epoch_and_commit", [1, 2, 3, 4])
    assert result.success
    assert stage.world.table.rows == stage.world.log.expected()
    reads = [stage.metadata(result, "state_snapshot", epoch)["records_read"] for epoch in (1, 2, 4)]
    assert reads == [3, 3, 3]
    assert stage.materialized("checkpoint_manifest") == [1, 2, 3, 4]


def test_a_range_of_committed_epochs_stops_at_the_first_that_differs(stage: Stage) -> None:
    for number in range(9):
        stage.arrive(number)
    stage.run("epoch_and_commit", [1, 2, 3])
    stage.world.log.partitions[0][4] = 77
    result = stage.run("epoch", [1, 2, 3])
    assert stage.error_kind(result) == "not_reproduced"
    assert "epoch 2" in failure_text(result)


def test_replay_observes_each_epoch_and_verify_every_file(stage: Stage) -> None:
    for number in range(9):
        stage.arrive(number)
    stage.run("epoch_and_commit", [1, 2, 3])
    config = {"clicks_replay_epochs": {"config": {"from_epoch": 2}}}
    result = stage.run("replay", ops=config)
    assert result.success
    seen = [
        event.asset_observation_data for event in result.all_events if event.is_asset_observation
    ]
    observed = [each.asset_observation for each in seen]
    assert [each.metadata["epoch"].value for each in observed] == [2, 3]
    assert {each.metadata["rerun"].value for each in observed} == {"identical"}
    assert stage.run("verify").success


def test_verify_names_a_damaged_file(stage: Stage) -> None:
    stage.arrive(1)
    stage.run("epoch_and_commit", [1])
    (state,) = (stage.project / "state").rglob("operators/**/*0*")
    state.write_bytes(b"damaged")
    result = stage.run("verify")
    assert stage.error_kind(result) == "checksum_mismatch"


def test_recover_mends_what_is_damaged_and_tells_of_it(stage: Stage) -> None:
    for number in range(9):
        stage.arrive(number)
    stage.run("epoch_and_commit", [1, 2, 3])
    root = stage.project / "state"
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    manifest = stage.checkpoints.winner(EpochNumber(3)).manifest
    state = root / "checkpoints" / manifest.checkpoint_id / "operators/totals/0.delta"
    state.write_bytes(b"damaged")
    (root / "checkpoints" / "_latest").unlink()
    dry = stage.run("recover", ops={"clicks_recover_store": {"config": {"dry_run": True}}})
    assert dry.success
    assert state.read_bytes() == b"damaged"
    result = stage.run("recover")
    assert result.success
    seen = [
        event.asset_observation_data.asset_observation
        for event in result.all_events
        if event.is_asset_observation
    ]
    assert seen[0].metadata["objects_mended"].value == 2
    assert seen[0].metadata["fallback_attempts"].value == 1
    assert {path: path.read_bytes() for path in before} == before
    assert stage.run("verify").success
    logged = [entry.message for entry in stage.instance.all_logs(result.run_id)]
    assert any("0.delta was rebuilt, epoch 3 run again" in message for message in logged)


def test_recover_refuses_a_store_that_was_set_back(stage: Stage) -> None:
    """Dagster has recorded an epoch of which the store knows nothing."""
    for number in range(6):
        stage.arrive(number)
    stage.run("epoch_and_commit", [1])
    older = {path: path.read_bytes() for path in (stage.project / "state").rglob("*.json")}
    latest = stage.project / "state" / "checkpoints" / "_latest"
    pointer = latest.read_bytes()
    stage.run("epoch_and_commit", [2])
    for path in (stage.project / "state").rglob("*.json"):
        if path not in older:
            path.unlink()
    latest.write_bytes(pointer)
    stage.world.table.ledger = EpochNumber(1)
    result = stage.run("recover")
    assert stage.error_kind(result) == "store_set_back"
    assert "Dagster knows of epoch 2" in failure_text(result)


def test_a_key_that_somebody_added_by_hand_is_refused(stage: Stage) -> None:
    stage.instance.add_dynamic_partitions("laminar_clicks_epochs", ["tomorrow"])
    result = stage.defs.resolve_job_def("clicks_epoch").execute_in_process(
        instance=stage.instance, partition_key="tomorrow", raise_on_error=False
    )
    assert stage.error_kind(result) == "invalid_name"


def test_a_bug_is_a_failure_without_secrets(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "tr0ubadour")

    def stumble(_plan: object) -> tuple[Violation, ...]:
        raise ZeroDivisionError("postgresql://ann:tr0ubadour@db/x")

    stage.arrive(1)
    stage.stream.gate = stumble
    result = stage.run("epoch", [1])
    assert stage.error_kind(result) == "internal"
    logged = [str(entry) for entry in stage.instance.all_logs(result.run_id)]
    assert logged
    assert not [entry for entry in logged if "tr0ubadour" in entry]
    assert "ZeroDivisionError" in failure_text(result)


def test_a_run_that_is_executed_again_does_not_keep_the_old_error(stage: Stage) -> None:
    stage.arrive(1)
    stage.instance.add_dynamic_partitions("laminar_clicks_epochs", ["000000000001"])
    result = stage.defs.resolve_job_def("clicks_epoch").execute_in_process(
        instance=stage.instance,
        partition_key="000000000001",
        tags={"laminar/error_kind": "gate_failed"},
    )
    assert stage.error_kind(result) == "none"
