"""Finds Debezium's placeholder for a long Postgres value (TOAST) that an update did not touch.

It stands in place of the value: as text, as bytes for ``bytea``, as the element of an array; for a
``uuid``, as a UUID derived from it; for an array of integers, as one number for each byte.
"""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_PLACEHOLDER: Final = b"__debezium_unavailable_value"
_BASE64: Final = base64.b64encode(_PLACEHOLDER)
# Derived as in Java's ``UUID.nameUUIDFromBytes``.
_UUID: Final = str(
    uuid.UUID(bytes=hashlib.md5(_PLACEHOLDER, usedforsecurity=False).digest(), version=3)
)
_NUMBERS: Final = list(_PLACEHOLDER)
_SPELT_NUMBERS: Final = re.compile(rb"\s*,\s*".join(b"%d" % each for each in _NUMBERS))
# Every spelling in a STRING column, which may also be declared for bytes and UUIDs.
_TEXTS: Final = (_PLACEHOLDER.decode(), _BASE64.decode(), _UUID)

Flags = npt.NDArray[np.bool_]


def may_be_unsent(data: bytes) -> bool:
    """Whether messages may hold a placeholder; escapes could hide one, so they count."""
    if b"\\" in data:
        return True
    texts = (_PLACEHOLDER, _BASE64.rstrip(b"="), _UUID.encode())
    return any(each in data for each in texts) or (
        # Searching for the first number is faster than the expression.
        b"95" in data and _SPELT_NUMBERS.search(data) is not None
    )


def are_unsent(column: pa.Array) -> Flags:
    """Which values of a column are the placeholder, or contain it."""
    kind = column.type
    if pa.types.is_string(kind):
        return _flags(pc.is_in(column, pa.array(_TEXTS, pa.string())))
    if pa.types.is_binary(kind):
        return _flags(pc.equal(column, pa.scalar(_PLACEHOLDER, pa.binary())))
    if pa.types.is_map(kind):
        return _any_of(column, are_unsent(column.keys) | are_unsent(column.items))
    if pa.types.is_list(kind):
        if pa.types.is_integer(kind.value_type):
            return np.array([each == _NUMBERS for each in column.to_pylist()], np.bool_)
        return _any_of(column, are_unsent(column.values))
    found = np.zeros(len(column), np.bool_)
    if pa.types.is_struct(kind):
        for each in column.flatten():
            found |= are_unsent(each)
    return found


def _any_of(lists: pa.ListArray, elements: Flags) -> Flags:
    """Which lists contain a flagged element."""
    before = np.concatenate([[0], np.cumsum(elements)])
    edges = lists.offsets.to_numpy()
    found: Flags = (before[edges[1:]] > before[edges[:-1]]) & _flags(lists.is_valid())
    return found


def _flags(values: pa.BooleanArray) -> Flags:
    flags: Flags = values.fill_null(False).to_numpy(zero_copy_only=False)
    return flags
