"""Table descriptions in the log (TABLE_MAP events), which the row events after them refer to."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from laminar_dagster.sources.mysql.events import DamagedLog, Event
from laminar_dagster.sources.mysql.statements import TableName
from laminar_dagster.sources.mysql.table_map import (
    LoggedTable,
    read_table,
    table_id_of,
    table_name_of,
)

# Table ids of an event without changes, which ends a statement.
_OF_NO_TABLE: Final = frozenset({0xFFFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFF})


class LoggedTables:
    """Finds the row events that belong to a source's tables."""

    def __init__(
        self,
        wanted: Collection[TableName],
        charsets: Mapping[int, str],
        *,
        is_mariadb: bool,
        ignores_case: bool,
    ) -> None:
        """Start without descriptions.

        Args:
            wanted: The source's tables.
            charsets: The character set of each collation.
            is_mariadb: Whether MariaDB wrote the log.
            ignores_case: Whether the server's table names are case-insensitive: its log then has
                them in lower case, however they were declared.
        """
        self.wanted = frozenset(wanted)
        self._ignores_case = ignores_case
        self._declared = {self._as_compared(each): each for each in self.wanted}
        self._charsets = charsets
        self._is_mariadb = is_mariadb
        # Cached: the same description recurs with every statement.
        self._by_body: dict[bytes, LoggedTable] = {}
        self._by_id: dict[int, LoggedTable | None] = {}

    def describe(self, event: Event) -> LoggedTable | None:
        """Remember a description; None if it is of another table.

        Raises:
            UnreadableTable: The description lacks required metadata.
        """
        body = event.body
        self._by_id[table_id_of(body)] = None
        table = self._by_body.get(body)
        if table is None:
            declared = self._declared.get(self._as_compared(table_name_of(body)))
            if declared is not None:
                found = read_table(body, self._charsets, is_mariadb=self._is_mariadb)
                # The declared name, whether a row comes from the snapshot or the log.
                table = replace(found, schema=declared[0], name=declared[1])
                self._by_body[body] = table
        self._by_id[table_id_of(body)] = table
        return table

    def of_rows(self, event: Event) -> LoggedTable | None:
        """The table of a row event; None if it is none of the source's.

        Raises:
            DamagedLog: No description has the event's table id.
        """
        number = table_id_of(event.body)
        if number not in self._by_id and number not in _OF_NO_TABLE:
            raise DamagedLog(f"changes to a table with the number {number}, which none has")
        return self._by_id.get(number)

    def forget(self) -> None:
        """Forget the table ids: in a new file they mean other tables."""
        self._by_id.clear()

    def _as_compared(self, name: TableName) -> TableName:
        return (name[0].lower(), name[1].lower()) if self._ignores_case else name
