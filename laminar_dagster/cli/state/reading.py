"""The checkpoint of an epoch, as commands about state ask for it."""

from __future__ import annotations

import click

from laminar_dagster.cli.pipelines import find_config
from laminar_dagster.core.errors import NoEpochs
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.history import epoch_manifest
from laminar_dagster.runtime.survey import newest_manifest, survey


def manifest_of(
    ctx: click.Context, checkpoints: CheckpointStore, pipeline: str | None, epoch: int | None
) -> CheckpointManifest:
    """The manifest of an epoch, or the newest one.

    Raises:
        EpochWithoutCheckpoint: The epoch has none, or none any more.
        NoEpochs: There is none yet.
    """
    if epoch is not None:
        return epoch_manifest(checkpoints, EpochNumber(epoch))
    newest = newest_manifest(checkpoints, survey(checkpoints))
    if newest is None:
        raise NoEpochs(find_config(ctx, pipeline).name)
    return newest
