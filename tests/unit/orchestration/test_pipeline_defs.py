"""What Dagster's catalogue shows of pipelines."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from laminar_dagster.core.errors import InvalidConfig, InvalidName
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.orchestration.names import epoch_of, partition_key, place_key
from laminar_dagster.orchestration.pipeline_defs import build_project_defs
from tests.unit.orchestration.conditions import FILES, Stage, write_pipeline

DOWNSTREAM = {
    "pipeline.yml": "name: alerts\nstore: alerts-state\n",
    "sources.sql": (
        "CREATE SOURCE TABLE lake (twice BIGINT, ts TIMESTAMP)\n"
        "WITH (connector = 'file', path = 'lake', pattern = '*.parquet', format = 'parquet');\n"
    ),
    "models/large.sql": "SELECT twice FROM lake WHERE twice > 100\n",
    "sinks.sql": "CREATE SINK large FROM large WITH (connector = 'sqlite', path = 'alerts.db');\n",
}


def node(defs: dg.Definitions, *path: str) -> dg.AssetSpec:
    return next(spec for spec in defs.resolve_all_asset_specs() if spec.key == dg.AssetKey(path))


def test_lineage_leads_from_sources_to_sinks(stage: Stage) -> None:
    graph = stage.defs.resolve_asset_graph()

    def below(*path: str) -> set[str]:
        return {key.to_user_string() for key in graph.get(dg.AssetKey(path)).child_keys}

    assert below("clicks", "numbers_source") == {"clicks/epoch_plan", "clicks/totals_staged"}
    assert below("clicks", "epoch_plan") == {
        "clicks/totals_staged",
        "clicks/checkpoint_manifest",
    }
    assert below("clicks", "totals_staged") == {"clicks/state_snapshot", "clicks/table"}
    assert below("clicks", "state_snapshot") == {"clicks/checkpoint_manifest"}
    assert below("clicks", "checkpoint_manifest") == {"clicks/table"}


def test_two_pipelines_that_are_one_name_to_dagster_are_refused(tmp_path: Path) -> None:
    for name in ("shop.eu", "shop-eu"):
        config = f"name: {name}\nstore: {name}-state\n"
        write_pipeline(tmp_path, name, {**DOWNSTREAM, "pipeline.yml": config, "sinks.sql": ""})
    with pytest.raises(InvalidConfig, match="are both `shop_eu` to Dagster"):
        build_project_defs(tmp_path)


def test_a_reference_table_is_an_asset_that_lineage_leads_from(tmp_path: Path) -> None:
    table = (
        "CREATE REFERENCE TABLE names (id BIGINT NOT NULL, name STRING, PRIMARY KEY (id))"
        " WITH (connector = 'file', path = 'names.csv', format = 'csv');"
    )
    joined = "SELECT c.value, n.name FROM numbers c LEFT JOIN names n ON c.value = n.id"
    files = {**FILES, "references.sql": table, "models/named.sql": joined}
    write_pipeline(tmp_path, "clicks", files)
    defs = build_project_defs(tmp_path)
    graph = defs.resolve_asset_graph()
    place = dg.AssetKey(["clicks", "names_source"])
    below = {key.to_user_string() for key in graph.get(place).child_keys}
    assert below == {"clicks/epoch_plan", "clicks/named_staged"}
    lineage = node(defs, "clicks", "named_staged").metadata["dagster/column_lineage"].deps_by_column
    assert lineage["name"] == [dg.TableColumnDep(place, "name")]
    assert [each.column_name for each in lineage["value"]] == ["value"]
    columns = node(defs, *place.path).metadata["dagster/column_schema"].columns
    assert [(each.name, each.type) for each in columns] == [("id", "bigint"), ("name", "string")]


def test_columns_have_types_and_origins(stage: Stage) -> None:
    source = node(stage.defs, "clicks", "numbers_source")
    schema = source.metadata["dagster/column_schema"]
    assert [(column.name, column.type) for column in schema.columns] == [
        ("value", "bigint"),
        ("ts", "timestamp"),
    ]
    view = node(stage.defs, "clicks", "totals_staged")
    lineage = view.metadata["dagster/column_lineage"].deps_by_column
    assert lineage["twice"] == [
        dg.TableColumnDep(dg.AssetKey(["clicks", "numbers_source"]), "value")
    ]
    sink = node(stage.defs, "clicks", "table")
    origin = sink.metadata["dagster/column_lineage"].deps_by_column["twice"]
    assert origin == [dg.TableColumnDep(dg.AssetKey(["clicks", "totals_staged"]), "twice")]


def test_assets_have_owners_kinds_versions_and_a_line_in_a_file(stage: Stage) -> None:
    view = node(stage.defs, "clicks", "totals_staged")
    assert list(view.owners) == ["team:growth", "ann@example.com"]
    assert view.kinds == {"pyspark", "sql", "pandera"}
    assert view.group_name == "clicks"
    assert view.code_version == stage.stream.model.fingerprint
    (reference,) = view.metadata["dagster/code_references"].code_references
    assert reference.file_path.endswith("models/totals.sql")
    assert node(stage.defs, "clicks", "table").kinds == {"sqlite"}


def test_freshness_is_watched_when_it_is_asked_for(stage: Stage) -> None:
    assert node(stage.defs, "clicks", "checkpoint_manifest").freshness_policy
    stage.files["pipeline.yml"] = stage.files["pipeline.yml"].replace("freshness: 15m", "")
    del stage.stream
    del stage.defs
    assert node(stage.defs, "clicks", "checkpoint_manifest").freshness_policy is None


def test_a_secret_option_is_not_shown(stage: Stage) -> None:
    stage.files["sources.sql"] = stage.files["sources.sql"].replace(
        "format = 'ndjson'", "format = 'ndjson', 'ssl.password' = 'tr0ubadour'"
    )
    from laminar_dagster.config.project import load_pipeline
    from laminar_dagster.orchestration.asset_specs import source_spec

    folder = write_pipeline(stage.project, "clicks", stage.files)
    stage.stream.model = load_pipeline(folder, {})
    spec = source_spec(stage.stream, stage.stream.model.sources[0])
    assert spec.metadata["option/ssl.password"] == "***"
    assert "tr0ubadour" not in repr(spec)


def test_a_table_that_one_writes_and_another_reads_is_one_asset(tmp_path: Path) -> None:
    upstream = dict(FILES)
    upstream["pipeline.yml"] = upstream["pipeline.yml"].replace(
        "connector: sqlite, options: {path: out.db, table: t}",
        "connector: delta, options: {path: lake}",
    )
    write_pipeline(tmp_path, "clicks", upstream)
    write_pipeline(tmp_path, "alerts", DOWNSTREAM)
    defs = build_project_defs(tmp_path)
    graph = defs.resolve_asset_graph()
    shared = graph.get(dg.AssetKey(["clicks", "table"]))
    assert shared.is_materializable
    assert {key.to_user_string() for key in shared.parent_keys} == {
        "clicks/checkpoint_manifest",
        "clicks/totals_staged",
    }
    assert {key.to_user_string() for key in shared.child_keys} == {
        "alerts/epoch_plan",
        "alerts/large_staged",
    }
    dg.Definitions.validate_loadable(defs)


def test_two_sinks_at_one_place_are_refused(tmp_path: Path) -> None:
    write_pipeline(tmp_path, "clicks", FILES)
    other = {**FILES, "pipeline.yml": FILES["pipeline.yml"].replace("name: clicks", "name: other")}
    write_pipeline(tmp_path, "other", other)
    with pytest.raises(InvalidConfig, match="sink `table` writes where `table` does"):
        build_project_defs(tmp_path)


def test_two_pipelines_may_read_one_source(tmp_path: Path) -> None:
    write_pipeline(tmp_path, "clicks", FILES)
    other = {
        **FILES,
        "pipeline.yml": FILES["pipeline.yml"]
        .replace("name: clicks", "name: other")
        .replace("out.db", "other.db"),
    }
    write_pipeline(tmp_path, "other", other)
    dg.Definitions.validate_loadable(build_project_defs(tmp_path))


def test_loading_touches_nothing(tmp_path: Path) -> None:
    write_pipeline(tmp_path, "clicks", FILES)
    build_project_defs(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dbt_like_configs"]


def test_every_mistake_of_a_project_is_told_at_once(tmp_path: Path) -> None:
    write_pipeline(
        tmp_path, "clicks", {**FILES, "models/totals.sql": "SELECT nothing FROM numbers"}
    )
    write_pipeline(tmp_path, "alerts", {**DOWNSTREAM, "pipeline.yml": "name: alerts\nstor: x\n"})
    with pytest.raises(InvalidConfig) as caught:
        build_project_defs(tmp_path)
    assert "nothing" in str(caught.value)
    assert "stor" in str(caught.value)


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("file:///work/p/in", ["file", "in"]),
        ("file:///else/where", ["file", "else", "where"]),
        ("sqlite:///work/p/a b.db/t", ["sqlite", "a_b.db", "t"]),
        ("kafka://broker:9092/clicks", ["kafka", "broker_9092", "clicks"]),
        ("s3://bucket/x/y", ["s3", "bucket", "x", "y"]),
    ],
)
def test_a_place_is_named_by_where_it_is(address: str, path: list[str]) -> None:
    assert place_key(address, Path("/work/p")).path == path


def test_keys_sort_like_their_epochs() -> None:
    keys = [partition_key(EpochNumber(number)) for number in (9, 10, 100, 99_999_999_999)]
    assert keys == sorted(keys)
    assert [int(epoch_of(key)) for key in keys] == [9, 10, 100, 99_999_999_999]


@pytest.mark.parametrize(
    "key", ["", "1", "000000000000", "00000000000x", "0000000000001", "²" * 12]
)
def test_what_is_no_epoch_is_refused(key: str) -> None:
    with pytest.raises(InvalidName):
        epoch_of(key)
