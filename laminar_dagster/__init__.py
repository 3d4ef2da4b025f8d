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
        Epoch,
        PipelineStatus,
        Project,
        ProjectPipeline,
        Rows,
    )
    from laminar_dagster.facade import open_project as open

__all__ = ["Epoch", "PipelineStatus", "Project", "ProjectPipeline", "Rows", "open"]

# Loaded when they are asked for: Spark's workers import this package too, and need none of them.
_EXPORTS: Final = {
    "open": ("laminar_dagster.facade", "open_project"),
    "Epoch": ("laminar_dagster.facade", "Epoch"),
    "PipelineStatus": ("laminar_dagster.facade", "PipelineStatus"),
    "Project": ("laminar_dagster.facade", "Project"),
    "ProjectPipeline": ("laminar_dagster.facade", "ProjectPipeline"),
    "Rows": ("laminar_dagster.facade", "Rows"),
}


def __getattr__(name: str) -> Any:
    """Import an exported name when it is first asked for."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _EXPORTS[name]
    found = globals()[name] = getattr(import_module(module), attribute)
    return found


def __dir__() -> list[str]:
    """The exported names, also those that are not loaded yet."""
    return sorted({*globals(), *__all__})
