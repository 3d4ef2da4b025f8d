"""Whether what the sinks hold is what the store says they do.

A ledger has a number. A store that lost an epoch, or was set back, may come to another epoch of the
same number, and whoever looks at numbers alone would take a sink for one that has it.
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
    """Before an epoch is planned or computed: nobody has a part of it, or anything after it.

    Otherwise the store has lost the record of its winner. Computed again, by a pipeline that may
    have changed since, the epoch could differ from what a sink holds; planned again, it would.
    A sink that cannot be asked holds nobody back.

    Raises:
        ObjectMissing: There is a plan of the epoch after it, so it had a winner.
        LedgerMismatch: A sink has it.
    """
    has_successor = pipeline.checkpoints.stored_plan(epoch.next()) is not None
    ahead = Ledgers.read(pipeline.sinks).furthest()
    if not has_successor and (ahead is None or ahead[1] < epoch):
        return
    # Another process may have gone on since the facts were read; only a second look tells.
    newest = survey(pipeline.checkpoints).newest_epoch
    if newest < epoch:
        if has_successor:
            raise ObjectMissing(layout.prepared_key(epoch))
        if ahead and ahead[1] > newest:
            raise LedgerMismatch(ahead[0], epoch, ahead[1])


def require_same_output(
    pipeline: Pipeline, manifest: CheckpointManifest, sinks: Iterable[SinkId]
) -> None:
    """Before a sink passes for one that has an epoch which this process has not committed to it.

    Raises:
        OutputMismatch: What the sink put out for the epoch is not what the manifest says.
        RetryError: It cannot be asked.
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
