"""The second half of an epoch as one step: the manifest, then every sink's transaction.

Idempotent, and safe beside another run: the later one finds the epoch in every ledger, and changes
nothing.
"""

from collections.abc import Callable, Iterator

import dagster as dg

from laminar_dagster.core.document import checksum
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.orchestration import metadata
from laminar_dagster.orchestration.asset_specs import MANIFEST, manifest_spec, sink_spec
from laminar_dagster.orchestration.epoch_partitions import epochs_of_run
from laminar_dagster.orchestration.failures import named_failures
from laminar_dagster.orchestration.names import (
    EPOCH_TAG,
    PIPELINE_TAG,
    REVISION_TAG,
    partition_key,
)
from laminar_dagster.orchestration.output_columns import column_schema
from laminar_dagster.orchestration.stream import Stream, Watcher
from laminar_dagster.orchestration.telemetry import push_epoch
from laminar_dagster.runtime.epoch import EpochRunner, StepTaken
from laminar_dagster.runtime.pipeline import Pipeline


def build_commit_assets(stream: Stream) -> dg.AssetsDefinition:
    """``checkpoint_manifest``, and one asset for each sink."""
    names = stream.names

    @dg.multi_asset(
        name=names.job("publish"),
        description="Commit a prepared epoch: the manifest, then each sink in one transaction.",
        specs=[
            manifest_spec(stream),
            *(sink_spec(stream, table) for table in stream.model.sinks),
        ],
        partitions_def=stream.partitions,
        backfill_policy=dg.BackfillPolicy.single_run(),
        required_resource_keys={names.epoch},
        pool=names.pool,
    )
    def publish_epochs(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[None]]:
        with named_failures(context, stream.watcher):
            pipeline = stream.open(None)
            runner = EpochRunner(pipeline, on_step=_log_to(context, stream.watcher))
            epochs = epochs_of_run(context, names.partitions, names.epoch)
            for epoch in epochs:
                context.instance.add_run_tags(
                    context.run.run_id,
                    {
                        PIPELINE_TAG: str(names.pipeline),
                        EPOCH_TAG: str(epoch),
                        REVISION_TAG: stream.revision,
                    },
                )
                report = runner.commit(epoch)
                if stream.watcher:
                    stream.watcher.done(report)
                push_epoch(stream, pipeline, report)
                manifest = pipeline.checkpoints.winner(epoch).manifest
                done = {each.sink_id: each for each in report.transactions}
                transactions = {
                    stream.sink_key(table): metadata.transaction_metadata(done[table.sink_id])
                    for table in stream.model.sinks
                    if table.sink_id in done
                }
                for asset, found in commit_metadata(stream, pipeline, manifest).items():
                    if asset == names.asset(MANIFEST):
                        found |= metadata.duration_metadata(report.steps)
                        found |= _published(report.steps)
                    found |= transactions.get(asset, {})
                    context.add_asset_metadata(
                        found, asset_key=asset, partition_key=partition_key(epoch)
                    )
            versions = commit_versions(stream, manifest)
            for asset, version in versions.items():
                yield dg.MaterializeResult(asset_key=asset, data_version=version)

    return publish_epochs


def commit_metadata(
    stream: Stream, pipeline: Pipeline, manifest: CheckpointManifest
) -> dict[dg.AssetKey, metadata.Metadata]:
    """The metadata of a committed epoch, by asset."""
    found = {stream.names.asset(MANIFEST): metadata.manifest_metadata(manifest)}
    for table in stream.model.sinks:
        found[stream.sink_key(table)] = {
            "epoch": dg.MetadataValue.text(str(manifest.epoch)),
            **metadata.output_metadata(manifest, [table.sink_id]),
            **column_schema(pipeline.checkpoints.objects, manifest, [table.sink_id]),
        }
    return found


def commit_versions(
    stream: Stream, manifest: CheckpointManifest
) -> dict[dg.AssetKey, dg.DataVersion]:
    """Hashes of the manifest, and of what each sink published."""
    staged = {entry.sink_id: entry.output_sha256 for entry in manifest.sinks}
    found = {stream.names.asset(MANIFEST): dg.DataVersion(checksum(manifest))}
    for table in stream.model.sinks:
        # A sink that joined the pipeline later has no output of this epoch.
        version = staged.get(table.sink_id, checksum(manifest))
        found[stream.sink_key(table)] = dg.DataVersion(version)
    return found


def _published(steps: tuple[StepTaken, ...]) -> metadata.Metadata:
    done_here = any(step.name == "CommitSinks" for step in steps)
    text = "by this run" if done_here else "before this run, which changed nothing"
    return {"published": dg.MetadataValue.text(text)}


def _log_to(
    context: dg.AssetExecutionContext, watcher: Watcher | None
) -> Callable[[EpochNumber, str], None]:
    def log(epoch: EpochNumber, step: str) -> None:
        context.log.info("epoch %d: %s", epoch, step)
        if watcher:
            watcher.step(epoch, step)

    return log
