"""The first half of an epoch as one step: plan, compute, gate, prepare. Nothing is published.

Materialising an epoch that is committed runs its plan again and compares every hash.
"""

import hashlib
from collections.abc import Iterator

import dagster as dg

from laminar_dagster.core.document import checksum, encode_part
from laminar_dagster.core.errors import GateFailed, NotReproduced, ObjectMissing
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.layout import plan_key
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.recovery import Standing
from laminar_dagster.orchestration import checks, metadata
from laminar_dagster.orchestration.asset_specs import PLAN, STATE, plan_spec, state_spec, view_spec
from laminar_dagster.orchestration.epoch_partitions import epochs_of_run
from laminar_dagster.orchestration.failures import named_failures
from laminar_dagster.orchestration.names import (
    EPOCH_TAG,
    PIPELINE_TAG,
    REVISION_TAG,
    partition_key,
)
from laminar_dagster.orchestration.output_columns import column_schema
from laminar_dagster.orchestration.spark_resource import interruptibly
from laminar_dagster.orchestration.stream import Stream
from laminar_dagster.orchestration.telemetry import push_epoch, require_push
from laminar_dagster.runtime.epoch import EpochRunner, StepTaken
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.rerun import Rerun, rerun
from laminar_dagster.runtime.survey import survey

Result = dg.MaterializeResult[None] | dg.AssetCheckResult


def build_epoch_assets(stream: Stream) -> dg.AssetsDefinition:
    """``epoch_plan``, one asset for each view, and ``state_snapshot``."""
    names = stream.names

    @dg.multi_asset(
        name=names.job("compute"),
        description="Plan an epoch, compute it, check it. A committed epoch is run again from its "
        "plan and compared; nothing is published.",
        specs=[
            plan_spec(stream),
            *(view_spec(stream, view) for view in stream.model.views),
            state_spec(stream),
        ],
        check_specs=checks.epoch_checks(stream),
        partitions_def=stream.partitions,
        # A backfill of a range is one run: epochs in order, and the first error stops it.
        backfill_policy=dg.BackfillPolicy.single_run(),
        required_resource_keys={names.spark, names.epoch},
        pool=names.pool,
    )
    def compute_epochs(context: dg.AssetExecutionContext) -> Iterator[Result]:
        spark = getattr(context.resources, names.spark)
        with named_failures(context, stream.watcher):
            require_push(stream)
            step = _EpochStep(stream, stream.open(lambda: spark.spark_session), context)
            try:
                yield from step.run(epochs_of_run(context, names.partitions, names.epoch))
            except GateFailed as error:
                yield checks.refused(stream, error)
                raise

    return compute_epochs


class _EpochStep:
    """Takes the epochs of a run, one after the other."""

    def __init__(
        self, stream: Stream, pipeline: Pipeline, context: dg.AssetExecutionContext
    ) -> None:
        self._stream, self._pipeline, self._context = stream, pipeline, context
        self._runner = EpochRunner(pipeline, on_step=self._log)

    def run(self, epochs: tuple[EpochNumber, ...]) -> Iterator[Result]:
        for epoch in epochs:
            self._context.instance.add_run_tags(
                self._context.run.run_id,
                {
                    PIPELINE_TAG: str(self._stream.names.pipeline),
                    EPOCH_TAG: str(epoch),
                    REVISION_TAG: self._stream.revision,
                },
            )
            yield from self._take(epoch, is_last=epoch == epochs[-1])

    def _take(self, epoch: EpochNumber, *, is_last: bool) -> Iterator[Result]:
        standing = survey(self._pipeline.checkpoints)
        done: Rerun | None = None
        steps: tuple[StepTaken, ...] = ()
        if epoch <= standing.newest_epoch and self._stream.watcher is None:
            self._context.log.info("epoch %d is committed: running its plan again", epoch)
            done = interruptibly(lambda: rerun(self._pipeline, epoch))
            if done.differences:
                raise NotReproduced(epoch, _told(done))
        else:
            self._finish_before(epoch, standing)
            report = interruptibly(lambda: self._runner.prepare(epoch))
            steps = report.steps
            if self._stream.watcher:
                self._stream.watcher.done(report)
        manifest = self._pipeline.checkpoints.winner(epoch).manifest
        plan = self._pipeline.checkpoints.plan(epoch)
        if plan is None:
            raise ObjectMissing(plan_key(epoch))
        yield from self._results(plan, manifest, steps, done, is_last=is_last)

    def _finish_before(self, epoch: EpochNumber, standing: Standing) -> None:
        """Commit what an earlier run has prepared, rather than wait for a sensor to do so."""
        for unfinished in standing.unfinished:
            if unfinished < epoch and self._pipeline.checkpoints.prepared(unfinished):
                push_epoch(self._stream, self._pipeline, self._runner.commit(unfinished))

    def _results(
        self,
        plan: EpochPlan,
        manifest: CheckpointManifest,
        steps: tuple[StepTaken, ...],
        done: Rerun | None,
        *,
        is_last: bool,
    ) -> Iterator[Result]:
        """Report metadata for each epoch of the run, and results once, with the last epoch."""
        stream = self._stream
        names, key = stream.names, partition_key(plan.epoch)
        again = metadata.rerun_metadata(done) if done else {}
        backlog = stream.backlog_after(manifest, plan)
        shown = {
            names.asset(PLAN): {
                **metadata.plan_metadata(plan),
                **metadata.backlog_metadata(backlog, manifest),
                **again,
            },
        }
        for view in stream.model.views:
            sinks = stream.sinks_of(view)
            shown[stream.view_key(view.name)] = {
                **metadata.output_metadata(manifest, sinks),
                **column_schema(self._pipeline.checkpoints.objects, manifest, sinks),
                **again,
            }
        # Last, as it depends on the views: Dagster wants results in order.
        shown[names.asset(STATE)] = {
            **metadata.manifest_metadata(manifest),
            **metadata.state_metadata(manifest),
            **metadata.duration_metadata(steps),
            **again,
        }
        for asset, found in shown.items():
            self._context.add_asset_metadata(found, asset_key=asset, partition_key=key)
        if not is_last:
            return
        versions = _data_versions(stream, plan, manifest)
        for asset in shown:
            yield dg.MaterializeResult(asset_key=asset, data_version=versions[asset])
        yield from checks.results(stream, plan, manifest, backlog, self._pipeline.checkpoints)

    def _log(self, epoch: EpochNumber, step: str) -> None:
        self._context.log.info("epoch %d: %s", epoch, step)
        if self._stream.watcher:
            self._stream.watcher.step(epoch, step)


def _data_versions(
    stream: Stream, plan: EpochPlan, manifest: CheckpointManifest
) -> dict[dg.AssetKey, dg.DataVersion]:
    """Hashes of each asset's content; for a view without staged output, of its inputs."""
    names = stream.names
    planned = checksum(plan)
    state = hashlib.sha256(b"".join(encode_part(entry) for entry in manifest.operators))
    found = {
        names.asset(PLAN): dg.DataVersion(planned),
        names.asset(STATE): dg.DataVersion(state.hexdigest()),
    }
    staged = {entry.sink_id: entry.output_sha256 for entry in manifest.sinks}
    for view in stream.model.views:
        # A sink that joined the pipeline later has no output of this epoch.
        hashes = [staged[sink] for sink in stream.sinks_of(view) if sink in staged]
        determined = f"{planned}:{manifest.fingerprint}:{view.name}".encode()
        version = hashes[0] if hashes else hashlib.sha256(determined).hexdigest()
        found[stream.view_key(view.name)] = dg.DataVersion(version)
    return found


def _told(done: Rerun) -> str:
    first = done.differences[0]
    more = f" and {len(done.differences) - 1} more" if len(done.differences) > 1 else ""
    return f"{first.kind} {first.name}: {first.again[:60]}, committed {first.committed[:60]}{more}"
