"""Dagster's events as an index of committed checkpoints, to compare the store with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import dagster as dg

from laminar_dagster.core.errors import InvalidCheckpointId, InvalidName
from laminar_dagster.core.ids import CheckpointId, EpochNumber
from laminar_dagster.core.ports import RecordedCheckpoint
from laminar_dagster.orchestration.asset_specs import MANIFEST
from laminar_dagster.orchestration.names import Names

# How many events to read: an old epoch may be materialised again, so the last event need not be
# that of the newest epoch.
_LOOKED_AT: Final = 50


@dataclass(frozen=True)
class DagsterIndex:
    """Implements ``CheckpointIndex`` by the materialisations of a pipeline's manifest."""

    names: Names
    instance: dg.DagsterInstance

    @property
    def name(self) -> str:
        """See ``CheckpointIndex.name``."""
        return "Dagster"

    def newest(self) -> RecordedCheckpoint | None:
        """See ``CheckpointIndex.newest``."""
        asset = self.names.asset(MANIFEST)
        found = self.instance.fetch_materializations(asset, limit=_LOOKED_AT)
        known = [
            recorded
            for record in found.records
            if (event := record.asset_materialization) and (recorded := _recorded(event))
        ]
        return max(known, key=lambda each: each.epoch, default=None)


def _recorded(event: dg.AssetMaterialization) -> RecordedCheckpoint | None:
    """The checkpoint in an event; None for an event that somebody reported by hand."""
    try:
        epoch = EpochNumber(int(str(event.metadata["epoch"].value)))
        checkpoint = CheckpointId(str(event.metadata["checkpoint"].value))
    except (KeyError, ValueError, InvalidName, InvalidCheckpointId):
        return None
    return RecordedCheckpoint(epoch, checkpoint)
