"""A pipeline as a component of dg."""

from __future__ import annotations

from collections.abc import Mapping

import dagster as dg
import pytest
from dagster.components.testing.utils import create_defs_folder_sandbox

from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.orchestration.component import StreamPipelineComponent
from tests.unit.orchestration.conditions import FILES

# Of Dagster's own code that reads YAML.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated"),
    pytest.mark.filterwarnings("ignore:.* is currently in (beta|preview)"),
]


LONG = "laminar_dagster.orchestration.component.StreamPipelineComponent"
SHORT = "laminar_dagster.StreamPipelineComponent"


def keys(
    files: Mapping[str, str], attributes: Mapping[str, str] | None = None, name: str = SHORT
) -> set[str]:
    """The assets of a project of dg with one pipeline, its defs.yaml beside its files."""
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.scaffold_component(
            component_cls=StreamPipelineComponent,
            defs_path="clicks",
            defs_yaml_contents={
                "type": name,
                "attributes": dict(attributes or {}),
            },
        )
        # In place of the example that the component is scaffolded with.
        for example in [*folder.rglob("*")]:
            if example.is_file() and example.name != "defs.yaml":
                example.unlink()
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        with sandbox.build_all_defs() as defs:
            dg.Definitions.validate_loadable(defs)
            graph = defs.resolve_asset_graph()
            return {key.to_user_string() for key in graph.get_all_asset_keys()}


@pytest.mark.parametrize("name", [SHORT, LONG])
def test_a_folder_becomes_a_pipeline(name: str) -> None:
    wanted = {
        "clicks/numbers_source",
        "clicks/totals_staged",
        "clicks/checkpoint_manifest",
        "clicks/table",
    }
    assert wanted <= keys(FILES, name=name)


def test_a_pipeline_may_lie_elsewhere() -> None:
    files = {f"../elsewhere/clicks/{path}": text for path, text in FILES.items()}
    assert "clicks/totals_staged" in keys(files, {"folder": "../elsewhere/clicks"})


def test_a_mistake_in_its_files_is_told_with_its_place() -> None:
    with pytest.raises(Exception) as caught:
        keys({**FILES, "pipeline.yml": "name: clicks\nstor: s\n"})
    causes = []
    error: BaseException | None = caught.value
    while error:
        causes.append(error)
        error = error.__cause__
    assert any(isinstance(each, InvalidConfig) and "stor" in str(each) for each in causes)
