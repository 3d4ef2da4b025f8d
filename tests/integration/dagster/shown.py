"""All that Dagster shows of a project and its runs, as one text: to look for what must not be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.services.dagster_client import DagsterClient
from tests.services.dagster_graphql import ERROR
from tests.services.dagster_records import METADATA

_DEFINITIONS: Final = f"""query ($of: RepositorySelector!) {{
    repositoryOrError(repositorySelector: $of) {{
        {ERROR}
        ... on Repository {{
            assetNodes {{
                assetKey {{ path }} description opNames kinds owners {{ __typename }}
                tags {{ key value }} {METADATA}
                assetMaterializations(limit: 100) {{ {METADATA} }}
                assetObservations(limit: 100) {{ {METADATA} }}
            }}
            jobs {{ name description tags {{ key value }} }}
            sensors {{
                name description
                sensorState {{
                    ticks(limit: 500) {{
                        skipReason cursor runKeys logKey error {{ message stack }}
                    }}
                }}
            }}
            schedules {{ name description scheduleState {{ ticks {{ skipReason }} }} }}
        }}
    }}
}}"""
_RESOURCES: Final = f"""query ($of: RepositorySelector!) {{
    allTopLevelResourceDetailsOrError(repositorySelector: $of) {{
        {ERROR}
        ... on ResourceDetailsList {{
            results {{
                name description configuredValues {{ key value }}
                configFields {{ name description defaultValueAsJson }}
            }}
        }}
    }}
}}"""
_EVENTS: Final = f"""query ($run: ID!) {{
    logsForRun(runId: $run, limit: 1000) {{
        {ERROR}
        ... on EventConnection {{
            events {{
                ... on MessageEvent {{ message }}
                ... on ErrorEvent {{
                    error {{ message stack causes {{ message stack }} }}
                }}
                ... on ExecutionStepFailureEvent {{
                    failureMetadata {{ label description {METADATA} }}
                }}
                ... on AssetCheckEvaluationEvent {{ evaluation {{ description {METADATA} }} }}
            }}
        }}
    }}
}}"""


def all_shown(dagster: DagsterClient) -> str:
    """Definitions, resources, ticks, and everything of every run."""
    found: list[Any] = [
        dagster.expect("Repository", _DEFINITIONS, of=dagster.repository),
        dagster.expect("ResourceDetailsList", _RESOURCES, of=dagster.repository),
    ]
    for run in dagster.runs():
        found += [run.run_config, dict(run.tags)]
        found.append(dagster.expect("EventConnection", _EVENTS, run=run.run_id))
    return json.dumps(found)


def files_with(text: str, *folders: Path) -> Iterator[Path]:
    """The files that hold a text, also those of a database."""
    for folder in folders:
        for file in folder.rglob("*") if folder.is_dir() else (folder,):
            if file.is_file() and text.encode() in file.read_bytes():
                yield file
