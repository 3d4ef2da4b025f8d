"""What a reader returns: the rows of one piece of a split, and its undecodable records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from laminar_dagster.core.ports import DecodedChunk, ReadingCost

BAD_SCHEMA: Final = pa.schema(
    [
        pa.field("partition", pa.string(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("raw", pa.binary(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("is_whole", pa.bool_(), nullable=False),
    ]
)
NO_COST: Final = ReadingCost()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedChunk(DecodedChunk):
    """A chunk whose rows carry their positions. Its counts must add up: no record is lost.

    Attributes:
        positions: The position of each row in its partition, ascending: in a text file the byte at
            which the record begins, in a Parquet file the ordinal of the row, in Kafka the offset.
    """

    positions: pa.Int64Array

    def __post_init__(self) -> None:
        """Refuse a chunk that lost or made up a record."""
        rows, bad = self.rows.num_rows, self.bad.num_rows
        if self.records + self.added != rows + bad + self.skipped:
            raise ValueError(
                f"{self.records} records and {self.added} added rows became {rows} rows, "
                f"{bad} bad records and {self.skipped} skipped ones"
            )
        if len(self.positions) != rows:
            raise ValueError("every row needs its position")


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that could not be decoded; only the beginning is kept of one that is too long."""

    position: int
    raw: bytes
    reason: str
    is_whole: bool = True


def chunk_of(
    partition: str,
    rows: pa.RecordBatch,
    positions: pa.Int64Array,
    bad: Sequence[BadRecord],
    size_bytes: int,
    *,
    records: int | None = None,
    added: int = 0,
    skipped: int = 0,
    schema_ids: frozenset[int] = frozenset(),
    cost: ReadingCost = NO_COST,
    bad_at: Callable[[Mapping[int, str]], list[BadRecord]] | None = None,
) -> PlacedChunk:
    """Build the chunk of one piece of a partition.

    Args:
        partition: The partition, which bad records name: for files, the path.
        rows: The decoded rows.
        positions: The position of each row.
        bad: The records that could not be decoded, in order.
        size_bytes: The size of all records.
        records: How many records there were; by default each row and each bad record is one.
        added: See ``DecodedChunk``.
        skipped: See ``DecodedChunk``.
        schema_ids: See ``DecodedChunk``.
        cost: See ``DecodedChunk``.
        bad_at: Turns positions with reasons into bad records; None where a row cannot be set
            aside: see ``DecodedChunk``.
    """

    def set_aside(reasons: Mapping[int, str]) -> pa.RecordBatch:
        assert bad_at is not None
        at = {positions[row].as_py(): reason for row, reason in reasons.items()}
        return _bad_batch(partition, bad_at(at))

    return PlacedChunk(
        rows=rows,
        bad=_bad_batch(partition, bad),
        records=rows.num_rows + len(bad) if records is None else records,
        size_bytes=size_bytes,
        added=added,
        skipped=skipped,
        schema_ids=schema_ids,
        cost=cost,
        positions=positions,
        set_aside=set_aside if bad_at else None,
    )


def _bad_batch(partition: str, bad: Sequence[BadRecord]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([partition] * len(bad), pa.string()),
            pa.array([each.position for each in bad], pa.int64()),
            pa.array([each.raw for each in bad], pa.binary()),
            pa.array([each.reason for each in bad], pa.string()),
            pa.array([each.is_whole for each in bad], pa.bool_()),
        ],
        schema=BAD_SCHEMA,
    )
