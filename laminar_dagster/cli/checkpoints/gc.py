"""``laminar checkpoints gc``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import click

from laminar_dagster.cli import wording
from laminar_dagster.cli.numbers import HOW_MANY
from laminar_dagster.cli.options import DurationType, json_option, store_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.progress import objects_progress
from laminar_dagster.cli.store import open_checkpoints
from laminar_dagster.cli.tables import Block, Column, Line, Table
from laminar_dagster.core import layout
from laminar_dagster.core.garbage import Garbage
from laminar_dagster.core.ids import CheckpointId
from laminar_dagster.runtime.clock import SystemClock
from laminar_dagster.runtime.collector import Collection, Retention, collect

_ROWS_SHOWN: Final = 20
_DEFAULT: Final = Retention()


@click.command("gc")
@click.option(
    "--retain",
    type=HOW_MANY,
    metavar="N",
    default=_DEFAULT.checkpoints,
    show_default=True,
    help="How many finished checkpoints to keep, the newest.",
)
@click.option(
    "--grace",
    type=DurationType(),
    metavar="DURATION",
    default="1h",
    show_default=True,
    help="How long to spare attempts and writes that never finished: 30m, 1h, 2d.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would go and what would stay.")
@store_option
@json_option
@click.pass_context
def command(
    ctx: click.Context, retain: int, grace: timedelta, dry_run: bool, store: str | None
) -> None:
    """Remove what no retained checkpoint reaches.

    Safe while the pipeline runs. Unfinished epochs, and every file that a retained checkpoint
    names, stay. When a checkpoint that is to be kept is damaged, nothing is removed.
    """
    output = output_of(ctx)
    checkpoints = open_checkpoints(ctx, store)
    with objects_progress("Looking for garbage", "Removing") as progress:
        done = collect(
            checkpoints,
            Retention(retain, grace),
            SystemClock().now(),
            dry_run=dry_run,
            progress=progress,
        )
    output.result(lambda: _document(done, dry_run), lambda: _blocks(done, dry_run))


def _document(done: Collection, dry_run: bool) -> dict[str, Any]:
    garbage = done.garbage
    expired = _expired(garbage)
    return {
        "is_dry_run": dry_run,
        "removed": {
            "checkpoints": expired,
            "attempts": [each for each in _folders(garbage) if each not in expired],
            "objects": list(garbage.keys),
            "bytes": garbage.size_bytes,
            "unfinished_writes": done.swept,
        },
        "retained": [
            {"checkpoint_id": manifest.checkpoint_id, "epoch": manifest.epoch}
            for manifest in done.retained
        ],
        "foreign": list(garbage.strangers),
    }


def _blocks(done: Collection, dry_run: bool) -> Iterator[Block]:
    garbage = done.garbage
    if done.retained:
        rows = [
            (
                str(manifest.epoch),
                manifest.checkpoint_id,
                wording.timestamp(manifest.completed_at),
                wording.size(manifest.total_size_bytes),
            )
            for manifest in done.retained
        ]
        columns = (
            Column("epoch", right=True),
            Column("checkpoint"),
            Column("committed (UTC)"),
            Column("state", right=True),
        )
        yield from _cut(Table(columns, rows, "Stays"))
    folders = _folders(garbage)
    expired = set(_expired(garbage))
    if folders:
        gone = [
            (
                each,
                wording.timestamp(each.timestamp),
                f"{objects:,}",
                "checkpoint" if each in expired else "attempt",
            )
            for each, objects in sorted(folders.items(), reverse=True)
        ]
        columns = (
            Column("id"),
            Column("begun (UTC)"),
            Column("objects", right=True),
            Column("what"),
        )
        yield from _cut(Table(columns, gone, "Would go" if dry_run else "Gone"))
    if done.retained or folders:
        yield Line()
    yield Line(_summary(done, len(expired), dry_run))
    if garbage.strangers:
        strangers = wording.count(len(garbage.strangers), "object")
        yield Line(f"Left alone, not known to be garbage: {strangers}; --json names them.")


def _summary(done: Collection, expired: int, dry_run: bool) -> str:
    garbage = done.garbage
    kept = wording.count(len(done.retained), "checkpoint")
    swept = f" Cleared {wording.count(done.swept, 'unfinished write')}." if done.swept else ""
    if not garbage.keys:
        return f"No garbage. {kept} kept.{swept}"
    verb = "Would remove" if dry_run else "Removed"
    objects = wording.count(len(garbage.keys), "object")
    freed = wording.size(garbage.size_bytes)
    checkpoints = wording.count(expired, "checkpoint")
    return f"{verb} {checkpoints}, {objects} in all, {freed}. {kept} kept.{swept}"


def _cut(table: Table) -> Iterator[Block]:
    yield Table(table.columns, table.rows[:_ROWS_SHOWN], table.title)
    if len(table.rows) > _ROWS_SHOWN:
        yield Line(f"{len(table.rows) - _ROWS_SHOWN:,} more; --json lists every one.")


def _expired(garbage: Garbage) -> list[CheckpointId]:
    """Checkpoints that lose their manifest, and so end."""
    parsed = (layout.parse_checkpoint_key(key) for key in garbage.manifests)
    return [found[0] for found in parsed if found]


def _folders(garbage: Garbage) -> Counter[CheckpointId]:
    """How many objects go from the folder of each attempt or checkpoint."""
    parsed = (layout.parse_checkpoint_key(key) for key in garbage.keys)
    return Counter(found[0] for found in parsed if found)
