"""What a reader hands out: the rows of a piece of a split, and what could not be read of it."""

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
    """A chunk whose rows know where they stand. Nothing of it is lost or made up.

    Attributes:
        positions: Where each row stands in its partition, ascending: of a text file the byte at
            which the record begins, of a Parquet file the ordinal of the row, of Kafka the offset.
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
    """A record that could not be decoded. Of one that is too long, only the beginning is kept."""

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
    """Put together what was found in a piece of a partition.

    Args:
        partition: Where bad records are from: of a file, its path.
        rows: The good ones.
        positions: Of the rows.
        bad: The others, in order.
        size_bytes: Of all.
        records: How many there were; by default each row and each bad record is one.
        added: See ``DecodedChunk``, as for the rest.
        skipped: As there.
        schema_ids: As there.
        cost: As there.
        bad_at: The records at some positions, each with what is wrong with it; None where a row
            cannot be set aside: see ``DecodedChunk``.
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
