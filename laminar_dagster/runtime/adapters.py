"""A pipeline's store, sources and sinks, without its engine: to look, not to compute.

Nothing here starts Spark, and nothing makes a store, a folder or a database that is not there yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from laminar_dagster.config.mistakes import Report
from laminar_dagster.config.model import PipelineModel, Place
from laminar_dagster.config.pipeline import PipelineConfig, config_file
from laminar_dagster.core.errors import InvalidConfig, InvalidName
from laminar_dagster.core.ports import ObjectStore, Reference, Sink, Source
from laminar_dagster.runtime.assembly import build_reference, build_sink, build_source
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.stores.url import local_folder, open_store

BuiltT = TypeVar("BuiltT")


@dataclass(frozen=True, slots=True)
class Adapters:
    """What a pipeline reads from and writes to."""

    sources: tuple[Source, ...]
    sinks: tuple[Sink, ...]
    references: tuple[Reference, ...] = ()


def build_adapters(model: PipelineModel, project: Path) -> Adapters:
    """Build every source, reference table and sink; nothing is opened yet.

    Raises:
        InvalidPipeline: Lists every option that is wrong, and a wrong address of the store.
    """
    report = Report()
    store = _existing_store(model.config, project, report)
    name = model.config.name
    sources = _build_each(
        [
            (table.place, partial(build_source, table, model.config, project, store))
            for table in model.sources
        ],
        report,
    )
    sinks = _build_each(
        [(table.place, partial(build_sink, table, project, name)) for table in model.sinks],
        report,
    )
    references = _build_each(
        [(table.place, partial(build_reference, table, project)) for table in model.references],
        report,
    )
    report.raise_if_any()
    return Adapters(sources, sinks, references)


def _existing_store(config: PipelineConfig, project: Path, report: Report) -> ObjectStore | None:
    try:
        checkpoints = existing_checkpoints(config, project)
    except InvalidConfig as error:
        where = str(config_file(project, config.name))
        report.add(where, f"`store`: {error.problem}", error.suggestion)
        return None
    return checkpoints.objects if checkpoints else None


def _build_each(
    wanted: Sequence[tuple[Place, Callable[[], BuiltT]]], report: Report
) -> tuple[BuiltT, ...]:
    built = []
    for place, build in wanted:
        try:
            built.append(build())
        except InvalidConfig as error:
            report.add_error(error)
        except InvalidName as error:
            report.add(str(place), str(error), error.advice())
    return tuple(built)


def existing_checkpoints(config: PipelineConfig, project: Path) -> CheckpointStore | None:
    """The checkpoints of a pipeline; None when it has no store yet.

    Raises:
        InvalidConfig: The address of the store is wrong.
    """
    folder = local_folder(config.store, project)
    if folder is not None and not folder.exists():
        return None
    return CheckpointStore(open_store(config.store, project))
