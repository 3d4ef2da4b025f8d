"""A pipeline's ``pipeline.yml``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from laminar_dagster.config.strict_yaml import read_model
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.core.ids import PipelineName

FOLDER: Final = "dbt_like_configs"

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


class RetentionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How much history to keep."""

    checkpoints: Annotated[int, Meta(ge=1)] = 10
    grace: str = "1h"

    def __post_init__(self) -> None:
        """Refuse a duration that cannot be read."""
        parse_duration(self.grace)

    @property
    def grace_period(self) -> timedelta:
        """How long an attempt that lost is spared."""
        return parse_duration(self.grace)


class PipelineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in ``pipeline.yml``.

    Attributes:
        store: Where checkpoints live: a path (from the project's folder), ``file://`` or ``s3://``.
    """

    name: PipelineName
    store: Annotated[str, Meta(min_length=1)]
    description: str = ""
    retention: RetentionConfig = RetentionConfig()


def parse_duration(text: str) -> timedelta:
    """Read a duration such as ``30m``.

    Raises:
        ValueError: It is none.
    """
    found = _DURATION.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text!r} is not a duration such as 500ms, 30s, 15m, 1h or 7d")
    return timedelta(seconds=float(found[1]) * _UNITS[found[2]])


def read_pipeline(folder: Path, environment: Mapping[str, str] = os.environ) -> PipelineConfig:
    """Read the pipeline that a folder describes.

    Raises:
        InvalidConfig: Lists every mistake.
    """
    path = folder / "pipeline.yml"
    config = read_model(path, PipelineConfig, environment)
    if config.name != folder.name:
        problem = f"`name` is {config.name!r}, and its folder is {folder.name!r}"
        raise InvalidConfig(str(path), problem, "give both the same name")
    return config


def find_pipelines(project: Path) -> tuple[Path, ...]:
    """The folders of a project that describe a pipeline, by name."""
    return tuple(sorted(each.parent for each in (project / FOLDER).glob("*/pipeline.yml")))
