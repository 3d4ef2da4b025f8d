"""``laminar checkpoints show``."""

from __future__ import annotations

import click

from laminar_dagster.cli.checkpoints.selection import find_checkpoint, read_checkpoint
from laminar_dagster.cli.manifest_dossier import dossier
from laminar_dagster.cli.numbers import EPOCH
from laminar_dagster.cli.options import TEXT, json_option, store_option
from laminar_dagster.cli.output import Output, output_of
from laminar_dagster.cli.plain_documents import plain_document
from laminar_dagster.cli.store import open_checkpoints
from laminar_dagster.core.document import checksum
from laminar_dagster.core.errors import IntegrityError
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.clock import SystemClock
from laminar_dagster.runtime.history import find_epoch_checkpoint


@click.command("show")
@click.argument("checkpoint", type=TEXT, metavar="ID", required=False)
@click.option("--epoch", type=EPOCH, metavar="N", help="The checkpoint of an epoch.")
@click.option("--files", "every_file", is_flag=True, help="List every file, however many.")
@store_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    checkpoint: str | None,
    epoch: int | None,
    every_file: bool,
    store: str | None,
) -> None:
    """Show all that a checkpoint's manifest says.

    ID is an id, the beginning of one, or `latest`. With --json the manifest is printed whole,
    members that equal their default included.
    """
    output = output_of(ctx)
    if (checkpoint is None) == (epoch is None):
        raise click.UsageError("give either an ID (or `latest`) or --epoch N", ctx)
    checkpoints = open_checkpoints(ctx, store)
    if epoch is not None:
        number = EpochNumber(epoch)
        found = find_epoch_checkpoint(checkpoints, number)
        manifest = read_checkpoint(checkpoints, found, number)
    else:
        assert checkpoint is not None
        found = find_checkpoint(checkpoints, checkpoint)
        manifest = read_checkpoint(checkpoints, found, checkpoint)
    is_latest = _is_latest(checkpoints, manifest, output)
    output.result(
        lambda: plain_document(manifest),
        lambda: dossier(manifest, SystemClock().now(), is_latest=is_latest, every_file=every_file),
    )
    for warning in manifest.warnings():
        output.warn(warning)


def _is_latest(checkpoints: CheckpointStore, manifest: CheckpointManifest, output: Output) -> bool:
    try:
        pointer = checkpoints.latest()
    except IntegrityError as error:
        output.warn(str(error))
        return False
    if pointer is None or pointer.checkpoint_id != manifest.checkpoint_id:
        return False
    if pointer.manifest_checksum != checksum(manifest):
        output.warn("the latest pointer names this checkpoint with another manifest")
    return True
