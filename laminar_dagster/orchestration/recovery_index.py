"""What Dagster knows of committed checkpoints: a witness beside the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import dagster as dg

from laminar_dagster.core.errors import InvalidCheckpointId, InvalidName
from laminar_dagster.core.ids import CheckpointId, EpochNumber
from laminar_dagster.core.ports import RecordedCheckpoint
from laminar_dagster.orchestration.asset_specs import MANIFEST
from laminar_dagster.orchestration.names import Names

# An old epoch may be materialised again, so the last event need not be of the newest epoch.
_LOOKED_AT: Final = 50


@dataclass(frozen=True)
class DagsterIndex:
    """The materialisations of a pipeline's manifest."""

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
    """What an event tells; None for one that somebody reported by hand."""
    try:
        epoch = EpochNumber(int(str(event.metadata["epoch"].value)))
        checkpoint = CheckpointId(str(event.metadata["checkpoint"].value))
    except (KeyError, ValueError, InvalidName, InvalidCheckpointId):
        return None
    return RecordedCheckpoint(epoch, checkpoint)
