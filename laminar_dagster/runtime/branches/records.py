"""Finds and writes the records of a pipeline's branches, and marks them as dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from msgspec import structs

from laminar_dagster.core import layout
from laminar_dagster.core.branch import BranchRecord
from laminar_dagster.core.document import MAX_DOCUMENT_BYTES, decode, encode
from laminar_dagster.core.errors import (
    BranchMismatch,
    InvalidName,
    MalformedDocument,
    ObjectExists,
    ObjectMissing,
    UnknownBranch,
)
from laminar_dagster.core.ids import BranchName, EpochNumber
from laminar_dagster.core.ports import Clock, ObjectStore
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.stores.nested import NestedStore


def branch_area(objects: ObjectStore, name: BranchName) -> ObjectStore:
    """The store of a branch, within that of its pipeline."""
    return NestedStore(objects, layout.branch_folder(name))


def branch_checkpoints(main: CheckpointStore, name: BranchName) -> CheckpointStore:
    """The checkpoint store of a branch, whether it holds any or not."""
    return CheckpointStore(branch_area(main.objects, name), snapshots=main.snapshots)


def replayed_until(main: CheckpointStore, record: BranchRecord) -> EpochNumber:
    """The last epoch that a branch has finished, or else the one that it starts from."""
    latest = branch_checkpoints(main, record.name).latest()
    return latest.epoch if latest else record.from_epoch


def find_branches(objects: ObjectStore) -> Iterator[BranchRecord]:
    """Every branch of a pipeline, by name, those being dropped included.

    Raises:
        IntegrityError: The record of a branch is damaged.
    """
    for folder in objects.list_folders(layout.BRANCHES):
        try:
            name = BranchName(folder)
        except InvalidName:
            continue  # not a branch's folder
        record = stored_branch(objects, name)
        if record:
            yield record


def read_branch(objects: ObjectStore, name: BranchName) -> BranchRecord:
    """The record of a branch that is not being dropped.

    Raises:
        UnknownBranch: There is none.
        BranchMismatch: It is being dropped.
        IntegrityError: Its record is damaged.
    """
    return _usable(require_branch(objects, name))


def look_for_branch(objects: ObjectStore, name: BranchName) -> BranchRecord | None:
    """As ``read_branch``, and None where there is none."""
    record = stored_branch(objects, name)
    return _usable(record) if record else None


def require_branch(objects: ObjectStore, name: BranchName) -> BranchRecord:
    """The record of a branch, whether it is being dropped or not.

    Raises:
        UnknownBranch: There is none.
        IntegrityError: It is damaged.
    """
    record = stored_branch(objects, name)
    if record is None:
        raise UnknownBranch(name, tuple(str(each.name) for each in find_branches(objects)))
    return record


def _usable(record: BranchRecord) -> BranchRecord:
    if record.dropped_at:
        raise BranchMismatch(record.name, "is being dropped; `laminar branch drop` finishes that")
    return record


def create_branch(objects: ObjectStore, record: BranchRecord) -> BranchRecord:
    """Write a branch's record, unless the same branch was begun before.

    Returns:
        The record that is there now.

    Raises:
        BranchMismatch: Another branch has the name.
    """
    key = layout.branch_key(record.name)
    try:
        objects.create(key, encode(record))
    except ObjectExists:
        found = read_branch(objects, record.name)
        if what := found.mismatch(record):
            raise BranchMismatch(record.name, what) from None
        return found
    return record


def mark_dropped(objects: ObjectStore, name: BranchName, clock: Clock) -> BranchRecord:
    """Mark a branch as being dropped, before anything of it is removed.

    Raises:
        UnknownBranch: There is none.
        IntegrityError: Its record is damaged.
    """
    return _replace(objects, name, lambda record: record.dropped_at or clock.now())


def clear_mark(objects: ObjectStore, name: BranchName) -> None:
    """Undo ``mark_dropped``, for a branch of which nothing was removed yet."""
    _replace(objects, name, lambda _record: None)


def _replace(
    objects: ObjectStore, name: BranchName, dropped_at: Callable[[BranchRecord], datetime | None]
) -> BranchRecord:
    key = layout.branch_key(name)
    while True:
        found = objects.read_versioned(key, limit=MAX_DOCUMENT_BYTES)
        if found is None:
            raise UnknownBranch(name, tuple(str(each.name) for each in find_branches(objects)))
        record = decode(found.data, BranchRecord, key)
        wanted = structs.replace(record, dropped_at=dropped_at(record))
        if wanted == record:
            return record
        try:
            objects.replace(key, encode(wanted), found.version)
        except ObjectExists:
            continue  # another process has changed it: read it again
        return wanted


def held_since(objects: ObjectStore) -> EpochNumber | None:
    """The oldest epoch that a branch may still need; None without branches.

    A branch that is being dropped counts until it is gone: its promotion may be planned.

    Raises:
        IntegrityError: The record of a branch is damaged, so what it needs is not known.
    """
    return min((each.from_epoch for each in find_branches(objects)), default=None)


def stored_branch(objects: ObjectStore, name: BranchName) -> BranchRecord | None:
    """The record of a branch, whether it is being dropped or not; None when there is none.

    Raises:
        IntegrityError: It is damaged.
    """
    key = layout.branch_key(name)
    try:
        data = objects.read(key, limit=MAX_DOCUMENT_BYTES)
    except ObjectMissing:
        return None
    record = decode(data, BranchRecord, key)
    if record.name != name:
        raise MalformedDocument(key, f"it is the record of branch {record.name}")
    return record
