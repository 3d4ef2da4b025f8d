"""Exactly-once stream processing as Dagster runs over Spark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from laminar_dagster.orchestration.component import StreamPipelineComponent
    from laminar_dagster.orchestration.translator import LaminarTranslator, StreamAsset

__all__ = ["LaminarTranslator", "StreamAsset", "StreamPipelineComponent"]

# Imported when they are asked for: executors of Spark import this package, and not Dagster.
_MODULES: Final = {
    "LaminarTranslator": "laminar_dagster.orchestration.translator",
    "StreamAsset": "laminar_dagster.orchestration.translator",
    "StreamPipelineComponent": "laminar_dagster.orchestration.component",
}


def __getattr__(name: str) -> Any:
    """What is exported, from the module where it is defined."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """The names of the package, with those that are not imported yet."""
    return sorted({*globals(), *_MODULES})
