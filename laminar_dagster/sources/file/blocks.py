"""The records of a block of a text file."""

from __future__ import annotations

from typing import Final

import numpy as np

from laminar_dagster.sources.file.framing import Block
from laminar_dagster.sources.formats.records import Records
from laminar_dagster.sources.formats.text import BYTE_ORDER_MARK

_BLANK: Final = b" \t\r\n"


def records_of(block: Block) -> Records:
    """The records of a block that are not blank, each at its byte position in the file.

    A byte order mark counts only where the file begins.
    """
    starts = np.concatenate(([0], block.ends[:-1])).astype(np.int64)
    if block.start == 0 and block.data.startswith(BYTE_ORDER_MARK):
        starts[0] = len(BYTE_ORDER_MARK)
    whole = Records(block.data, starts, block.ends, starts + block.start)
    if not len(starts):
        return whole
    raw = np.frombuffer(block.data + b"\n", np.uint8)
    # Only a record that begins with white space can be blank.
    maybe = np.flatnonzero(raw[starts] <= ord(" "))
    blank = [place for place in maybe.tolist() if not whole.text(place).strip(_BLANK)]
    return whole.without(np.array(blank, np.int64)) if blank else whole
