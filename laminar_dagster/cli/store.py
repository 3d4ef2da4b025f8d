"""Opens the store that a command works on. Only ever one that is there already."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import click

from laminar_dagster.cli.options import STORE_VARIABLE
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.runtime.checkpoints import CheckpointStore

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
# Also a secret with a '/' in it, which would end up as a part of the path.
_CREDENTIALS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#:]*:[^?#]*@")


def open_checkpoints(ctx: click.Context, url: str | None) -> CheckpointStore:
    """The checkpoints of a store, by its address on the command line.

    Sends nothing to the store beyond what the command itself does, so that credentials that may
    only read are enough to read.

    Raises:
        InvalidConfig: There is no such store.
    """
    # Imported here: with the adapters come their clients.
    from laminar_dagster.stores.url import open_store

    if url is None:
        url = _of_group(ctx)
    if url is None:
        url = os.environ.get(STORE_VARIABLE) or None
    if url is None:
        problem, advice = "none is given", f"give --store URL, or set {STORE_VARIABLE}"
        raise InvalidConfig("store", problem, advice)
    if _CREDENTIALS.match(url):
        advice = "leave them to the environment, a profile or a role"
        raise InvalidConfig("store", "the address holds credentials", advice)
    folder = _local_folder(url, ctx.meta.get("laminar.project", Path()))
    if folder is None:
        return CheckpointStore(open_store(url))
    _require_folder(folder)
    return CheckpointStore(open_store(str(folder)))


def _of_group(ctx: click.Context) -> str | None:
    """What stands before the command: ``laminar checkpoints --store URL list``."""
    above = ctx.parent
    return above.params.get("store") if above else None


def _local_folder(url: str, project: Path) -> Path | None:
    """The absolute path of a local store; None for an address that is another's to understand."""
    if not url:
        return None
    if not _SCHEME.match(url):
        return Path(os.path.abspath(project / os.path.expanduser(url)))
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if not url.lower().startswith("file://") or parts.netloc not in ("", "localhost"):
        return None
    if not parts.path or parts.query or parts.fragment:
        return None
    # A name that is not UTF-8 must not become another name.
    return Path(os.path.abspath(unquote(parts.path, errors="surrogateescape")))


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
