"""Sending rows: streamed to a ``LOAD DATA LOCAL``, or in statements where that is forbidden.

A ``LOAD DATA LOCAL`` turns errors into warnings: it cuts what is too long, and leaves out rows
that are refused. So any warning, and any row that is missing, is an error here.
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
# What the protocol puts around a statement.
_MARGIN: Final = 64
_DIAGNOSE: Final = "GET DIAGNOSTICS CONDITION {} @laminar_row = ROW_NUMBER"


class Loader:
    """Sends rows into tables of a session."""

    def __init__(self, session: Session, facts: Facts, *, bulk: bool) -> None:
        """Choose how.

        Args:
            session: In which a transaction will be.
            facts: What its server is like.
            bulk: Whether rows may be streamed, where the server takes that.
        """
        self._session = session
        self._facts = facts
        self._streams = bulk and facts.takes_streams

    def send(
        self, table: str, columns: Sequence[MysqlColumn], rows: pa.Table, key: tuple[str, ...] = ()
    ) -> None:
        """Send rows.

        Args:
            table: Where to.
            columns: Its columns.
            rows: What to send; nothing is sent for none.
            key: To name a row that is refused.

        Raises:
            Unwritable: A value does not fit, or the table did not take every row.
            pymysql.Error: The server refuses; a note tells which row, if it says so.
        """
        if not rows.num_rows:
            return
        send = self._stream if self._streams else self._insert
        names = key or tuple(column.name for column in columns)
        check_count(send(table, columns, rows, names), rows.num_rows)

    def run(self, statement: str, rows: pa.Table, names: Sequence[str], start: int = 0) -> Answer:
        """Execute a statement that writes rows which are known here.

        Args:
            statement: Such as an ``INSERT``.
            rows: What it writes, in this order.
            names: The columns that tell a row.
            start: Which of the rows it begins with.

        Raises:
            pymysql.Error: The server refuses, or warns; a note tells which row, if it says so.
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
        """Rows for one statement after the other, each no longer than the server takes."""
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
                # All of it is ASCII. The last comma is left out.
                yield str(data[offsets[first] : offsets[after] - 1], "ascii")
                first = after
            place += last

    def _check_warnings(
        self, done: Answer, rows: pa.Table, names: Sequence[str], start: int
    ) -> None:
        if not done.warnings:
            return
        warnings = self._session.run("SHOW WARNINGS").rows
        # A note explains the warning after it, or is all there is.
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
        """Add the row to blame, if the server knows it."""
        number = self._diagnosed(condition) or row_of(error)
        if number and start + number <= rows.num_rows:
            error.add_note(f"in the row {show_row(rows, start + number - 1, names)}")

    def _diagnosed(self, condition: int) -> int | None:
        """Which row it was that a condition arose in, from 1. Only MariaDB says so."""
        if not self._facts.is_mariadb or not self._session.open:
            return None
        try:
            self._session.run(_DIAGNOSE.format(condition))
            ((number,),) = self._session.run("SELECT @laminar_row").rows
        except pymysql.Error:
            return None
        return number if isinstance(number, int) else None


def _load_statement(table: str, columns: Sequence[MysqlColumn]) -> str:
    """Bytes come as hexadecimal digits, and become bytes on the way into the table."""
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
