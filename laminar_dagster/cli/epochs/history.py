"""The epochs of a store: which there are, and how far each is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import click

from laminar_dagster.cli.errors import NoEpochs
from laminar_dagster.cli.pipelines import find_config, project_of
from laminar_dagster.config.pipeline import PipelineConfig
from laminar_dagster.core import layout
from laminar_dagster.core.errors import IntegrityError
from laminar_dagster.core.ids import GENESIS, EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.prepared import LatestPointer
from laminar_dagster.core.recovery import FoundEpoch
from laminar_dagster.runtime.assembly import existing_checkpoints
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.survey import find_epoch

EpochState = Literal["done", "collected", "committed", "prepared", "planned"]


@dataclass(frozen=True, slots=True)
class PastEpoch:
    """An epoch that has begun.

    Attributes:
        state: ``done`` when every sink has confirmed it, ``collected`` when also its checkpoint is
            gone; before that how far it came.
    """

    found: FoundEpoch
    state: EpochState
    is_latest: bool

    @property
    def epoch(self) -> EpochNumber:
        """Its number."""
        return self.found.epoch

    @property
    def is_unfinished(self) -> bool:
        """Whether some run still has to do something for it."""
        return self.state in ("committed", "prepared", "planned")

    @property
    def manifest(self) -> CheckpointManifest | None:
        """Its manifest; of a collected epoch as the record of the winner still has it."""
        if self.found.manifest:
            return self.found.manifest
        return self.found.prepared.manifest if self.found.prepared else None


def open_history(ctx: click.Context, config: PipelineConfig) -> CheckpointStore:
    """The store of a pipeline that has run.

    Raises:
        NoEpochs: It has no store yet.
    """
    checkpoints = existing_checkpoints(config, project_of(ctx))
    if checkpoints is None:
        raise NoEpochs(config.name)
    return checkpoints


def open_history_of(ctx: click.Context, pipeline: str | None) -> CheckpointStore:
    """The same by the pipeline's name. A mistake in its SQL is no obstacle.

    Raises:
        NoEpochs: It has no store yet.
        UsageError: There is no such pipeline.
    """
    return open_history(ctx, find_config(ctx, pipeline))


def epoch_numbers(checkpoints: CheckpointStore) -> list[EpochNumber]:
    """Every epoch that has begun, newest first."""
    keys = (layout.parse_epoch_key(each.key) for each in checkpoints.objects.list(layout.EPOCHS))
    return sorted({key.epoch for key in keys if key}, reverse=True)


def confirmed_epoch(checkpoints: CheckpointStore) -> LatestPointer | None:
    """The pointer to the latest checkpoint; None when there is none that can be read."""
    try:
        return checkpoints.latest()
    except IntegrityError:
        return None


def read_epoch(
    checkpoints: CheckpointStore, epoch: EpochNumber, latest: LatestPointer | None
) -> PastEpoch | None:
    """The documents of an epoch, and how far it is; None for one that has not begun.

    Raises:
        IntegrityError: One of them is damaged.
    """
    found = find_epoch(checkpoints, epoch)
    if not found.planned:
        return None
    is_latest = latest is not None and latest.epoch == epoch
    return PastEpoch(found, _state(found, latest.epoch if latest else GENESIS), is_latest)


def _state(found: FoundEpoch, confirmed: EpochNumber) -> EpochState:
    if found.epoch <= confirmed:
        return "done" if found.manifest else "collected"
    if found.manifest:
        return "committed"
    return "prepared" if found.prepared else "planned"
