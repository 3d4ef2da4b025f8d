"""What formats of text have in common."""

from __future__ import annotations

from typing import Final

import numpy as np

from laminar_dagster.sources.formats.records import Offsets, Records

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


def not_utf8(records: Records) -> Offsets:
    """Which records are not UTF-8."""
    if records.data.isascii():
        return np.empty(0, np.int64)
    try:
        records.data.decode()
    except UnicodeDecodeError:
        places = [place for place in range(len(records)) if not _is_utf8(records.text(place))]
        return np.array(places, np.int64)
    return np.empty(0, np.int64)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
