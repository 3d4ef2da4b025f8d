"""Check that a store honours conditional writes, with a temporary object."""

from __future__ import annotations

import contextlib
import uuid
from typing import Final

from laminar_dagster.core.errors import ConditionsIgnored, LaminarError, ObjectExists
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.stores.keys import PROBE_FOLDER

# In the shape of an ETag, so that a strict server compares it instead of complaining about it.
_NO_VERSION: Final = '"00000000000000000000000000000000"'


def prove_conditions(store: ObjectStore) -> None:
    """Check that conditional creates and replaces succeed and fail as they must.

    Raises:
        ConditionsIgnored: A write went through that must fail, or one failed that must succeed.
    """
    key = f"{PROBE_FOLDER}{uuid.uuid4().hex}"
    try:
        _try_conditions(store, key)
    except BaseException:
        # A failing clean-up must not hide the first error; ``sweep`` deletes the object later.
        with contextlib.suppress(LaminarError):
            store.delete([key])
        raise
    store.delete([key])


def _try_conditions(store: ObjectStore, key: str) -> None:
    def refuse(reason: str) -> ConditionsIgnored:
        return ConditionsIgnored(store.url, reason)

    if _went_through(store, key, b"stranger", _NO_VERSION):
        raise refuse("an object that does not exist was replaced")
    if not _went_through(store, key, b"first", None):
        raise refuse("an object that does not exist could not be created")
    if _went_through(store, key, b"second", None):
        raise refuse("a second conditional create went through")
    first = store.read_versioned(key)
    if first is None or first.data != b"first":
        raise refuse("an object does not read as it was written")
    if not _went_through(store, key, b"third", first.version):
        raise refuse("a replace of the current version was refused")
    if _went_through(store, key, b"fourth", first.version):
        raise refuse("a replace of a stale version went through")
    last = store.read_versioned(key)
    if last is None or last.data != b"third":
        raise refuse("an object does not read as it was replaced")


def _went_through(store: ObjectStore, key: str, data: bytes, expected: str | None) -> bool:
    try:
        if expected is None:
            store.create(key, data)
        else:
            store.replace(key, data, expected)
    except ObjectExists:
        return False
    return True
