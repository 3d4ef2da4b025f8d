"""Classifies errors of the Delta Lake client.

The types of its errors tell little: one type stands for an unavailable store, for a table that no
client can open, and for a bug. So the text is searched as well, for the system's error or the
status of an object store.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from laminar_dagster.clients.transience import PASSING_STATUS, PASSING_TEXT, is_passing

_STATUS: Final = re.compile(r"non-2xx status code\s+(?:\S+\s+)??(\d{3})\b")
_COLOUR: Final = re.compile(r"\x1b\[\d*m")
_PASSING: Final = re.compile(
    r"error sending request|client error \(Connect\)|connection closed|connection error"
    r"|incomplete message|body error|dns error"
)
_BACKTRACE: Final = "\n   0:"


class Meaning(Enum):
    """What to do about an error."""

    # Transient: the same call may succeed later.
    PASSING = auto()
    # Permanent until somebody changes the credentials or the rights.
    REFUSED = auto()
    # Permanent until somebody changes something else.
    LASTING = auto()


def meaning_of(error: Exception) -> Meaning:
    """Classify an error."""
    text = readable(str(error))
    if found := _STATUS.search(text):
        status = int(found[1])
        if status in (401, 403):
            return Meaning.REFUSED
        return Meaning.PASSING if status in PASSING_STATUS else Meaning.LASTING
    if "Permission denied" in text:
        return Meaning.REFUSED
    is_known = isinstance(error, OSError) and is_passing(error)
    if is_known or PASSING_TEXT.search(text) or _PASSING.search(text):
        return Meaning.PASSING
    return Meaning.LASTING


def readable(text: str) -> str:
    """The client's text in one line, without colours and backtrace.

    Conceal secrets before: one that contains a line break could not be found afterwards.
    """
    return " ".join(_COLOUR.sub("", text.split(_BACKTRACE)[0]).replace("↳", " ").split())
