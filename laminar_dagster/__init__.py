"""Exactly-once stream processing as Dagster runs over Spark.

::

    import laminar_dagster as laminar

    laminar.open("shop").pipeline("clickstream").run(epochs=1)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from laminar_dagster.facade import (
        ArrowRows,
        Epoch,
        PipelineStatus,
        Project,
        ProjectPipeline,
    )
    from laminar_dagster.facade import open_project as open
    from laminar_dagster.orchestration.component import StreamPipelineComponent
    from laminar_dagster.orchestration.translator import LaminarTranslator, StreamAsset

__all__ = [
    "ArrowRows",
    "Epoch",
    "LaminarTranslator",
    "PipelineStatus",
    "Project",
    "ProjectPipeline",
    "StreamAsset",
    "StreamPipelineComponent",
    "open",
]

# Imported when they are asked for: executors of Spark import this package, and none of these.
_EXPORTS: Final = {
    "Epoch": ("laminar_dagster.facade", "Epoch"),
    "LaminarTranslator": ("laminar_dagster.orchestration.translator", "LaminarTranslator"),
    "PipelineStatus": ("laminar_dagster.facade", "PipelineStatus"),
    "Project": ("laminar_dagster.facade", "Project"),
    "ProjectPipeline": ("laminar_dagster.facade", "ProjectPipeline"),
    "ArrowRows": ("laminar_dagster.facade", "ArrowRows"),
    "StreamAsset": ("laminar_dagster.orchestration.translator", "StreamAsset"),
    "StreamPipelineComponent": (
        "laminar_dagster.orchestration.component",
        "StreamPipelineComponent",
    ),
    "open": ("laminar_dagster.facade", "open_project"),
}


def __getattr__(name: str) -> Any:
    """What is exported, from the module where it is defined."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _EXPORTS[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    """The names of the package, with those that are not imported yet."""
    return sorted({*globals(), *_EXPORTS})
