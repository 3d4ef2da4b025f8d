"""``laminar epochs list``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import click

from laminar_dagster.cli import wording
from laminar_dagster.cli.options import json_option, limit_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.pipelines import find_config, open_history, pipeline_argument
from laminar_dagster.cli.tables import Block, Column, Line, Table
from laminar_dagster.core.errors import IntegrityError, NoEpochs
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.clock import SystemClock
from laminar_dagster.runtime.history import PastEpoch, confirmed_epoch, epoch_numbers, read_epoch

_COLUMNS: Final = (
    Column("epoch", right=True),
    Column("committed (UTC)", optional=2),
    Column("age", right=True, optional=3),
    Column("took", right=True, optional=4),
    Column("read", right=True),
    Column("late", right=True),
    Column("dead", right=True),
    Column("rows out", right=True),
    Column("watermark (UTC)", optional=5),
    Column("checkpoint", optional=6),
    Column("state", folds=10),
)
_STATES: Final = {
    "done": "done",
    "collected": "done, collected",
    "committed": "committed, not in every sink",
    "prepared": "prepared, not committed",
    "planned": "planned, not computed",
}

Row = tuple[EpochNumber, PastEpoch | IntegrityError]


@click.command("list")
@pipeline_argument
@limit_option(20, "to show at most")
@json_option
@click.pass_context
def command(ctx: click.Context, pipeline: str | None, limit: int | None) -> None:
    """List the epochs of a pipeline, newest first.

    An epoch stays in the list when its checkpoint is collected.
    """
    output = output_of(ctx)
    config = find_config(ctx, pipeline)
    try:
        checkpoints = open_history(ctx, config)
        numbers = epoch_numbers(checkpoints)
        rows = [*_read(checkpoints, numbers[:limit])]
    except NoEpochs:
        numbers, rows = [], []
    now = SystemClock().now()
    output.result(
        lambda: [_document(number, found) for number, found in rows],
        lambda: _blocks(rows, len(numbers), config.name, now),
    )
    for number, found in rows:
        if isinstance(found, IntegrityError):
            output.warn(f"epoch {number} is damaged: {found}")


def _read(checkpoints: CheckpointStore, numbers: list[EpochNumber]) -> Iterator[Row]:
    latest = confirmed_epoch(checkpoints)
    for number in numbers:
        try:
            found = read_epoch(checkpoints, number, latest)
        except IntegrityError as error:
            yield number, error
            continue
        if found:
            yield number, found


def _document(number: EpochNumber, found: PastEpoch | IntegrityError) -> dict[str, Any]:
    if isinstance(found, IntegrityError):
        error = {"kind": found.kind, "message": str(found)}
        return {"epoch": number, "state": "damaged", "error": error}
    document: dict[str, Any] = {
        "epoch": number,
        "state": found.state,
        "is_latest": found.is_latest,
    }
    manifest = found.manifest
    if manifest:
        counts = manifest.counts
        document |= {
            "checkpoint_id": manifest.checkpoint_id,
            "committed_at": manifest.completed_at.isoformat().replace("+00:00", "Z"),
            "seconds": round((manifest.completed_at - manifest.started_at).total_seconds(), 6),
            "counts": {name: getattr(counts, name) for name in counts.__struct_fields__},
            "rows_out": _rows_out(found),
            "watermark": manifest.watermark,
            "fingerprint": manifest.fingerprint,
        }
    return document


def _rows_out(found: PastEpoch) -> int:
    manifest = found.manifest
    return sum(file.rows for sink in manifest.sinks for file in sink.files) if manifest else 0


def _blocks(rows: list[Row], total: int, pipeline: str, now: datetime) -> Iterator[Block]:
    if not rows:
        yield Line(f"Pipeline {pipeline} has no epoch yet; `laminar run {pipeline}` makes one.")
        return
    yield Table(_COLUMNS, [_cells(number, found, now) for number, found in rows])
    if total > len(rows):
        yield Line(f"The newest {len(rows):,} of {total:,}; --limit all shows every one.")


def _cells(number: EpochNumber, found: PastEpoch | IntegrityError, now: datetime) -> list[str]:
    if isinstance(found, IntegrityError):
        return [str(number), *[""] * (len(_COLUMNS) - 2), f"damaged: {found}"]
    state = "latest" if found.is_latest else _STATES[found.state]
    manifest = found.manifest
    if manifest is None:
        return [str(number), *[""] * (len(_COLUMNS) - 2), state]
    return [
        str(number),
        wording.timestamp(manifest.completed_at),
        wording.age(manifest.completed_at, now),
        wording.duration(manifest.completed_at - manifest.started_at),
        f"{manifest.counts.read:,}",
        f"{manifest.counts.late:,}",
        f"{manifest.counts.dead_lettered:,}",
        f"{_rows_out(found):,}",
        wording.microseconds(manifest.watermark),
        manifest.checkpoint_id,
        state,
    ]
