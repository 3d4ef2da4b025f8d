"""``laminar warm-up``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import click

from laminar_dagster.cli import wording
from laminar_dagster.cli.options import json_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.progress import steps_progress
from laminar_dagster.cli.tables import Block, Line
from laminar_dagster.runtime.spark_start import require_java
from laminar_dagster.spark.class_archive import (
    STEPS,
    MadeArchive,
    archive_folder,
    make_archive,
    remove_archives,
)


@click.command("warm-up")
@click.option("--remove", is_flag=True, help="Remove all archives that were made.")
@json_option
@click.pass_context
def command(ctx: click.Context, remove: bool) -> None:
    """Keep Spark's classes in a file, with which each local Spark starts in about half the time.

    The file serves every project of this account that has the same Java and the same PySpark. After
    an update of either, Spark starts without it, until this is run again.

    The files are in $LAMINAR_CACHE, by default ~/.cache/laminar-dagster; about 150 MB each, and the
    six that were used last are kept.
    """
    output = output_of(ctx)
    if remove:
        count, size = remove_archives(os.environ)
        folder = archive_folder(os.environ)
        output.result(
            lambda: {"folder": str(folder), "removed": count, "bytes": size},
            lambda: [Line(_told_removed(count, size))],
        )
        return
    require_java()
    begun = time.monotonic()
    with steps_progress(STEPS) as show:
        archive = make_archive(os.environ, show)
    seconds = time.monotonic() - begun
    output.result(lambda: _document(archive, seconds), lambda: _blocks(archive, seconds))


def _told_removed(count: int, size: int) -> str:
    if not count:
        return "There is no archive."
    return f"Removed {wording.count(count, 'archive')}, {wording.size(size)}."


def _document(archive: MadeArchive, seconds: float) -> dict[str, Any]:
    return {
        "archive": str(archive.path),
        "bytes": archive.size,
        "is_new": archive.is_new,
        "seconds": round(seconds, 3),
    }


def _blocks(archive: MadeArchive, seconds: float) -> Iterator[Block]:
    size = wording.size(archive.size)
    if archive.is_new:
        yield Line(f"Kept Spark's classes in {seconds:.0f} s: {archive.path}, {size}.")
        yield Line("Each local Spark that starts with this Java and this PySpark uses them.")
    else:
        yield Line(f"Spark's classes are kept already: {archive.path}, {size}.")
