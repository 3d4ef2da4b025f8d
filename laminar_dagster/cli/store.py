"""Opens the store that a command works on. Only ever one that is there already."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import click

from laminar_dagster.cli.options import PIPELINE_META, STORE_VARIABLE
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.pipelines import find_config, find_model, project_of
from laminar_dagster.core.errors import InvalidConfig, NoPipelines, SeveralPipelines
from laminar_dagster.core.ports import Sink
from laminar_dagster.runtime.checkpoints import CheckpointStore


def open_checkpoints(ctx: click.Context, url: str | None) -> CheckpointStore:
    """The checkpoints of the store that the command line names, or of the project's pipeline.

    Sends nothing to the store beyond what the command itself does, so that credentials that may
    only read are enough to read.

    Raises:
        InvalidConfig: There is no such store.
        UsageError: There is no such pipeline, or it is not clear which one is meant.
    """
    # Imported here: with the adapters come their clients.
    from laminar_dagster.stores.url import local_folder, open_store

    url = _address(ctx, url)
    project = project_of(ctx)
    folder = local_folder(url, project)
    if folder is not None:
        _require_folder(folder)
    return CheckpointStore(open_store(url, project))


def known_sinks(ctx: click.Context, url: str | None) -> tuple[Sink, ...]:
    """The sinks of the pipeline whose store it is; none where the store was named by itself.

    A mistake in the pipeline's files is no obstacle to looking at its store.
    """
    name = ctx.meta.get(PIPELINE_META)
    if url is not None or _of_group(ctx) is not None:
        return ()
    if name is None and os.environ.get(STORE_VARIABLE):
        return ()
    # Imported here: with the adapters come their clients.
    from laminar_dagster.runtime.assembly import build_adapters

    try:
        model = find_model(ctx, name)
        return build_adapters(model, project_of(ctx)).sinks
    except InvalidConfig as error:
        output_of(ctx).warn(f"the sinks are not asked how far they are: {error}")
        return ()


def _address(ctx: click.Context, url: str | None) -> str:
    if url is None:
        url = _of_group(ctx)
    name = ctx.meta.get(PIPELINE_META)
    if url is not None and name is not None:
        raise click.UsageError("give --store or --pipeline, not both", ctx)
    if url is None and name is None:
        url = os.environ.get(STORE_VARIABLE)
        if url is not None and not url.strip():
            advice = "set it to the address of a store, or unset it"
            raise InvalidConfig(STORE_VARIABLE, "it is set, and empty", advice)
    if url is not None:
        return url
    try:
        return find_config(ctx, name).store
    except NoPipelines:
        if name is not None:
            raise
        problem, advice = "none is given", f"give --store URL, or set {STORE_VARIABLE}"
        raise InvalidConfig("store", problem, advice) from None
    except SeveralPipelines as error:
        raise SeveralPipelines(error.names, "give --pipeline with one of") from None


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
