"""What a reader hands out: the rows of a piece of a split, and what could not be read of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from laminar_dagster.core.ports import DecodedChunk

BAD_SCHEMA: Final = pa.schema(
    [
        pa.field("partition", pa.string(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("raw", pa.binary(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("is_whole", pa.bool_(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class PlacedChunk(DecodedChunk):
    """A chunk whose rows know where they stand. Every record is either a row or a bad record.

    Attributes:
        positions: Where each row stands in its partition, ascending: of a text file the byte at
            which the record begins, of a Parquet file the ordinal of the row.
    """

    positions: pa.Int64Array

    def __post_init__(self) -> None:
        """Refuse a chunk that lost or made up a record."""
        rows, bad = self.rows.num_rows, self.bad.num_rows
        if self.records != rows + bad:
            raise ValueError(f"{self.records} records became {rows} rows and {bad} bad records")
        if len(self.positions) != rows:
            raise ValueError("every row needs its position")


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that could not be decoded. Of one that is too long, only the beginning is kept."""

    position: int
    raw: bytes
    reason: str
    is_whole: bool = True


def chunk_of(
    path: str,
    rows: pa.RecordBatch,
    positions: pa.Int64Array,
    bad: Sequence[BadRecord],
    size_bytes: int,
) -> PlacedChunk:
    """Put together what was found in a piece of a file."""
    return PlacedChunk(
        rows=rows,
        bad=pa.RecordBatch.from_arrays(
            [
                pa.array([path] * len(bad), pa.string()),
                pa.array([each.position for each in bad], pa.int64()),
                pa.array([each.raw for each in bad], pa.binary()),
                pa.array([each.reason for each in bad], pa.string()),
                pa.array([each.is_whole for each in bad], pa.bool_()),
            ],
            schema=BAD_SCHEMA,
        ),
        records=rows.num_rows + len(bad),
        size_bytes=size_bytes,
        positions=positions,
    )
