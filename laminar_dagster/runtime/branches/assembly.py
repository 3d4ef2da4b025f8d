"""Builds a runnable branch from the model of a pipeline, with a store and tables of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from laminar_dagster.config.definition import define
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.core.ids import MAX_EPOCH, BranchName, PipelineName
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.plugins.declarations import SinkConnector
from laminar_dagster.plugins.registry import find_usable
from laminar_dagster.runtime.assembly import (
    bounds_of,
    build_engine,
    build_reference,
    build_source,
    check_models,
    counted_keys,
)
from laminar_dagster.runtime.branches.places import table_folder
from laminar_dagster.runtime.branches.published import branch_sinks
from laminar_dagster.runtime.branches.records import branch_area
from laminar_dagster.runtime.branches.sources import ReadOnlySource
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.pipeline import Pipeline

if TYPE_CHECKING:
    from laminar_dagster.spark.session import SessionFactory

# Garbage is never collected in a branch: every epoch is needed as long as the branch exists.
NEVER: Final = MAX_EPOCH + 1


def assemble_branch(
    model: PipelineModel,
    project: Path,
    store: ObjectStore,
    name: BranchName,
    session: SessionFactory | None,
) -> Pipeline:
    """Put a branch together: it reads the pipeline's sources, and writes to tables of its own.

    Args:
        model: The version that computes it.
        project: Where its tables are made, and relative paths begin.
        store: The pipeline's store.
        name: The branch's name.
        session: As for ``runtime.assembly.assemble``.

    Raises:
        InvalidPipeline: Lists every mistake of the version, those of its own sinks included.
        InvalidConfig: Delta Lake's client, by which a branch writes its tables, is not installed.
        InvalidName: The names of pipeline and branch together are too long.
    """
    check_models([model], project)
    find_usable(SinkConnector, "delta", {}, f"branch {name}")
    # Imported here: the client of Delta Lake is an extra.
    from laminar_dagster.sinks.delta.sink import DeltaSink

    config = model.config
    area = branch_area(store, name)
    # With the pipeline's store: the plans that a branch replays name the snapshots there.
    sources = tuple(
        ReadOnlySource(build_source(table, config, project, store)) for table in model.sources
    )
    pipeline = PipelineName(f"{config.name}.{name}")
    published = branch_sinks(model)
    return Pipeline(
        name=pipeline,
        fingerprint=model.fingerprint,
        checkpoints=CheckpointStore(area, snapshots=store),
        engine=build_engine(model, area, sources, session),
        sources=sources,
        sinks=tuple(
            DeltaSink(
                sink.sink_id,
                pipeline,
                table_folder(project, config.name, name, sink.sink_id),
                mode=sink.mode,
                key=sink.key,
            )
            for sink in published
        ),
        references=tuple(build_reference(table, project) for table in model.references),
        published=published,
        definition=define(model),
        counted=counted_keys(model),
        max_ahead=bounds_of(model),
        collect_every=NEVER,
    )
