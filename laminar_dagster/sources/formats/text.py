"""UTF-8 checks for the text formats."""

from __future__ import annotations

from typing import Final

import numpy as np

from laminar_dagster.sources.formats.records import Offsets, Records

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
# Continuation bytes of a UTF-8 character begin with the bits 10.
_TOP_BITS: Final = 0xC0
_CONTINUES: Final = 0x80


def not_utf8(records: Records) -> Offsets:
    """Which records are not UTF-8."""
    if records.data.isascii():
        return np.empty(0, np.int64)
    if _is_utf8(records.data) and not _cuts_characters(records):
        return np.empty(0, np.int64)
    places = [place for place in range(len(records)) if not _is_utf8(records.text(place))]
    return np.array(places, np.int64)


def _cuts_characters(records: Records) -> bool:
    """Whether a record begins within a character, whose first bytes end the record before.

    Then all of the bytes together are valid UTF-8, but neither of the two records is.
    """
    raw = np.frombuffer(records.data, np.uint8)
    starts = records.starts[records.starts < records.ends]
    return bool(((raw[starts] & _TOP_BITS) == _CONTINUES).any())


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
