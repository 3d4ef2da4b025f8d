"""A pipeline's checkpoints in Dagster: what there is, and a job that collects garbage.

The object store is the truth. Dagster looks at it: materialising the asset reads the newest
checkpoint and changes nothing; its numbers are metadata that Dagster plots.
"""

from pathlib import Path

import dagster as dg

from laminar_dagster.config.pipeline import PipelineConfig, find_pipelines, read_pipeline
from laminar_dagster.core.document import checksum
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.clock import SystemClock
from laminar_dagster.runtime.collector import Retention, collect
from laminar_dagster.runtime.survey import newest_manifest, survey
from laminar_dagster.stores.url import open_store


def build_project_defs(project: Path) -> dg.Definitions:
    """The definitions of every pipeline that a project describes."""
    return dg.Definitions.merge(
        *(
            build_checkpoint_defs(read_pipeline(folder), project)
            for folder in find_pipelines(project)
        )
    )


def build_checkpoint_defs(config: PipelineConfig, project: Path) -> dg.Definitions:
    """The newest checkpoint of one pipeline, and its job ``<pipeline>_collect``."""
    retention = Retention.of(config.retention)

    def checkpoints() -> CheckpointStore:
        return CheckpointStore(open_store(config.store, project))

    @dg.asset(
        key=dg.AssetKey([config.name, "checkpoint_manifest"]),
        group_name=_dagster_name(config.name),
        description=config.description or f"The newest checkpoint of {config.name}.",
        metadata={"store": dg.MetadataValue.text(checkpoints().objects.url)},
    )
    def checkpoint_manifest() -> dg.MaterializeResult[None]:
        """Look at the newest checkpoint."""
        store = checkpoints()
        manifest = newest_manifest(store, survey(store))
        if manifest is None:
            return dg.MaterializeResult(metadata={"epoch": 0})
        return dg.MaterializeResult(
            data_version=dg.DataVersion(checksum(manifest)), metadata=manifest_metadata(manifest)
        )

    @dg.op(name=f"{_dagster_name(config.name)}_collect_garbage")
    def collect_garbage(context: dg.OpExecutionContext) -> None:
        """Remove what no retained checkpoint reaches."""
        done = collect(checkpoints(), retention, SystemClock().now())
        context.log.info(
            "removed %d objects, %d bytes; kept %d checkpoints",
            len(done.garbage.keys),
            done.garbage.size_bytes,
            len(done.retained),
        )

    @dg.job(
        name=f"{_dagster_name(config.name)}_collect",
        executor_def=dg.in_process_executor,
        description=f"Collect the garbage of {config.name}: keeps {retention.checkpoints} "
        f"checkpoints and everything they reach.",
    )
    def collect_job() -> None:
        collect_garbage()

    return dg.Definitions(assets=[checkpoint_manifest], jobs=[collect_job])


def manifest_metadata(manifest: CheckpointManifest) -> dict[str, dg.MetadataValue]:
    """The figures of a checkpoint, as numbers, so that Dagster plots them."""
    return {
        "epoch": dg.MetadataValue.int(int(manifest.epoch)),
        "checkpoint_id": dg.MetadataValue.text(str(manifest.checkpoint_id)),
        "completed_at": dg.MetadataValue.timestamp(manifest.completed_at),
        "state_bytes": dg.MetadataValue.int(manifest.total_size_bytes),
        "state_files": dg.MetadataValue.int(
            sum(len(entry.partitions) for entry in manifest.operators)
        ),
        "records_read": dg.MetadataValue.int(manifest.counts.read),
        "records_dead_lettered": dg.MetadataValue.int(manifest.counts.dead_lettered),
        "records_late": dg.MetadataValue.int(manifest.counts.late),
        "rows_staged": dg.MetadataValue.int(
            sum(file.rows for entry in manifest.sinks for file in entry.files)
        ),
    }


def _dagster_name(name: str) -> str:
    """Dagster's names hold letters, digits and underscores only."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)
