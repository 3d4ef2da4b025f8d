"""Validation of object keys, in case a caller builds one without ``core.layout``."""

from __future__ import annotations

import re
from typing import Final

from laminar_dagster.core.errors import InvalidName

MAX_KEY_BYTES: Final = 1024
MAX_SEGMENT_BYTES: Final = 255

_FORBIDDEN: Final = re.compile(r"[\x00-\x1f\x7f\\]")

# Where ``probe`` tries its conditions; ``sweep`` clears what a killed probe left there.
PROBE_FOLDER: Final = "_probe/"


def check_key(key: str) -> None:
    """Refuse a key that could leave the base, or mean different objects on different stores.

    Raises:
        InvalidName: with the reason.
    """
    _refuse("key", key, _problem(key, key.split("/")))


def check_prefix(prefix: str) -> None:
    """Refuse a prefix that no valid key begins with. Its last segment may be partial or empty.

    Raises:
        InvalidName: with the reason.
    """
    segments = prefix.split("/")
    if not segments[-1]:
        segments.pop()
    _refuse("prefix", prefix, _problem(prefix, segments))


def check_folder(prefix: str) -> None:
    """Refuse a prefix that does not name a whole folder; the empty one names the base.

    Raises:
        InvalidName: with the reason.
    """
    if prefix and not prefix.endswith("/"):
        raise InvalidName("prefix", prefix[:200], "must end with '/'")
    check_prefix(prefix)


def is_key(key: str) -> bool:
    """Whether a name found in the store is one that could have been written through the port."""
    return not _problem(key, key.split("/"))


def _refuse(noun: str, value: str, problem: str) -> None:
    if problem:
        raise InvalidName(noun, value[:200], problem)


def _problem(text: str, segments: list[str]) -> str:
    for segment in segments:
        if not segment:
            return "has an empty segment"
        # Covers '.', '..' and the names that the local store keeps for itself.
        if segment[0] == ".":
            return "has a segment that begins with '.'"
    if found := _FORBIDDEN.search(text):
        return f"holds U+{ord(found[0]):04X}"
    try:
        size = len(text.encode())
        longest = max((len(segment.encode()) for segment in segments), default=0)
    except UnicodeEncodeError:
        return "cannot be written as UTF-8"
    if size > MAX_KEY_BYTES:
        return f"is longer than {MAX_KEY_BYTES} bytes"
    if longest > MAX_SEGMENT_BYTES:
        return f"has a segment longer than {MAX_SEGMENT_BYTES} bytes"
    return ""
