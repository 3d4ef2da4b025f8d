"""A pipeline's checkpoints as Dagster sees them."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.orchestration.checkpoints import build_project_defs
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.stores.local import LocalStore
from tests.unit.runtime.checkpoint_behaviour import history


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "dbt_like_configs" / "clicks"
    folder.mkdir(parents=True)
    (folder / "pipeline.yml").write_text(
        "name: clicks\nstore: state/clicks\nretention: {checkpoints: 2, grace: 0s}\n"
    )
    return tmp_path


def observed(project: Path) -> dict[str, object]:
    defs = build_project_defs(project)
    key = dg.AssetKey(["clicks", "checkpoint_manifest"])
    result = dg.materialize([defs.resolve_assets_def(key)])
    assert result.success
    (event,) = result.asset_materializations_for_node("clicks__checkpoint_manifest")
    return {name: value.value for name, value in event.metadata.items()}


def test_a_pipeline_without_checkpoints_is_at_epoch_zero(project: Path) -> None:
    assert observed(project)["epoch"] == 0


def test_the_newest_checkpoint_is_observed_with_its_figures(project: Path) -> None:
    history(LocalStore(project / "state" / "clicks"), 3)
    seen = observed(project)
    assert seen["epoch"] == 3
    assert seen["records_read"] == 2
    assert seen["rows_staged"] == 2


def test_the_collect_job_keeps_what_is_configured(project: Path) -> None:
    store = LocalStore(project / "state" / "clicks")
    history(store, 5)
    job = build_project_defs(project).resolve_job_def("clicks_collect")
    assert job.execute_in_process(instance=dg.DagsterInstance.ephemeral()).success
    assert len(list(CheckpointStore(store).candidates())) == 2


def test_a_mistake_in_a_pipeline_names_its_file_and_line(project: Path) -> None:
    path = project / "dbt_like_configs" / "clicks" / "pipeline.yml"
    path.write_text("name: clicks\nstor: here\n")
    with pytest.raises(InvalidConfig) as caught:
        build_project_defs(project)
    assert "pipeline.yml:2" in str(caught.value)
    assert "store" in caught.value.advice() + str(caught.value)


def test_the_repository_itself_loads() -> None:
    root = Path(__file__).parents[3]
    defs = build_project_defs(root)
    dg.Definitions.validate_loadable(defs)
    assert any("clickstream" in str(key) for key in defs.resolve_all_asset_keys())
