"""Reads ranges on executors: rows of a snapshot, or changes of the log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from laminar_dagster.clients.mysql.binlog import FIRST_EVENT
from laminar_dagster.core.errors import (
    DecodeFailed,
    LaminarError,
    SourceReplaced,
    SourceUnavailable,
)
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.offsets import MysqlPosition, SourceRange, progress_of
from laminar_dagster.core.ports import SnapshotKeeper
from laminar_dagster.sources.changes.options import OnTruncate
from laminar_dagster.sources.changes.snapshot_files import read_snapshot
from laminar_dagster.sources.decoded import BadRecord, PlacedChunk, chunk_of
from laminar_dagster.sources.mysql.catalogue import charsets_of, look_up
from laminar_dagster.sources.mysql.change_rows import Change, ChangeDecoder
from laminar_dagster.sources.mysql.events import BROKEN, ROWS, Event, Kind, why_broken
from laminar_dagster.sources.mysql.frames import last_ends
from laminar_dagster.sources.mysql.logged_tables import LoggedTables
from laminar_dagster.sources.mysql.options import MysqlCdcOptions
from laminar_dagster.sources.mysql.positions import position_of
from laminar_dagster.sources.mysql.row_walk import RowsEvent
from laminar_dagster.sources.mysql.server_log import ServerLog, files_of, number_of
from laminar_dagster.sources.mysql.statements import Effect, effect_of, statement_in

# The size of a chunk, in bytes and events of the log: fixed, so that retries cut the same chunks.
_CHUNK_BYTES: Final = 4 * 1024 * 1024
_CHUNK_EVENTS: Final = 50_000


@dataclass(frozen=True, slots=True)
class MysqlSplitReader:
    """Implements ``core.ports.SplitReader``."""

    source_id: SourceId
    schema: pa.Schema
    options: MysqlCdcOptions = field(repr=False)
    keeper: SnapshotKeeper = field(repr=False)

    def read(self, split: SourceRange) -> Iterator[PlacedChunk]:
        """All rows of a range, in order.

        Raises:
            SourceUnavailable, AuthFailed: The server is unavailable, or stops sending.
            SourceReplaced, RetentionExpired: The log does not hold the range.
            DecodeFailed: The log cannot be read.
        """
        start, end = (
            position_of(self.source_id, split.start),
            position_of(self.source_id, split.end),
        )
        if start.snapshot is not None:
            snapshot = self.keeper.find(start.snapshot.number)
            last = snapshot.rows if end.snapshot is None else end.snapshot.rows
            first = start.snapshot.rows
            yield from read_snapshot(
                self.source_id, self.schema, self.keeper, snapshot, first, last
            )
        elif not split.is_empty:
            yield from self._changes(start, end)

    def _changes(self, start: MysqlPosition, end: MysqlPosition) -> Iterator[PlacedChunk]:
        server = ServerLog(self.source_id, self.options.server)
        with server.session() as session:
            facts = look_up(session)
            charsets = charsets_of(session, facts)
        tables = LoggedTables(
            self.options.tables,
            charsets,
            is_mariadb=facts.is_mariadb,
            ignores_case=facts.ignores_case,
        )
        reading = _Reading(tables, ChangeDecoder(self.schema), self.options.on_truncate)
        last = progress_of(end)
        reached = (start.binlog_file, start.binlog_position)
        beyond: Event | None = None
        try:
            whole = self._whole(server, start, end)
            with server.events(start.binlog_file, start.binlog_position) as found:
                for event in found:
                    place = (number_of(event.file), event.end)
                    if place > last[:2]:
                        beyond = event
                        break
                    reached = (event.file, event.end)
                    if place[0] < last[0] and event.end > whole.get(event.file, 0):
                        continue
                    yield from reading.take(event)
            yield from reading.rest()
        except LaminarError:
            raise
        except BROKEN as error:
            shown = f"{reached[0]}:{reached[1]}"
            raise DecodeFailed(self.source_id, shown, why_broken(error)) from error
        if (number_of(reached[0]), reached[1]) == last[:2]:
            return
        if beyond is None:
            raise self._ended_early(server, reached, end)
        if end.binlog_position > FIRST_EVENT or beyond.start != FIRST_EVENT:
            wanted = f"a log in which an event ends at {end.binlog_file}:{end.binlog_position}"
            around = f"one from {beyond.file}:{beyond.start} to {beyond.end}"
            raise SourceReplaced(self.source_id, wanted, around)

    def _whole(self, server: ServerLog, start: MysqlPosition, end: MysqlPosition) -> dict[str, int]:
        """Where the last complete transaction ends, in each file but the last.

        A crashed server may have left one without an end, which the plan did not count. Its rows
        cannot be buffered until the end of the file shows that: they may exceed the memory.
        The last file needs no entry, since a plan ends with a transaction.
        """
        last = number_of(end.binlog_file)
        if number_of(start.binlog_file) == last:
            return {}
        place = (start.binlog_file, start.binlog_position)
        with server.events(*place) as found:
            whole = last_ends(found, last)
        if whole is None:
            raise self._ended_early(server, place, end)
        return whole

    def _ended_early(
        self, server: ServerLog, reached: tuple[str, int], end: MysqlPosition
    ) -> SourceUnavailable:
        """The error for a log that ended before the range: a server that is shut down just stops.

        Raises:
            SourceReplaced, RetentionExpired: The log does not have the range.
        """
        with server.session() as session:
            files_of(session, self.source_id).require(end.binlog_file, end.binlog_position)
        shown = f"{reached[0]}:{reached[1]}, before {end.binlog_file}:{end.binlog_position}"
        return SourceUnavailable(self.source_id, f"it stopped sending its log at {shown}")


class _Reading:
    """Collects changes, and decodes as many together as make up a chunk."""

    def __init__(
        self, tables: LoggedTables, decoder: ChangeDecoder, on_truncate: OnTruncate
    ) -> None:
        self._tables = tables
        self._decoder = decoder
        self._on_truncate = on_truncate
        self._file = ""
        self._changes: list[Change] = []
        self._size = 0
        self._since = time.perf_counter()

    def take(self, event: Event) -> Iterator[PlacedChunk]:
        """Handle the next event."""
        kind = event.kind
        if kind in ROWS:
            table = self._tables.of_rows(event)
            if table is None:
                return
            if event.file != self._file:
                yield from self.rest()
                self._file = event.file
            rows = RowsEvent(kind, event.body, event.end, f"{event.file}:{event.end}")
            self._changes.append(Change(table, rows, event.timestamp))
            self._size += len(event.body)
            if self._size >= _CHUNK_BYTES or len(self._changes) >= _CHUNK_EVENTS:
                yield from self.rest()
        elif kind == Kind.TABLE_MAP:
            self._tables.describe(event)
        elif kind == Kind.FORMAT:
            self._tables.forget()
        elif kind == Kind.QUERY and self._on_truncate == "dead_letter":
            yield from self._emptied(event)

    def rest(self) -> Iterator[PlacedChunk]:
        """Decode what was collected."""
        if self._changes:
            fetched = time.perf_counter() - self._since
            chunk = self._decoder.decode(self._file, self._changes, fetched)
            self._changes, self._size = [], 0
            yield chunk
            self._since = time.perf_counter()

    def _emptied(self, event: Event) -> Iterator[PlacedChunk]:
        statement = statement_in(event.body)
        effect, table = effect_of(statement, self._tables.wanted)
        if effect is not Effect.EMPTIES or table is None:
            return
        yield from self.rest()
        reason = f"{'.'.join(table)} was emptied (TRUNCATE), which cannot be said of single rows"
        schema = self._decoder.schema
        nothing = pa.RecordBatch.from_arrays(
            [pa.nulls(0, each.type) for each in schema], schema=schema
        )
        letter = BadRecord(event.end, statement.text.encode(), reason)
        yield chunk_of(event.file, nothing, pa.array([], pa.int64()), [letter], len(event.body))
