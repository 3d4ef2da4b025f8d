"""Send rows to a table: with ``LOAD DATA LOCAL``, or with ``INSERT`` where that is forbidden.

``LOAD DATA LOCAL`` turns errors into warnings: it truncates values that are too long, and skips
rows that are refused. So any warning, and any missing row, is an error here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pymysql

from laminar_dagster.clients.mysql.identifiers import listed, quoted
from laminar_dagster.clients.mysql.session import STREAM, Answer, Session
from laminar_dagster.sinks.bad_values import show_row
from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.mysql.columns import MysqlColumn
from laminar_dagster.sinks.mysql.connection import Facts
from laminar_dagster.sinks.mysql.errors import row_of
from laminar_dagster.sinks.mysql.texts import STREAM_FORMAT, Form, stream_of, tuples_of
from laminar_dagster.sinks.portions import ahead, batches, check_count

# Longer statements are no faster.
_BYTES_PER_INSERT: Final = 4 * 2**20
# Room for what the protocol adds to a statement.
_MARGIN: Final = 64
_DIAGNOSE: Final = "GET DIAGNOSTICS CONDITION {} @laminar_row = ROW_NUMBER"


class Loader:
    """Sends rows into tables of a session."""

    def __init__(self, session: Session, facts: Facts, *, bulk: bool) -> None:
        """Choose between streaming and ``INSERT`` statements.

        Args:
            session: The session of the transaction.
            facts: The server's configuration.
            bulk: Whether to stream rows, if the server allows it.
        """
        self._session = session
        self._facts = facts
        self._streams = bulk and facts.takes_streams

    def send(
        self, table: str, columns: Sequence[MysqlColumn], rows: pa.Table, key: tuple[str, ...] = ()
    ) -> None:
        """Send rows.

        Args:
            table: The table to insert into.
            columns: The columns to write.
            rows: The rows; if there are none, nothing is sent.
            key: The columns that identify a refused row in the error; empty for all columns.

        Raises:
            Unwritable: A value does not fit, or not every row was inserted.
            pymysql.Error: The server refuses; a note names the row, if the server says which.
        """
        if not rows.num_rows:
            return
        send = self._stream if self._streams else self._insert
        names = key or tuple(column.name for column in columns)
        check_count(send(table, columns, rows, names), rows.num_rows)

    def run(self, statement: str, rows: pa.Table, names: Sequence[str], start: int = 0) -> Answer:
        """Execute a statement that writes known rows, and name the row in errors and warnings.

        Args:
            statement: Such as an ``INSERT``.
            rows: The rows that it writes, in this order.
            names: The columns that identify a row in errors.
            start: The index of the statement's first row in ``rows``.

        Raises:
            pymysql.Error: The server refuses or warns; a note names the row, if the server does.
        """
        try:
            done = self._session.run(statement)
        except pymysql.Error as error:
            self._note_row(error, rows, names, start)
            raise
        self._check_warnings(done, rows, names, start)
        return done

    def _stream(
        self, table: str, columns: Sequence[MysqlColumn], rows: pa.Table, names: tuple[str, ...]
    ) -> int:
        parts = ahead(stream_of(columns, batch, names) for batch in batches(rows))
        done = self._session.load(_load_statement(table, columns), parts)
        self._check_warnings(done, rows, names, 0)
        return done.affected

    def _insert(
        self, table: str, columns: Sequence[MysqlColumn], rows: pa.Table, names: tuple[str, ...]
    ) -> int:
        targets = listed([column.target for column in columns])
        head = f"INSERT INTO {quoted(table)} ({targets}) VALUES "
        sent = 0
        for values in self._statements(len(head.encode()), columns, rows, names):
            sent += self.run(head + values, rows, names, sent).affected
        return sent

    def _statements(
        self, head: int, columns: Sequence[MysqlColumn], rows: pa.Table, names: tuple[str, ...]
    ) -> Iterator[str]:
        """The ``VALUES`` of each statement, none longer than the server's maximum."""
        longest = self._facts.packet - head - _MARGIN
        wanted = min(longest, _BYTES_PER_INSERT)
        place = 0
        for offsets, data in ahead(tuples_of(columns, batch, names) for batch in batches(rows)):
            first, last = 0, len(offsets) - 1
            while first < last:
                # At least one row, even if it is longer than wanted.
                after = int(np.searchsorted(offsets, offsets[first] + wanted, "right")) - 1
                after = min(max(after, first + 1), last)
                size = int(offsets[after] - offsets[first])
                if size > longest:
                    raise Unwritable(
                        f"a row takes {size} bytes in a statement, more than the server's"
                        f" `max_allowed_packet` of {self._facts.packet}; raise it, in the row"
                        f" {show_row(rows, place + first, names)}"
                    )
                # The text is all ASCII. Drop the trailing comma.
                yield str(data[offsets[first] : offsets[after] - 1], "ascii")
                first = after
            place += last

    def _check_warnings(
        self, done: Answer, rows: pa.Table, names: Sequence[str], start: int
    ) -> None:
        if not done.warnings:
            return
        warnings = self._session.run("SHOW WARNINGS").rows
        # Prefer a warning to a note, which explains the warning after it or is all there is.
        place, (_, code, text) = next(
            ((place, row) for place, row in enumerate(warnings) if row[0] != "Note"),
            (0, warnings[0] if warnings else ("", 0, f"{done.warnings} warnings")),
        )
        error = pymysql.err.DataError(code, text)
        self._note_row(error, rows, names, start, place + 1)
        raise error

    def _note_row(
        self,
        error: pymysql.Error,
        rows: pa.Table,
        names: Sequence[str],
        start: int,
        condition: int = 1,
    ) -> None:
        """Add a note with the failing row to an error, if the server names it."""
        number = self._diagnosed(condition) or row_of(error)
        if number and start + number <= rows.num_rows:
            error.add_note(f"in the row {show_row(rows, start + number - 1, names)}")

    def _diagnosed(self, condition: int) -> int | None:
        """The number of the row, from 1, that raised a condition. Only MariaDB tells it."""
        if not self._facts.is_mariadb or not self._session.open:
            return None
        try:
            self._session.run(_DIAGNOSE.format(condition))
            ((number,),) = self._session.run("SELECT @laminar_row").rows
        except pymysql.Error:
            return None
        return number if isinstance(number, int) else None


def _load_statement(table: str, columns: Sequence[MysqlColumn]) -> str:
    """The ``LOAD DATA LOCAL`` statement; it decodes binary columns from hexadecimal digits."""
    places, changes = [], []
    for number, column in enumerate(columns):
        name = quoted(column.target)
        if column.form is Form.BYTES:
            places.append(f"@laminar_{number}")
            changes.append(f"{name} = UNHEX(@laminar_{number})")
        else:
            places.append(name)
    ending = f" SET {', '.join(changes)}" if changes else ""
    return (
        f"LOAD DATA LOCAL INFILE '{STREAM}' INTO TABLE {quoted(table)} {STREAM_FORMAT}"
        f" ({', '.join(places)}){ending}"
    )
