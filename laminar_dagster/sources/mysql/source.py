"""Tables of a MySQL or MariaDB server as a source: a snapshot of them first, then their changes.

The log is read by file and position, in whole transactions; reading consumes nothing. A plan scans
the log ahead, so it knows where transactions end, and what of it cannot be read.

A plan pins the server, an event of the log, and the types of the columns. Another server, a log
that was reset, purged or is shorter than what was read, and a table whose emitted rows an ALTER
has changed, raise errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

import pyarrow as pa

from laminar_dagster.config.model import SourceTable
from laminar_dagster.core.document import require_utc
from laminar_dagster.core.errors import (
    InvalidConfig,
    LaminarError,
    RetentionExpired,
    SourceReplaced,
)
from laminar_dagster.core.health import HealthReport
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.offsets import MysqlIdentity, SourcePosition, SourceRange
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Admission, SnapshotKeeper
from laminar_dagster.core.snapshot import FIRST_SNAPSHOT
from laminar_dagster.sources.changes.planned import schema_of
from laminar_dagster.sources.mysql.captured_tables import CapturedTables
from laminar_dagster.sources.mysql.catalogue import look_up, require_ready
from laminar_dagster.sources.mysql.events import DamagedLog
from laminar_dagster.sources.mysql.health import CHECKSUM, report
from laminar_dagster.sources.mysql.options import MysqlCdcOptions, read_options
from laminar_dagster.sources.mysql.planning import Planner, require_same_log
from laminar_dagster.sources.mysql.positions import is_newer, position_of, within
from laminar_dagster.sources.mysql.reader import MysqlSplitReader
from laminar_dagster.sources.mysql.server_log import ServerLog, files_of

# About how many rows of a snapshot are in one split.
_SPLIT_ROWS: Final = 250_000


class MysqlCdcSource:
    """Implements ``core.ports.Source``, ``Snapshotting`` and ``Observable``."""

    def __init__(
        self,
        source_id: SourceId,
        schema: pa.Schema,
        options: MysqlCdcOptions,
        keeper: SnapshotKeeper,
    ) -> None:
        """Describe the source; does no I/O."""
        self._source_id = source_id
        self._schema = schema
        self._options = options
        self._keeper = keeper
        self._server = ServerLog(source_id, options.server)
        self._tables = CapturedTables(source_id, schema, options)

    @classmethod
    def from_table(
        cls,
        table: SourceTable,
        project: Path,
        defaults: Mapping[str, str],
        keeper: SnapshotKeeper,
    ) -> MysqlCdcSource:
        """Build the source of a ``CREATE SOURCE TABLE … WITH (connector = 'mysql-cdc', …)``.

        Args:
            table: The statement.
            project: The folder that relative paths start from.
            defaults: Options from the pipeline, for those that the source does not set itself.
            keeper: Stores snapshots.

        Raises:
            InvalidConfig: Lists every mistake in the options, or names an unsupported column.
        """
        options = read_options(table.options, defaults, str(table.place), project)
        options = replace(options, key=table.key)
        return cls(table.source_id, schema_of(table), options, keeper)

    @property
    def source_id(self) -> SourceId:
        """The source's name within the pipeline."""
        return self._source_id

    @property
    def address(self) -> str:
        """The server and the tables."""
        return self._tables.address

    @property
    def schema(self) -> pa.Schema:
        """The columns of the reader's chunks, with those that the options add."""
        return self._schema

    # --- snapshot ---------------------------------------------------------------------------------

    def prepare(self, previous: SourcePlan | None, start: tuple[SourcePosition, ...]) -> None:
        """Take the snapshot that the next epoch begins with, if it is missing.

        Raises:
            SourceUnavailable, AuthFailed: The server is unavailable, or refuses.
            InvalidConfig: The log cannot be read, or a table does not match its declaration.
        """
        newest = self._keeper.newest()
        if not start:
            if newest is None:
                self._tables.copy(self._keeper, FIRST_SNAPSHOT)
            return
        begin = position_of(self._source_id, start[0])
        if self._options.on_gap != "snapshot" or is_newer(newest, begin):
            return
        with self._server.session() as session:
            files = files_of(session, self._source_id)
        try:
            files.require(begin.binlog_file, begin.binlog_position)
        except RetentionExpired:
            self._tables.copy(self._keeper, newest.number + 1 if newest else FIRST_SNAPSHOT)

    def plan(
        self,
        previous: SourcePlan | None,
        start: tuple[SourcePosition, ...],
        limits: Admission,
        clock: datetime,
    ) -> SourcePlan:
        """Choose how far to read: in the snapshot, and once that is read, in the log.

        Raises:
            SourceReplaced: The server is another, or its log is not the one that was read.
            RetentionExpired: The log was purged before it was read.
            TableChanged, DecodeFailed: The next changes cannot be read.
            SourceUnavailable, AuthFailed: The server is unavailable, or refuses.
            InvalidConfig: The log cannot be read.
        """
        require_utc("clock", clock)
        return Planner(self._tables, self._keeper).plan(previous, start, limits, clock)

    def pin_held(self, plan: SourcePlan, previous: SourcePlan | None) -> SourcePlan:
        """See ``PinsItsEnd``."""
        return Planner(self._tables, self._keeper).pin_held(plan, previous)

    # --- carrying out a plan ----------------------------------------------------------------------

    def verify(self, plan: SourcePlan) -> None:
        """Check that the server and its log are those of a plan, and still have its ranges."""
        with self._server.session() as session:
            facts = look_up(session)
            files = files_of(session, self._source_id)
        for part in plan.ranges:
            if part.is_empty:
                continue
            start, end = (position_of(self._source_id, each) for each in (part.start, part.end))
            if start.snapshot is not None:
                # Its rows are in the store, not in the log.
                self._keeper.find(start.snapshot.number)
                continue
            files.require(start.binlog_file, start.binlog_position)
            files.require(end.binlog_file, end.binlog_position)
        if isinstance(plan.identity, MysqlIdentity):
            require_same_log(self._server, plan.identity, facts, files)

    def identity(self) -> MysqlIdentity:
        """The server, and the first event of its current log file."""
        with self._server.session() as session:
            facts = look_up(session)
            file, _ = files_of(session, self._source_id).end
        return MysqlIdentity(server_uuid=facts.identity, mark=self._server.mark_at(file))

    def splits(self, part: SourceRange) -> tuple[SourceRange, ...]:
        """Split rows of a snapshot. Changes are not split: they must be read in order."""
        if part.is_empty:
            return ()
        start, end = (position_of(self._source_id, each) for each in (part.start, part.end))
        if start.snapshot is None:
            return (part,)
        number, first = start.snapshot.number, start.snapshot.rows
        last = end.snapshot.rows if end.snapshot else self._keeper.find(number).rows
        pieces = max(1, -(-(last - first) // _SPLIT_ROWS))
        edges = [first + (last - first) * each // pieces for each in range(pieces + 1)]
        between = [within(start, number, rows) for rows in edges[1:-1]]
        return tuple(
            SourceRange(start=one, end=two) for one, two in pairwise([start, *between, end])
        )

    def reader(self) -> MysqlSplitReader:
        """A reader for the executors, which must reach the server under the same name."""
        return MysqlSplitReader(self._source_id, self._schema, self._options, self._keeper)

    def check_seek(self, position: SourcePosition) -> None:
        """Find out whether reading can resume at a position.

        Raises:
            RetentionExpired: The log was purged.
            SourceReplaced: The log ends before the position, or no event begins there.
        """
        place = position_of(self._source_id, position)
        with self._server.session() as session:
            files = files_of(session, self._source_id)
        files.require(place.binlog_file, place.binlog_position)
        if place.snapshot is not None:
            self._keeper.find(place.snapshot.number)
        try:
            with self._server.events(place.binlog_file, place.binlog_position) as found:
                next(found, None)
        except DamagedLog as error:
            shown = f"an event at {place.binlog_file}:{place.binlog_position}"
            raise SourceReplaced(self._source_id, shown, str(error)) from None

    def acknowledge(self, positions: tuple[SourcePosition, ...]) -> None:
        """Do nothing: the server's own settings decide how long it keeps its log."""

    def health(self, positions: tuple[SourcePosition, ...]) -> HealthReport:
        """Whether the server is set up for the source, and how far the position is behind."""
        details = {"tables": ", ".join(".".join(each) for each in self._options.tables)}
        try:
            place = position_of(self._source_id, positions[0]) if positions else None
            with self._server.session() as session:
                facts = look_up(session)
                details |= {"server": facts.identity, "version": facts.variables["version"]}
                details[CHECKSUM] = facts.variables.get(CHECKSUM, "")
                require_ready(facts, self.address)
                files = files_of(session, self._source_id)
                ((now,),) = session.run("SELECT UNIX_TIMESTAMP()").rows
                problem: LaminarError | None = None
                try:
                    self._tables.check(session, facts)
                except InvalidConfig as error:
                    problem = error
            return report(self._server, files, place, int(now), details, problem)
        except LaminarError as error:
            return HealthReport.unreachable(error, details)
