"""What `dagster dev` loads: every pipeline below dbt_like_configs/."""

from pathlib import Path

from laminar_dagster.orchestration.pipeline_defs import build_project_defs

defs = build_project_defs(Path(__file__).parent)
