"""Reads a range on an executor: rows of the snapshot, or changes of the stream."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from laminar_dagster.core.errors import DecodeFailed, SeekFailed
from laminar_dagster.core.offsets import PostgresPosition, SourceRange
from laminar_dagster.core.ports import SnapshotKeeper
from laminar_dagster.sources.changes.snapshot_files import read_snapshot
from laminar_dagster.sources.decoded import PlacedChunk
from laminar_dagster.sources.postgres.database import Database
from laminar_dagster.sources.postgres.decoding import ChangeDecoder
from laminar_dagster.sources.postgres.messages import MalformedStream, messages_of
from laminar_dagster.sources.postgres.options import PostgresCdcOptions


@dataclass(frozen=True, slots=True)
class PostgresSplitReader:
    """Implements ``core.ports.SplitReader``."""

    source_id: str
    schema: pa.Schema
    options: PostgresCdcOptions = field(repr=False)
    keeper: SnapshotKeeper = field(repr=False)

    def read(self, split: SourceRange) -> Iterator[PlacedChunk]:
        """All records of the range, in order.

        Raises:
            SourceUnavailable: The server is unavailable, or another session reads the slot.
            SlotNotFound, RetentionExpired: The slot no longer holds the range.
            SchemaChanged: A table does not match its declaration any more.
        """
        start, end = bounds(self.source_id, split)
        if split.is_empty:
            return
        if start.snapshot is not None:
            snapshot = self.keeper.find(start.snapshot.number)
            last = snapshot.rows if end.snapshot is None else end.snapshot.rows
            yield from read_snapshot(
                self.source_id, self.schema, self.keeper, snapshot, start.snapshot.rows, last
            )
            return
        yield from self._changes(start.lsn, end.lsn)

    def _changes(self, start: int, end: int) -> Iterator[PlacedChunk]:
        decoder = ChangeDecoder(self.source_id, self.schema, self.options.decoding)
        database = database_of(self.source_id, self.options)
        with database.session() as connection:
            began = time.perf_counter()
            for row in database.changes(connection, start, end):
                fetched = time.perf_counter() - began
                try:
                    chunk = decoder.decode(messages_of(row), start, end, fetched)
                except MalformedStream as error:
                    place = f"the stream of slot {self.options.slot}"
                    raise DecodeFailed(self.source_id, place, str(error)) from error
                if chunk.records:
                    yield chunk
                began = time.perf_counter()


def database_of(source_id: str, options: PostgresCdcOptions) -> Database:
    """The database that options name."""
    return Database(
        source_id,
        options.server,
        options.slot,
        options.publication,
        options.slot_timeout.total_seconds(),
        options.statement_timeout.total_seconds(),
    )


def bounds(source_id: str, part: SourceRange) -> tuple[PostgresPosition, PostgresPosition]:
    """The positions of a range.

    Raises:
        SeekFailed: The range belongs to another kind of source.
    """
    start, end = part.start, part.end
    if not isinstance(start, PostgresPosition) or not isinstance(end, PostgresPosition):
        raise SeekFailed(source_id, f"{type(start).__name__} is not a position in a slot")
    return start, end
