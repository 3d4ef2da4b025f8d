"""Epochs that are launched by hand, on an instance where no sensor has run."""

from __future__ import annotations

from typing import Any

import click
import dagster as dg
import pytest
from dagster._cli import asset as asset_commands

from laminar_dagster.core.errors import StoreUnavailable
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.orchestration.epoch_partitions import EpochPartitions
from laminar_dagster.orchestration.names import partition_key
from tests.unit.orchestration.conditions import Stage, failure_text

PARTITIONS = "laminar_clicks_epochs"


def launch(stage: Stage, job: str, **arguments: Any) -> dg.ExecuteInProcessResult:
    """Run a job as nobody else has prepared it: no partition is in the instance."""
    return stage.defs.resolve_job_def(f"clicks_{job}").execute_in_process(
        instance=stage.instance, raise_on_error=False, **arguments
    )


def partitions_of(result: dg.ExecuteInProcessResult) -> set[str | None]:
    return {each.partition for each in result.get_asset_materialization_events()}


def test_without_a_partition_it_is_the_next_epoch(stage: Stage) -> None:
    for epoch in (1, 2):
        stage.arrive(epoch)
        result = launch(stage, "epoch_and_commit")
        assert result.success
        assert partitions_of(result) == {partition_key(EpochNumber(epoch))}
        assert stage.newest == epoch
    assert stage.instance.get_dynamic_partitions(PARTITIONS) == [f"{1:012d}", f"{2:012d}"]
    assert len(stage.world.table.rows) == 2


def test_a_commit_without_a_partition_is_that_of_the_prepared_epoch(stage: Stage) -> None:
    for epoch in (1, 2):
        stage.arrive(epoch)
        assert launch(stage, "epoch").success
        committed = launch(stage, "commit")
        assert partitions_of(committed) == {partition_key(EpochNumber(epoch))}
    assert stage.world.table.rows == stage.world.log.expected()


def test_the_next_partition_is_valid_before_a_sensor_has_added_it(stage: Stage) -> None:
    stage.arrive(1)
    assert launch(stage, "epoch_and_commit", partition_key=f"{1:012d}").success
    assert stage.instance.get_dynamic_partitions(PARTITIONS) == [f"{1:012d}"]


def test_an_epoch_may_follow_one_that_is_prepared(stage: Stage) -> None:
    stage.arrive(1)
    assert launch(stage, "epoch").success
    stage.arrive(2)
    assert launch(stage, "epoch_and_commit", partition_key=f"{2:012d}").success
    assert stage.newest == 2


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (f"{7:012d}", f"epoch 7 cannot be run yet.*\nlaunch partition {1:012d}, or leave"),
        ("7", f"partition '7' is not the number of an epoch in 12 digits, such as {7:012d}"),
        ("tomorrow", f"is not the number of an epoch in 12 digits, such as {1:012d}"),
    ],
)
def test_a_partition_that_cannot_be_run_is_refused_in_a_sentence(
    stage: Stage, key: str, told: str
) -> None:
    with pytest.raises(click.ClickException, match=told) as caught:
        launch(stage, "epoch_and_commit", partition_key=key)
    assert caught.value.exit_code == 2
    assert stage.instance.get_runs_count() == 0
    assert stage.instance.get_dynamic_partitions(PARTITIONS) == []


def test_a_tag_is_as_good_as_a_partition(stage: Stage) -> None:
    stage.arrive(1)
    assert launch(stage, "epoch_and_commit", tags={"dagster/partition": f"{1:012d}"}).success
    refused = launch(stage, "epoch", tags={"dagster/partition": f"{9:012d}"})
    assert "epoch_out_of_order" in failure_text(refused)


def test_a_store_that_cannot_be_read_is_named(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> EpochNumber:
        raise StoreUnavailable("state", "it does not answer")

    monkeypatch.setattr(stage.stream, "next_epoch", away)
    refused = launch(stage, "epoch_and_commit")
    assert "error[store_unavailable]" in failure_text(refused)


def test_dagsters_commands_still_refuse_assets_of_others_without_a_partition(stage: Stage) -> None:
    """In the frame that Dagster has: the names are those of its own variables."""
    days = dg.StaticPartitionsDefinition(["monday"])

    @dg.asset(partitions_def=days)
    def report() -> None: ...

    graph = dg.Definitions([report], executor=dg.in_process_executor)
    refusal = "Asset has partitions, but no '--partition' option was provided"

    def check(defs: dg.Definitions, *keys: dg.AssetKey) -> None:
        asset_keys = {*keys}
        implicit_job_def = defs.resolve_implicit_global_asset_job_def()
        assert asset_keys <= implicit_job_def.asset_layer.asset_graph.get_all_asset_keys()
        vars(asset_commands)["check"].failed(refusal)

    manifest = dg.AssetKey(["clicks", "checkpoint_manifest"])
    assert isinstance(stage.stream.partitions, EpochPartitions)
    check(stage.defs, manifest)
    with pytest.raises(Exception, match="no '--partition'"):
        check(graph, report.key)
