"""Removes a branch: its tables, then its part of the store, its record last."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Final

from laminar_dagster.clients.transience import is_forbidden, is_passing
from laminar_dagster.core import layout
from laminar_dagster.core.errors import (
    AuthFailed,
    BranchMismatch,
    InvalidConfig,
    ServiceFailed,
    StoreUnavailable,
)
from laminar_dagster.core.ids import BranchName
from laminar_dagster.core.ports import Clock
from laminar_dagster.runtime.branches.places import tables_folder
from laminar_dagster.runtime.branches.promoting import promoted_at
from laminar_dagster.runtime.branches.records import clear_mark, mark_dropped
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.survey import survey

_BATCH: Final = 1000


def drop(main: CheckpointStore, project: Path, name: BranchName, clock: Clock) -> int:
    """Remove a branch and its tables. A drop that was interrupted is finished by the next one.

    Returns:
        How many objects of the store were removed.

    Raises:
        UnknownBranch: There is none.
        BranchMismatch: Its promotion is unfinished, and needs it.
        InvalidConfig: Its tables lie behind a symbolic link, which may lead anywhere.
    """
    objects = main.objects
    _require_unneeded(main, name)
    record = mark_dropped(objects, name, clock)
    # Again: a promotion that was planned before it could see the mark still needs the branch.
    _require_unneeded(main, name)
    _remove_tables(project, tables_folder(project, record.pipeline, name))
    folder, last = layout.branch_folder(name), layout.branch_key(name)
    keys = [info.key for info in objects.list(folder) if info.key != last]
    for start in range(0, len(keys), _BATCH):
        objects.delete(keys[start : start + _BATCH])
    # Last: without a record, files that are left would belong to no branch, and block its name.
    objects.delete([last])
    return len(keys) + 1


def _require_unneeded(main: CheckpointStore, name: BranchName) -> None:
    promotion = promoted_at(main, name)
    if promotion and promotion > survey(main).confirmed:
        # The mark may also be left from a drop that was killed before it could clear it.
        clear_mark(main.objects, name)
        what = f"is being promoted in epoch {promotion}; `laminar promote` finishes that"
        raise BranchMismatch(name, what)


def _remove_tables(project: Path, folder: Path) -> None:
    steps = [folder, *folder.parents]
    for step in steps[: steps.index(project)]:
        if step.is_symlink():
            problem = f"{step} is a symbolic link, and nothing is removed behind one"
            raise InvalidConfig("branch", problem, "remove the link, and the tables by hand")
    if not folder.exists():
        return
    try:
        shutil.rmtree(folder)
    except OSError as error:
        reason = error.strerror or str(error)
        if is_forbidden(error):
            raise AuthFailed(str(folder), reason) from error
        if is_passing(error):
            raise StoreUnavailable(str(folder), reason) from error
        raise ServiceFailed(str(folder), reason) from error
    for empty in steps[1 : steps.index(project)]:
        # A folder with other branches is not empty, and stays.
        with contextlib.suppress(OSError):
            empty.rmdir()
