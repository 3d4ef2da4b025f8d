"""From pipelines to Dagster's definitions: assets, checks, jobs, sensors, schedules."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import dagster as dg

from laminar_dagster.config.model import PipelineModel
from laminar_dagster.config.pipeline import find_pipelines, read_pipeline
from laminar_dagster.config.project import read_sinks
from laminar_dagster.core.errors import InvalidConfig, InvalidName
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
from laminar_dagster.orchestration.translator import LaminarTranslator, StreamAsset
from laminar_dagster.runtime.assembly import build_sink, check_models
from laminar_dagster.runtime.loading import load_pipelines


def build_project_defs(
    project: Path,
    environment: Mapping[str, str] = os.environ,
    *,
    translator: LaminarTranslator | None = None,
) -> dg.Definitions:
    """The definitions of every pipeline that a project describes.

    Args:
        project: Its folder.
        environment: Where ``${NAME}`` is taken from.
        translator: Names and describes assets.

    Raises:
        InvalidPipeline: Lists every mistake of every pipeline.
    """
    # Every process of Dagster loads this: pandera would cost each of them seconds.
    loaded = load_pipelines(find_pipelines(project), project, environment, builds_contracts=False)
    translator = translator or LaminarTranslator()
    return _merge(*(Stream(each.model, project, translator=translator) for each in loaded))


def build_pipeline_defs(
    model: PipelineModel,
    project: Path,
    *,
    spark: dg.ConfigurableResource[object] | None = None,
    translator: LaminarTranslator | None = None,
    others: Iterable[Path] | None = None,
) -> dg.Definitions:
    """The definitions of one pipeline.

    Args:
        model: What its author wrote, from ``runtime.loading.load_pipelines``.
        project: Where relative paths begin.
        spark: Gives the Spark session in place of the default: anything with a property
            ``spark_session``, such as dagster-pyspark's ``PySparkResource``.
        translator: Names and describes assets.
        others: The folders of pipelines whose tables this one may read; those of the project
            unless they are given. Their mistakes are ignored.

    Raises:
        InvalidPipeline: Lists every option that is wrong.
    """
    translator = translator or LaminarTranslator()
    folders = find_pipelines(project) if others is None else others
    published = _published_by(folders, project, translator)
    stream = Stream(model, project, translator=translator, published=published)
    return build_definitions(stream, spark=spark)


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
    written = {
        address: stream.sink_key(table)
        for stream in streams
        for table in stream.model.sinks
        if (address := stream.asset("sink", table.sink_id).address)
    }
    for stream in streams:
        stream.published = {**stream.published, **written}
    require_own_assets(streams)
    let_launch_without_partition(EpochPartitions)
    return dg.Definitions.merge(
        dg.Definitions(assets=[*_sources(streams).values()]),
        *(_definitions_of(stream, spark) for stream in streams),
    )


def _published_by(
    folders: Iterable[Path], project: Path, translator: LaminarTranslator
) -> dict[str, dg.AssetKey]:
    """The assets of the sinks that folders describe, by address, as far as they can be read."""
    found: dict[str, dg.AssetKey] = {}
    for folder in folders:
        try:
            config = read_pipeline(folder)
            for table in read_sinks(folder):
                address = build_sink(table, project, config.name).address
                asset = StreamAsset(config, "sink", table.sink_id, address, project)
                found[address] = translator.get_asset_key(asset)
        except (InvalidConfig, InvalidName):
            continue
    return found


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
    written |= {key for stream in streams for key in stream.published.values()}
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
