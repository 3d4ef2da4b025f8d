"""Plans how far an epoch reads: in the snapshot, and once that is read, in the log."""

from __future__ import annotations

from datetime import datetime

from msgspec import structs

from laminar_dagster.core.errors import RetentionExpired, SourceReplaced
from laminar_dagster.core.offsets import (
    Gap,
    MysqlIdentity,
    MysqlPosition,
    SourcePosition,
    SourceRange,
)
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Admission, SnapshotKeeper
from laminar_dagster.core.snapshot import FIRST_SNAPSHOT, SourceSnapshot
from laminar_dagster.sources.changes.planned import admitted_rows, planned
from laminar_dagster.sources.mysql.captured_tables import CapturedTables
from laminar_dagster.sources.mysql.catalogue import Facts, look_up, require_ready
from laminar_dagster.sources.mysql.events import DamagedLog
from laminar_dagster.sources.mysql.gtids import gtids_of
from laminar_dagster.sources.mysql.log_scan import LogScanner, Scanned
from laminar_dagster.sources.mysql.positions import beginning_of, is_newer, position_of, within
from laminar_dagster.sources.mysql.server_log import LogFiles, ServerLog, files_of


class Planner:
    """Plans epochs over the captured tables. Only reads."""

    def __init__(self, tables: CapturedTables, keeper: SnapshotKeeper) -> None:
        """Plan for a source."""
        self._tables = tables
        self._keeper = keeper

    def plan(
        self,
        previous: SourcePlan | None,
        start: tuple[SourcePosition, ...],
        limits: Admission,
        clock: datetime,
    ) -> SourcePlan:
        """See ``Source.plan``."""
        with self._tables.server.session() as session:
            facts = look_up(session)
            require_ready(facts, self._tables.address)
            files = files_of(session, self._tables.source_id)
            newest = self._keeper.newest()
            if not start and newest is None:
                return self._waiting(facts, files)
            self._tables.require_key(session)
            begin, gaps = self._begin(newest, start, files)
            pinned = self._pinned(previous, newest, begin, facts.identity)
            require_same_log(self._tables.server, pinned, facts, files)
            if begin.snapshot is not None:
                end, identity = self._rows_of_snapshot(begin, limits), pinned
            else:
                scanner = self._tables.scanner(session, facts)
                end, identity = self._changes(scanner, facts, begin, pinned, limits)
        return planned(
            self._tables.source_id,
            identity,
            SourceRange(start=begin, end=end),
            gaps,
            previous,
            clock,
            self._tables.options.idle_timeout,
        )

    def pin_held(self, plan: SourcePlan, previous: SourcePlan | None) -> SourcePlan:
        """See ``PinsItsEnd``: pin the column types at the beginning of the epoch.

        The next epoch reads from there: with the types at the end, it would take rows written
        before an ALTER for rows written after it.
        """
        begin = position_of(self._tables.source_id, plan.ranges[0].start)
        assert isinstance(plan.identity, MysqlIdentity), "it is a plan of this source"
        pinned = self._pinned(previous, self._keeper.newest(), begin, plan.identity.server_uuid)
        return structs.replace(plan, identity=pinned)

    def _waiting(self, facts: Facts, files: LogFiles) -> SourcePlan:
        """A placeholder plan before there is a snapshot: its range is not empty, so work waits."""
        file, position = files.end
        end = MysqlPosition(binlog_file=file, binlog_position=position)
        return SourcePlan(
            source_id=self._tables.source_id,
            identity=MysqlIdentity(server_uuid=facts.identity),
            ranges=(SourceRange(start=within(end, FIRST_SNAPSHOT, 0), end=end),),
        )

    def _begin(
        self, newest: SourceSnapshot | None, start: tuple[SourcePosition, ...], files: LogFiles
    ) -> tuple[MysqlPosition, tuple[Gap, ...]]:
        if not start:
            assert newest is not None, "without a snapshot nothing is planned"
            begin = beginning_of(self._tables.source_id, newest)
            files.require(begin.binlog_file, begin.binlog_position)
            return begin, ()
        begin = position_of(self._tables.source_id, start[0])
        try:
            files.require(begin.binlog_file, begin.binlog_position)
        except RetentionExpired:
            if (
                newest is None
                or self._tables.options.on_gap != "snapshot"
                or not is_newer(newest, begin)
            ):
                raise
            after = beginning_of(self._tables.source_id, newest)
            reason = f"purged before it was read; snapshot {newest.number} follows"
            return after, (Gap(lost=SourceRange(start=begin, end=after), reason=reason),)
        return begin, ()

    def _pinned(
        self,
        previous: SourcePlan | None,
        newest: SourceSnapshot | None,
        begin: MysqlPosition,
        server_uuid: str,
    ) -> MysqlIdentity:
        """The identity of the server, the log and the tables at the beginning of the epoch."""
        if newest is not None and isinstance(newest.identity, MysqlIdentity):
            is_first = previous is None and newest.number == FIRST_SNAPSHOT
            if is_first or beginning_of(self._tables.source_id, newest) == begin:
                return newest.identity
        if previous is not None and isinstance(previous.identity, MysqlIdentity):
            return previous.identity
        return MysqlIdentity(server_uuid=server_uuid)

    def _rows_of_snapshot(self, begin: MysqlPosition, limits: Admission) -> MysqlPosition:
        assert begin.snapshot is not None, "the caller has looked"
        snapshot = self._keeper.find(begin.snapshot.number)
        reached = admitted_rows(snapshot, begin.snapshot.rows, limits)
        if reached >= snapshot.rows:
            return position_of(self._tables.source_id, snapshot.position)
        return within(begin, snapshot.number, reached)

    def _changes(
        self,
        scanner: LogScanner,
        facts: Facts,
        begin: MysqlPosition,
        pinned: MysqlIdentity,
        limits: Admission,
    ) -> tuple[MysqlPosition, MysqlIdentity]:
        options = self._tables.options
        file, place = begin.binlog_file, begin.binlog_position
        gtids = gtids_of(begin.gtid_set, is_mariadb=facts.is_mariadb)
        with self._tables.server.events(file, place) as found:
            scanned = scanner.scan(
                found, (file, place), pinned.tables, limits, options.scan_bytes, gtids
            )
        if self._is_quiet(scanned, file):
            return begin, pinned
        identity = MysqlIdentity(
            server_uuid=facts.identity, mark=scanned.mark or pinned.mark, tables=scanned.shapes
        )
        end = MysqlPosition(
            binlog_file=scanned.file,
            binlog_position=scanned.position,
            gtid_set=str(gtids) if gtids is not None else None,
        )
        return end, identity

    def _is_quiet(self, scanned: Scanned, file: str) -> bool:
        """Whether the log so far has no changes to the tables, and is too short for an epoch.

        A new file is always worth an epoch: the file before may be purged.
        """
        is_little = scanned.bytes < self._tables.options.quiet_bytes
        return not scanned.changes and is_little and scanned.file == file


def require_same_log(
    server: ServerLog, pinned: MysqlIdentity, facts: Facts, files: LogFiles
) -> None:
    """Refuse another server, or another log on the same server.

    Raises:
        SourceReplaced: The server or the log is another.
    """
    if pinned.server_uuid != facts.identity:
        raise SourceReplaced(server.source_id, pinned.server_uuid, facts.identity)
    mark = pinned.mark
    if mark is None or mark.binlog_file not in files.sizes:
        return
    shown = f"the log whose event at {mark.binlog_file}:{mark.start} was read"
    try:
        files.require(mark.binlog_file, mark.start)
        found = server.mark_at(mark.binlog_file, mark.start)
    except DamagedLog:
        found = None
    if found != mark:
        raise SourceReplaced(server.source_id, shown, "another log: it was reset or restored")
