"""Whether the sinks hold what the store says they do.

A ledger holds an epoch number. A store that lost an epoch, or was rolled back, may compute another
epoch with the same number, and by its number alone a sink would seem to have that one.
"""

from __future__ import annotations

from collections.abc import Iterable

from laminar_dagster.core import layout
from laminar_dagster.core.errors import LedgerMismatch, ObjectMissing, OutputMismatch
from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.ports import Attesting
from laminar_dagster.runtime.ledgers import Ledgers
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.survey import survey


def require_unpublished(pipeline: Pipeline, epoch: EpochNumber) -> None:
    """Refuse to plan or compute an epoch that a sink, or a plan of the next epoch, shows decided.

    The store has then lost the record of the epoch's winner. Computed again, by a pipeline that may
    have changed since, the epoch could differ from what a sink holds; planned again, it would.
    A sink that cannot be asked is skipped.

    Raises:
        ObjectMissing: There is a plan of the next epoch, so this one had a winner.
        LedgerMismatch: A sink has committed the epoch, or a later one.
    """
    has_successor = pipeline.checkpoints.stored_plan(epoch.next()) is not None
    ahead = Ledgers.read(pipeline.sinks).furthest()
    if not has_successor and (ahead is None or ahead[1] < epoch):
        return
    # The caller's survey may be stale: another process may have committed the epoch since.
    newest = survey(pipeline.checkpoints).newest_epoch
    if newest < epoch:
        if has_successor:
            raise ObjectMissing(layout.prepared_key(epoch))
        if ahead and ahead[1] > newest:
            raise LedgerMismatch(ahead[0], epoch, ahead[1])


def require_same_output(
    pipeline: Pipeline, manifest: CheckpointManifest, sinks: Iterable[SinkId]
) -> None:
    """Check that sinks which have an epoch, committed by another process, hold the same output.

    Raises:
        OutputMismatch: The sink's output of the epoch is not what the manifest says.
        RetryError: A sink cannot be asked.
    """
    asked = set(sinks)
    wanted = {entry.sink_id: entry.output_sha256 for entry in manifest.sinks}
    for sink in pipeline.sinks:
        expected = wanted.get(sink.sink_id)
        if expected is None or sink.sink_id not in asked or not isinstance(sink, Attesting):
            continue
        found = sink.published()
        if found and found.epoch == manifest.epoch and found.output_sha256 != expected:
            raise OutputMismatch(sink.sink_id, found.epoch, expected, found.output_sha256)
