"""Keeps Dagster's record of epochs in step with the store, which is the source of truth.

An epoch may be committed without Dagster knowing it: a process was killed between the commit and
the event, or the epoch was run without Dagster. Such epochs are reported to Dagster later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import dagster as dg

from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.recovery import Standing
from laminar_dagster.orchestration import metadata
from laminar_dagster.orchestration.asset_specs import MANIFEST, PLAN, STATE
from laminar_dagster.orchestration.names import EPOCH_TAG, partition_key
from laminar_dagster.orchestration.stream import Stream
from laminar_dagster.runtime.checkpoints import CheckpointStore

# How many epochs are reported at a time: the tick of a sensor has a time limit.
_AT_ONCE: Final = 20


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """The partitions and events to report to Dagster.

    Attributes:
        recorded: Dagster then knows every epoch up to this one.
    """

    recorded: EpochNumber
    keys: tuple[str, ...] = ()
    events: tuple[dg.AssetMaterialization, ...] = field(default=())


@dataclass(frozen=True)
class EpochIndex:
    """Compares the epochs in the store with those that Dagster knows."""

    stream: Stream
    instance: dg.DagsterInstance

    def missing_keys(self, epochs: Iterable[EpochNumber]) -> list[str]:
        """The partition keys of those epochs that Dagster does not have yet."""
        name = self.stream.names.partitions
        keys = map(partition_key, epochs)
        return [key for key in keys if not self.instance.has_dynamic_partition(name, key)]

    def catch_up(
        self, recorded: EpochNumber, standing: Standing, busy: Iterable[dg.DagsterRun]
    ) -> CaughtUp:
        """The partitions and events of finished epochs that Dagster does not know.

        Args:
            recorded: The newest epoch up to which all were reported before.
            standing: How far the pipeline is.
            busy: Runs under way, which report their epochs themselves.
        """
        checkpoints = self.stream.checkpoints()
        if checkpoints is None or standing.confirmed < recorded:
            # The store is gone, or another one than before: start over.
            return CaughtUp(EpochNumber(0))
        if standing.confirmed == recorded:
            return CaughtUp(recorded)
        oldest = standing.confirmed - self.stream.model.config.retention.history
        recorded = EpochNumber(max(recorded, oldest))
        at_work = {run.tags.get(EPOCH_TAG) for run in busy}
        known = self.instance.get_materialized_partitions(self.stream.names.asset(MANIFEST))
        keys: list[str] = []
        events: list[dg.AssetMaterialization] = []
        for number in range(recorded + 1, min(standing.confirmed, recorded + _AT_ONCE) + 1):
            epoch = EpochNumber(number)
            if str(epoch) in at_work:
                break
            if partition_key(epoch) not in known:
                keys += self.missing_keys([epoch])
                events += self._events(checkpoints, epoch)
            recorded = epoch
        return CaughtUp(recorded, tuple(keys), tuple(events))

    def _events(
        self, checkpoints: CheckpointStore, epoch: EpochNumber
    ) -> Iterable[dg.AssetMaterialization]:
        """One event for each asset of an epoch, as a run of it would have reported."""
        plan, prepared = checkpoints.plan(epoch), checkpoints.prepared(epoch)
        if plan is None or prepared is None:
            return
        stream, manifest = self.stream, prepared.manifest
        names = stream.names
        found = {
            names.asset(PLAN): metadata.plan_metadata(plan),
            names.asset(STATE): metadata.state_metadata(manifest),
            names.asset(MANIFEST): metadata.manifest_metadata(manifest),
        }
        for view in stream.model.views:
            shown = metadata.output_metadata(manifest, stream.sinks_of(view))
            found[stream.view_key(view.name)] = shown
        for table in stream.model.sinks:
            found[stream.sink_key(table)] = metadata.output_metadata(manifest, [table.sink_id])
        for asset, shown in found.items():
            yield dg.AssetMaterialization(
                asset,
                partition=partition_key(epoch),
                metadata=shown,
                description="Found in the store: no run of Dagster has told of it.",
            )
