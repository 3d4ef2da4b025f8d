"""From pipelines to Dagster's definitions: assets, checks, jobs, sensors, schedules."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import dagster as dg

from laminar_dagster.config.model import PipelineModel
from laminar_dagster.config.pipeline import find_pipelines
from laminar_dagster.orchestration.asset_specs import reference_spec, source_spec
from laminar_dagster.orchestration.commit_assets import build_commit_assets
from laminar_dagster.orchestration.epoch_assets import build_epoch_assets
from laminar_dagster.orchestration.epoch_partitions import EpochPartitions, epoch_resource
from laminar_dagster.orchestration.jobs import build_jobs
from laminar_dagster.orchestration.private_api import let_launch_without_partition
from laminar_dagster.orchestration.prune import build_prune_job, build_prune_schedule
from laminar_dagster.orchestration.schedules import build_epoch_schedule
from laminar_dagster.orchestration.sensors import build_commit_sensor, build_epoch_sensor
from laminar_dagster.orchestration.spark_resource import spark_resource
from laminar_dagster.orchestration.stream import Stream, require_own_assets
from laminar_dagster.runtime.assembly import check_models
from laminar_dagster.runtime.loading import load_pipelines


def build_project_defs(
    project: Path, environment: Mapping[str, str] = os.environ
) -> dg.Definitions:
    """The definitions of every pipeline that a project describes.

    Raises:
        InvalidPipeline: Lists every mistake of every pipeline.
    """
    # Every process of Dagster loads this: pandera would cost each of them seconds.
    loaded = load_pipelines(find_pipelines(project), project, environment, builds_contracts=False)
    return _merge(*(Stream(each.model, project) for each in loaded))


def build_pipeline_defs(
    model: PipelineModel, project: Path, *, spark: dg.ConfigurableResource[object] | None = None
) -> dg.Definitions:
    """The definitions of one pipeline.

    Args:
        model: What its author wrote, from ``runtime.loading.load_pipelines``.
        project: Where relative paths begin.
        spark: Gives the Spark session in place of the default: anything with a property
            ``spark_session``, such as dagster-pyspark's ``PySparkResource``.

    Raises:
        InvalidPipeline: Lists every option that is wrong.
    """
    return build_definitions(Stream(model, project), spark=spark)


def build_definitions(
    *streams: Stream, spark: dg.ConfigurableResource[object] | None = None
) -> dg.Definitions:
    """The definitions of pipelines that may read what others of them write.

    Raises:
        InvalidPipeline: Lists mistakes that their files alone do not show.
    """
    for project in dict.fromkeys(stream.project for stream in streams):
        check_models([each.model for each in streams if each.project == project], project)
    return _merge(*streams, spark=spark)


def _merge(
    *streams: Stream, spark: dg.ConfigurableResource[object] | None = None
) -> dg.Definitions:
    require_own_assets(streams)
    let_launch_without_partition(EpochPartitions)
    return dg.Definitions.merge(
        dg.Definitions(assets=[*_sources(streams).values()]),
        *(_definitions_of(stream, spark) for stream in streams),
    )


def _sources(streams: tuple[Stream, ...]) -> dict[dg.AssetKey, dg.AssetSpec]:
    """The external assets: places that are read, and that no sink of these pipelines writes."""
    written = {stream.sink_key(table) for stream in streams for table in stream.model.sinks}
    found = {
        spec.key: spec
        for stream in streams
        for spec in (
            # The last spec of a key wins: a place that is both is described as a source.
            *(reference_spec(stream, table) for table in stream.model.references),
            *(source_spec(stream, table) for table in stream.model.sources),
        )
    }
    return {key: spec for key, spec in found.items() if key not in written}


def _definitions_of(
    stream: Stream, spark: dg.ConfigurableResource[object] | None
) -> dg.Definitions:
    config = stream.model.config
    epoch, commit = build_epoch_assets(stream), build_commit_assets(stream)
    prune = build_prune_job(stream)
    schedules = [build_prune_schedule(stream)]
    if config.schedule is not None:
        schedules.append(build_epoch_schedule(stream, config.schedule))
    return dg.Definitions(
        assets=[epoch, commit],
        jobs=[*build_jobs(stream, epoch, commit), prune],
        sensors=[build_epoch_sensor(stream), build_commit_sensor(stream)],
        schedules=schedules,
        resources={
            stream.names.epoch: epoch_resource(stream.next_epoch),
            stream.names.spark: spark
            or spark_resource(
                config.spark, stream.model.written_spark, stream.model.secret_variables
            ),
        },
    )
