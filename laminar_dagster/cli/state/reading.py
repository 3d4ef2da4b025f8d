"""The state of an operator after an epoch, as the command line asks for it."""

from __future__ import annotations

import click

from laminar_dagster.cli.checkpoints.selection import find_epoch_checkpoint, read_checkpoint
from laminar_dagster.cli.errors import NoEpochs, UnknownStateOperator
from laminar_dagster.cli.pipelines import find_config
from laminar_dagster.config.mistakes import listed, nearest
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.state_reader import OperatorState, read_state
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
        number = EpochNumber(epoch)
        found = find_epoch_checkpoint(checkpoints, number)
        return read_checkpoint(checkpoints, found, number)
    newest = newest_manifest(checkpoints, survey(checkpoints))
    if newest is None:
        raise NoEpochs(find_config(ctx, pipeline).name)
    return newest


def state_of(
    checkpoints: CheckpointStore, manifest: CheckpointManifest, operator: str
) -> OperatorState:
    """The open windows of an operator.

    Raises:
        UnknownStateOperator: It has no such operator; names the nearest.
    """
    names = [str(each.operator_id) for each in manifest.operators]
    if operator not in names:
        suggestion = nearest(operator, names, listed(names, "operators with state"))
        raise UnknownStateOperator(operator[:80], manifest.epoch, suggestion)
    return read_state(checkpoints, manifest, operator)
