"""A clickstream in files of JSON lines: the same one on every machine, made without a loop.

Every segment is a stretch of time, and each of its files holds a share of the clicks of that
stretch. Clicks are a little out of order, by less than the watermark allows, so none is late.
Amounts are multiples of a quarter: sums of them are exact in whatever order they are added.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bench.click_schema import PAGE, PAGE_DIGITS

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_DISORDER_MILLIS: Final = 2_000

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Clicks:
    """How much of it.

    Attributes:
        records: Of each segment.
        seconds: Of event time, of each segment.
        keys: Pages, each as likely as the other.
    """

    records: int
    seconds: int
    keys: int
    files: int = 4
    seed: int = 1

    def write(self, folder: Path, segment: int) -> tuple[Path, ...]:
        """Write the files of a segment; the later the segment, the later they were written."""
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for part in range(self.files):
            path = folder / f"{segment:04}-{part}.ndjson"
            path.write_bytes(self.lines(segment, part))
            moment = START.timestamp() + segment
            os.utime(path, (moment, moment))
            written.append(path)
        return tuple(written)

    def lines(self, segment: int, part: int) -> bytes:
        """One file of a segment."""
        chance = np.random.default_rng((self.seed, segment, part))
        count = self.records // self.files
        length = self.seconds * 1000
        offset = np.arange(count) * length // count + segment * length
        millis = np.maximum(offset - chance.integers(0, _DISORDER_MILLIS, count), 0)
        return click_lines(millis, chance.integers(0, self.keys, count), chance)


def click_lines(millis: Numbers, pages: Numbers, chance: np.random.Generator) -> bytes:
    """Clicks as lines of JSON.

    Args:
        millis: When, after ``START``.
        pages: Which page, as a number.
        chance: Chooses the rest.
    """
    count = len(millis)
    quarters = chance.integers(0, 40_000, count)
    columns = [
        '{"at":"',
        _timestamps(millis),
        'Z","page":"',
        PAGE,
        _digits(pages),
        '","amount":',
        _text(quarters // 4),
        pa.array([".0", ".25", ".5", ".75"]).take(pa.array(quarters % 4)),
        ',"n":',
        _text(chance.integers(0, 10, count)),
        ',"user":"u',
        _digits(chance.integers(0, 10**6, count)),
        '"}\n',
    ]
    # Side by side in memory already: the values of a column of texts.
    _, _, joined = pc.binary_join_element_wise(*columns, "").buffers()
    return bytes(joined)


def _timestamps(millis: Numbers) -> pa.Array:
    moments = np.datetime64(START.replace(tzinfo=None), "ms") + millis.astype("timedelta64[ms]")
    return pc.strftime(pa.array(moments), "%Y-%m-%dT%H:%M:%S")


def _digits(numbers: Numbers) -> pa.Array:
    return pc.utf8_lpad(_text(numbers), PAGE_DIGITS, "0")


def _text(numbers: Numbers) -> pa.Array:
    return pa.array(numbers).cast(pa.string())
