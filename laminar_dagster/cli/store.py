"""Opens the store that a command works on. Only ever one that is there already."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import click

from laminar_dagster.cli.options import STORE_VARIABLE
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.runtime.checkpoints import CheckpointStore


def open_checkpoints(ctx: click.Context, url: str | None) -> CheckpointStore:
    """The checkpoints of a store, by its address on the command line.

    Sends nothing to the store beyond what the command itself does, so that credentials that may
    only read are enough to read.

    Raises:
        InvalidConfig: There is no such store.
    """
    # Imported here: with the adapters come their clients.
    from laminar_dagster.stores.url import local_folder, open_store

    if url is None:
        url = _of_group(ctx)
    if url is None:
        url = os.environ.get(STORE_VARIABLE) or None
    if url is None:
        problem, advice = "none is given", f"give --store URL, or set {STORE_VARIABLE}"
        raise InvalidConfig("store", problem, advice)
    project = ctx.meta.get("laminar.project", Path())
    folder = local_folder(url, project)
    if folder is not None:
        _require_folder(folder)
    return CheckpointStore(open_store(url, project))


def _of_group(ctx: click.Context) -> str | None:
    """What stands before the command: ``laminar checkpoints --store URL list``."""
    above = ctx.parent
    return above.params.get("store") if above else None


def _require_folder(folder: Path) -> None:
    """A mistyped path must not become a new, empty store."""
    try:
        mode = os.stat(folder).st_mode
    except FileNotFoundError:
        advice = "check the path; the first epoch of a pipeline makes its store"
        raise InvalidConfig("store", f"there is no folder {folder}", advice) from None
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise InvalidConfig("store", f"{folder}: {reason}", "check the path") from None
    if not stat.S_ISDIR(mode):
        advice = "give the folder that holds `checkpoints` and `epochs`"
        raise InvalidConfig("store", f"{folder} is not a folder", advice)
