"""Names of assets: what they are by default, and who changes them how."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.orchestration.names import place_key
from laminar_dagster.orchestration.pipeline_defs import build_project_defs
from laminar_dagster.orchestration.translator import LaminarTranslator, StreamAsset
from tests.unit.orchestration.conditions import FILES, write_pipeline

ASSETS = """\
assets:
  key_prefix: web/live
  group_name: web
  tags: {tier: gold}
  sources:
    - {name: numbers, asset_key: raw/numbers}
  views:
    - {name: totals, group_name: staging, tags: {tier: none}}
  sinks:
    - name: table
      asset_key: mart/totals
      group_name: mart
      tags: {owner: finance}
      owners: [team:finance]
      automation_condition: eager
      freshness: 20m
"""


def specs(project: Path, assets: str = "", **arguments: object) -> dict[str, dg.AssetSpec]:
    files = {**FILES, "pipeline.yml": FILES["pipeline.yml"] + assets}
    write_pipeline(project, "clicks", files)
    defs = build_project_defs(project, **arguments)  # type: ignore[arg-type]
    dg.Definitions.validate_loadable(defs)
    return {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}


def test_keys_are_names_and_where_a_table_is_is_metadata(tmp_path: Path) -> None:
    found = specs(tmp_path)
    assert found.keys() == {
        "clicks/numbers_source",
        "clicks/epoch_plan",
        "clicks/totals_staged",
        "clicks/state_snapshot",
        "clicks/checkpoint_manifest",
        "clicks/table",
    }
    sink = found["clicks/table"]
    assert sink.metadata["dagster/table_name"] == "t"
    assert sink.metadata["address"] == f"sqlite://{tmp_path}/out.db/t"
    assert sink.kinds == {"sqlite"}


def test_a_key_is_the_same_wherever_the_table_is(tmp_path: Path) -> None:
    moved = {**FILES, "pipeline.yml": FILES["pipeline.yml"].replace("out.db", "production.db")}
    write_pipeline(tmp_path / "other", "clicks", moved)
    found = build_project_defs(tmp_path / "other").resolve_all_asset_specs()
    assert {spec.key.to_user_string() for spec in found} == specs(tmp_path).keys()


def test_yaml_changes_keys_groups_tags_owners_conditions_and_freshness(tmp_path: Path) -> None:
    found = specs(tmp_path, ASSETS)
    view, sink = found["web/live/totals_staged"], found["mart/totals"]
    source = found["raw/numbers"]
    assert (list(source.owners), "laminar/pipeline" in source.tags) == ([], False)
    assert (view.group_name, sink.group_name) == ("staging", "mart")
    assert found["clicks/epoch_plan"].group_name == "web"
    assert (view.tags["tier"], sink.tags["tier"], sink.tags["owner"]) == ("none", "gold", "finance")
    assert sink.tags["laminar/pipeline"] == "clicks"
    assert (list(sink.owners), list(view.owners)) == (
        ["team:finance"],
        ["team:growth", "ann@example.com"],
    )
    assert sink.automation_condition == dg.AutomationCondition.eager()
    assert view.automation_condition is None
    assert sink.freshness_policy == dg.FreshnessPolicy.time_window(timedelta(minutes=20))
    deps = {dep.asset_key.to_user_string() for dep in sink.deps}
    assert deps == {"clicks/checkpoint_manifest", "web/live/totals_staged"}


@pytest.mark.parametrize(
    ("assets", "told"),
    [
        ("assets: {sinks: [{name: tabel}]}\n", r"pipeline.yml:9: `tabel` under.*`table`"),
        ("assets:\n  sinks:\n    - {name: table, asset_kye: a}\n", r":11: unknown.*`asset_key`"),
        ("assets: {sinks: [{name: table}, {name: table}]}\n", "stands here twice"),
        ("assets: {views: [{name: totals, asset_key: clicks/table}]}\n", "is the asset clicks/tab"),
        ("assets: {views: [{name: totals, asset_key: a//b}]}\n", "names with a slash"),
        ("assets: {sinks: [{name: table, automation_condition: often}]}\n", "none of eager"),
        ("assets: {sinks: [{name: table, automation_condition: on_cron(daily)}]}\n", "daily"),
        ("assets: {sinks: [{name: table, freshness: 5s}]}\n", "a minute at least"),
        ("assets: {group_name: my group}\n", "letters, digits"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, assets: str, told: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        specs(tmp_path, assets)
    assert re.search(told, f"{caught.value} {caught.value.advice()}"), caught.value


class ByAddress(LaminarTranslator):
    """The keys of before names took the place of addresses."""

    def get_asset_key(self, asset: StreamAsset) -> dg.AssetKey:
        if asset.address:
            return place_key(asset.address, asset.project)
        return dg.AssetKey([str(asset.config.name), asset.name])


def test_a_translator_keeps_the_keys_of_before(tmp_path: Path) -> None:
    found = specs(tmp_path, translator=ByAddress())
    assert {"file/input", "clicks/totals", "sqlite/out.db/t"} <= found.keys()


@pytest.mark.filterwarnings("ignore:Parameter `include_sources`")
def test_a_condition_on_a_sink_asks_for_it_when_an_epoch_is_computed(tmp_path: Path) -> None:
    """And a table of somebody else that is eager is made anew after each epoch."""

    @dg.asset(
        deps=[dg.AssetKey(["clicks", "table"])],
        automation_condition=dg.AutomationCondition.eager(),
    )
    def report() -> None: ...

    write_pipeline(tmp_path, "clicks", FILES)
    defs = dg.Definitions.merge(build_project_defs(tmp_path), dg.Definitions([report]))
    table = dg.AssetKey(["clicks", "table"])
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("laminar_clicks_epochs", ["000000000001"])
        cursor = dg.evaluate_automation_conditions(defs, instance).cursor
        instance.report_runless_asset_event(
            dg.AssetMaterialization(table, partition="000000000001")
        )
        first = dg.evaluate_automation_conditions(defs, instance, cursor=cursor)
        assert first.get_num_requested(report.key) == 1
        instance.report_runless_asset_event(dg.AssetMaterialization(report.key))
        rest = dg.evaluate_automation_conditions(defs, instance, cursor=first.cursor)
        assert rest.total_requested == 0
        instance.add_dynamic_partitions("laminar_clicks_epochs", ["000000000002"])
        instance.report_runless_asset_event(
            dg.AssetMaterialization(table, partition="000000000002")
        )
        again = dg.evaluate_automation_conditions(defs, instance, cursor=rest.cursor)
        assert again.get_num_requested(report.key) == 1
