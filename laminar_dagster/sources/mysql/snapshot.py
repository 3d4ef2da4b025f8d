"""Copies tables, as they are at one position of the log, into files.

Every connection that copies has a consistent view of its own, and all views must be of the same
position. MariaDB reports the position of each view, so no lock is needed: of the views that are
opened, those at the position of the first take part. MySQL does not, so its tables are locked while
the views are opened.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final

import pyarrow as pa

from laminar_dagster.clients.mysql.identifiers import quoted
from laminar_dagster.clients.mysql.packets import stream
from laminar_dagster.clients.mysql.session import Session
from laminar_dagster.core.ids import FileName
from laminar_dagster.core.ports import SnapshotDraft, SnapshotKeeper
from laminar_dagster.core.snapshot import SnapshotFile
from laminar_dagster.sources.changes.snapshot_files import file_bytes
from laminar_dagster.sources.decoded import BadRecord
from laminar_dagster.sources.mysql.catalogue import Facts, integer_key, look_up
from laminar_dagster.sources.mysql.selected_rows import Selection, joined
from laminar_dagster.sources.mysql.server_log import ServerLog, end_of
from laminar_dagster.sources.mysql.statements import TableName
from laminar_dagster.sources.mysql.table_map import LoggedTable

log = logging.getLogger(__name__)

_ISOLATION: Final = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
_VIEW: Final = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
_WHERE_VIEW_STANDS: Final = "SHOW STATUS LIKE 'binlog_snapshot_%'"
# While the lock is held, or waited for, nobody can write: limit the wait, and let the server end
# the session of a client that has vanished, after so many seconds.
_LOCK_SECONDS: Final = 10
_BOUNDS: Final = "SET SESSION lock_wait_timeout = %s, wait_timeout = %s"
# Keys are split into this many pieces a connection, since rows are seldom spread evenly.
_PIECES: Final = 4
_FEW_KEYS: Final = 10_000
_PIECE_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Views:
    """Sessions that all see the tables as they are at one position of the log.

    Attributes:
        gtids: The GTIDs up to the position; None where the server writes none.
    """

    sessions: tuple[Session, ...]
    file: str
    position: int
    gtids: str | None


@contextmanager
def same_view(server: ServerLog, facts: Facts, workers: int) -> Iterator[Views]:
    """Open sessions whose views are of the same position.

    Raises:
        SourceUnavailable: The server is unavailable, or its lock cannot be had in time.
        AuthFailed: The account may not lock tables, which MySQL needs.
    """
    with ExitStack() as stack:
        sessions = [stack.enter_context(server.session()) for _ in range(max(1, workers))]
        for session in sessions:
            session.run(_ISOLATION)
        if facts.is_mariadb:
            yield _unlocked(sessions)
        else:
            yield _locked(sessions, stack.enter_context(server.session()), facts)


def _unlocked(sessions: Sequence[Session]) -> Views:
    places: list[tuple[str, int]] = []
    for session in sessions:
        session.run(_VIEW)
        found = {str(name).lower(): value for name, value in session.run(_WHERE_VIEW_STANDS).rows}
        places.append((str(found["binlog_snapshot_file"]), int(found["binlog_snapshot_position"])))
    same = tuple(each for each, place in zip(sessions, places, strict=True) if place == places[0])
    if len(same) < len(sessions):
        text = "the server is busy: %d of %d connections share a view, and copy"
        log.info(text, len(same), len(sessions))
    return Views(same, *places[0], mariadb_gtids_at(same[0], *places[0]))


def mariadb_gtids_at(session: Session, file: str, position: int) -> str | None:
    """The GTIDs up to a position."""
    ((found,),) = session.run("SELECT BINLOG_GTID_POS(%s, %s)", [file, position]).rows
    return str(found) if found is not None else None


def _locked(sessions: Sequence[Session], keeper: Session, facts: Facts) -> Views:
    keeper.run(_BOUNDS, [_LOCK_SECONDS, _LOCK_SECONDS])
    try:
        keeper.run("FLUSH TABLES WITH READ LOCK")
        for session in sessions:
            session.run(_VIEW)
        # Query under the lock: later there may be GTIDs from after the position.
        return Views(tuple(sessions), *end_of(keeper, facts), look_up(keeper).gtids)
    finally:
        # Also if the lock failed: MySQL may give up half-way, still keeping others from writing.
        keeper.run("UNLOCK TABLES")


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a table, and the number under which its files are sorted."""

    number: int
    selection: Selection
    statement: str


def copy_tables(
    views: Views,
    tables: dict[TableName, LoggedTable],
    schema: pa.Schema,
    keeper: SnapshotKeeper,
    draft: SnapshotDraft,
    file_size: int,
) -> tuple[SnapshotFile, ...]:
    """Copy all rows into files of a draft.

    Args:
        views: The sessions that copy; their views are used up.
        tables: The tables to copy.
        schema: The columns of the source.
        keeper: Stores the files.
        draft: The snapshot that the files belong to.
        file_size: About how many bytes of rows a file holds.
    """
    shown = f"{views.file}:{views.position}"
    first = views.sessions[0]
    pieces: list[_Piece] = []
    for table in tables.values():
        selection = Selection(schema, table, shown)
        for statement in _statements(first, selection, len(views.sessions)):
            pieces.append(_Piece(len(pieces), selection, statement))
    idle: SimpleQueue[Session] = SimpleQueue()
    for session in views.sessions:
        idle.put(session)

    def copy(piece: _Piece) -> list[SnapshotFile]:
        session = idle.get()
        try:
            return _copy(session, piece, keeper, draft, file_size)
        finally:
            idle.put(session)

    with ThreadPoolExecutor(len(views.sessions)) as pool:
        return tuple(file for files in pool.map(copy, pieces) for file in files)


def _statements(session: Session, selection: Selection, workers: int) -> list[str]:
    """One statement for all rows, or several for ranges of the key."""
    table = selection.table
    key = integer_key(session, table) if workers > 1 else None
    if key is not None:
        ends = f"SELECT MIN({quoted(key)}), MAX({quoted(key)}) FROM "
        ((low, high),) = session.run(ends + f"{quoted(table.schema)}.{quoted(table.name)}").rows
        if low is not None and int(high) - int(low) > _FEW_KEYS:
            count = workers * _PIECES
            span = int(high) + 1 - int(low)
            edges = [int(low) + span * number // count for number in range(count + 1)]
            return [
                selection.statement(key, edges[number], edges[number + 1])
                for number in range(count)
            ]
    return [selection.statement()]


def _copy(
    session: Session, piece: _Piece, keeper: SnapshotKeeper, draft: SnapshotDraft, file_size: int
) -> list[SnapshotFile]:
    written: list[SnapshotFile] = []
    parts: list[pa.RecordBatch] = []
    bad: list[BadRecord] = []
    places: list[int] = []
    rows = size = 0

    def write() -> None:
        nonlocal rows, size
        if rows:
            name = FileName(f"{piece.number:06d}-{len(written):06d}.arrow")
            data = file_bytes(joined(parts), bad, places)
            written.append(keeper.write(draft, name, rows, data))
        for each in (parts, bad, places):
            each.clear()
        rows = size = 0

    session.ask(piece.statement)
    for packets in stream(session, at_once=_PIECE_BYTES):
        good, wrong, where = piece.selection.decode(packets)
        parts.append(good)
        bad.extend(wrong)
        places.extend(rows + place for place in where)
        rows += len(packets.starts)
        size += len(packets.data)
        if size >= file_size:
            write()
    write()
    return written
