"""Checks a source's tables, and copies them into the snapshot that precedes the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from laminar_dagster.clients.mysql.session import Session
from laminar_dagster.core.errors import InvalidConfig, ObjectExists
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.offsets import MysqlIdentity, MysqlPosition
from laminar_dagster.core.ports import SnapshotKeeper
from laminar_dagster.core.snapshot import SnapshotFile
from laminar_dagster.sources.mysql.catalogue import (
    Facts,
    charsets_of,
    describe_tables,
    look_up,
    require_key,
    require_ready,
)
from laminar_dagster.sources.mysql.change_rows import ChangeDecoder
from laminar_dagster.sources.mysql.log_scan import LogScanner
from laminar_dagster.sources.mysql.logged_tables import LoggedTables
from laminar_dagster.sources.mysql.options import MysqlCdcOptions
from laminar_dagster.sources.mysql.prepared import require_nothing_prepared
from laminar_dagster.sources.mysql.server_log import ServerLog, end_of
from laminar_dagster.sources.mysql.snapshot import copy_tables, mariadb_gtids_at, same_view
from laminar_dagster.sources.mysql.statements import TableName
from laminar_dagster.sources.mysql.table_map import LoggedTable
from laminar_dagster.sources.mysql.values import Unfit


@dataclass(frozen=True, slots=True)
class CapturedTables:
    """The tables that a source reads from a server.

    Attributes:
        schema: The declared columns, and those that ``change_traits`` adds.
    """

    source_id: SourceId
    schema: pa.Schema
    options: MysqlCdcOptions = field(repr=False)

    @property
    def server(self) -> ServerLog:
        """The server that has the tables."""
        return ServerLog(self.source_id, self.options.server)

    @property
    def address(self) -> str:
        """The server and the tables, without secrets."""
        tables = ",".join(sorted(".".join(each) for each in self.options.tables))
        return f"mysql://{self.options.server.shown}/{tables}"

    def copy(self, keeper: SnapshotKeeper, number: int) -> None:
        """Take a snapshot of the tables.

        Raises:
            SourceUnavailable, AuthFailed: The server is unavailable, or refuses; or a transaction
                is prepared (XA), which would be missing in the snapshot and in the log after it.
            InvalidConfig: The log cannot be read, or a table does not match its declaration.
        """
        draft = keeper.begin(number)
        options = self.options
        with self.server.session() as session:
            facts = look_up(session)
            require_ready(facts, self.address)
            tables = describe_tables(session, options.tables, self.address)
            self.require_key(session)
            shapes = self._shapes(session, facts, tables)
        files: tuple[SnapshotFile, ...] = ()
        if options.snapshot == "never":
            with self.server.session() as session:
                file, position = end_of(session, facts)
                gtids = _gtids_at(session, facts, file, position)
            require_nothing_prepared(self.server, file, position)
        else:
            with same_view(self.server, facts, options.snapshot_workers) as views:
                file, position, gtids = views.file, views.position, views.gtids
                require_nothing_prepared(self.server, file, position)
                files = copy_tables(
                    views, tables, self.schema, keeper, draft, options.snapshot_file
                )
        identity = MysqlIdentity(
            server_uuid=facts.identity, mark=self.server.mark_at(file), tables=shapes
        )
        end = MysqlPosition(binlog_file=file, binlog_position=position, gtid_set=gtids)
        try:
            keeper.finish(draft, end, identity, files)
        except ObjectExists:
            # Another process finished this snapshot first; its copy is as good.
            return

    def check(self, session: Session, facts: Facts) -> None:
        """Check the tables as they are now.

        Raises:
            InvalidConfig: A table is missing, or does not match its declaration.
        """
        self._shapes(session, facts, describe_tables(session, self.options.tables, self.address))
        self.require_key(session)

    def require_key(self, session: Session) -> None:
        """Refuse a declared PRIMARY KEY that is not unique in every table.

        Raises:
            InvalidConfig: The key is not unique in a table, or no longer.
        """
        require_key(session, self.options.tables, self.options.key, self.address)

    def _shapes(
        self, session: Session, facts: Facts, tables: Mapping[TableName, LoggedTable]
    ) -> dict[str, dict[str, str]]:
        """The types of the declared columns of every table.

        Raises:
            InvalidConfig: A table does not match its declaration.
        """
        scanner = self.scanner(session, facts)
        try:
            return {".".join(name): scanner.shape_of(each) for name, each in tables.items()}
        except Unfit as error:
            hint = "declare the columns that the table has, of a type that holds them"
            raise InvalidConfig(self.address, str(error), hint) from None

    def scanner(self, session: Session, facts: Facts) -> LogScanner:
        """A scanner of the log for changes to the tables."""
        options = self.options
        charsets = charsets_of(session, facts)
        return LogScanner(
            self.source_id,
            LoggedTables(
                options.tables,
                charsets,
                is_mariadb=facts.is_mariadb,
                ignores_case=facts.ignores_case,
            ),
            ChangeDecoder(self.schema),
            on_truncate=options.on_truncate,
        )


def _gtids_at(session: Session, facts: Facts, file: str, position: int) -> str | None:
    """The GTIDs up to the end of the log; on MySQL approximate, since others go on writing."""
    if facts.is_mariadb:
        return mariadb_gtids_at(session, file, position)
    return look_up(session).gtids
