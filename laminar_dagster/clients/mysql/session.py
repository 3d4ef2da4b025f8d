"""One connection to a server: statements, streamed rows, and transactions.

The protocol lets a server answer any statement with a request for a local file. Nothing here opens
one: a ``LOAD DATA LOCAL`` streams rows from memory under one fixed name, and a request for any
other name ends the connection.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pymysql
from pymysql.connections import Connection
from pymysql.constants import CLIENT, COMMAND, CR, SERVER_STATUS
from pymysql.cursors import Cursor
from pymysql.protocol import OKPacketWrapper

# The only file name that is served.
STREAM: Final = "laminar"

_BYTES_PER_PACKET: Final = 2**20
_ROLLBACK_WITHIN: Final = 10.0

Row = tuple[Any, ...]

# The class is generic only in its stubs.
if TYPE_CHECKING:
    _Connection = Connection[Cursor]
else:
    _Connection = Connection


def unverified() -> ssl.SSLContext:
    """A TLS context that encrypts, but verifies no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class FileAsked(pymysql.err.OperationalError):
    """The server asked for a local file."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a statement.

    Attributes:
        warnings: The number of warnings, including notes.
    """

    rows: tuple[Row, ...]
    affected: int
    warnings: int


class Session(_Connection):
    """A connection that commits only with ``COMMIT``."""

    if TYPE_CHECKING:
        # Attributes of PyMySQL that its stubs lack.
        server_status: int

        def _execute_command(self, command: int, sql: str | bytes) -> None: ...
        def _read_ok_packet(self) -> OKPacketWrapper: ...
        def _force_close(self) -> None: ...

        _rfile: Any
        _sock: Any
        _current_timeout: float | None

    def __init__(self, **parameters: Any) -> None:
        """Connect.

        Args:
            parameters: The parameters of ``pymysql.connect``.

        Raises:
            pymysql.Error: The connection failed.
        """
        # Announce to the server that rows can be streamed. PyMySQL's own implementation, which
        # opens the file that the server names, stays switched off.
        super().__init__(
            client_flag=CLIENT.LOCAL_FILES, local_infile=False, autocommit=False, **parameters
        )

    def _create_ssl_ctx(self, sslp: object) -> ssl.SSLContext:
        """Replace PyMySQL's context for "preferred", which loads all authorities, trusting none."""
        return sslp if isinstance(sslp, ssl.SSLContext) else unverified()

    def limit(self, seconds: float) -> None:
        """Set the timeout after which a server that neither sends nor reads counts as lost."""
        self._read_timeout = self._write_timeout = seconds

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction is open, by the server's last response."""
        return self.open and bool(self.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS)

    def run(self, statement: str, values: Sequence[object] = ()) -> Answer:
        """Execute one statement.

        Args:
            statement: With ``%s`` for each value, if there are any.
            values: Values for the placeholders, escaped by the driver.

        Raises:
            pymysql.Error: The server refuses, or the connection is lost.
        """
        with self.cursor() as cursor:
            try:
                cursor.execute(statement, tuple(values) or None)
            except RuntimeError as error:
                raise self._refuse_file("") from error
            return Answer(tuple(cursor.fetchall()), cursor.rowcount, cursor.warning_count)

    def send(self, command: int, request: bytes) -> None:
        """Send a request whose response is read by ``packets.stream``.

        Raises:
            pymysql.Error: The connection is lost.
        """
        self._execute_command(command, request)

    def hang_up(self) -> None:
        """Close without a farewell: a server that still sends would not read it."""
        self._force_close()

    def ask(self, statement: str) -> None:
        """Send a SELECT whose rows are read by ``packets.stream``.

        Raises:
            pymysql.Error: The server refuses, or the connection is lost.
        """
        self._execute_command(COMMAND.COM_QUERY, statement)
        answer: Any = self._read_packet()  # type: ignore[no-untyped-call]
        for _ in range(answer.read_length_encoded_integer() + 1):
            # Skip the column definitions and their end.
            self._read_packet()  # type: ignore[no-untyped-call]

    def receive(self, most: int) -> bytes:
        """Receive at least one byte from the server.

        Raises:
            pymysql.Error: The connection is lost.
        """
        # The driver sets the timeout only when it reads a packet itself.
        if self._current_timeout != self._read_timeout:
            self._sock.settimeout(self._read_timeout)
            self._current_timeout = self._read_timeout
        try:
            found: bytes = self._rfile.read1(most)
        except OSError as error:
            self._force_close()
            raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, f"{error}") from None
        if not found:
            self._force_close()
            raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, "the server hung up")
        return found

    def load(self, statement: str, rows: Iterable[memoryview]) -> Answer:
        """Execute a ``LOAD DATA LOCAL INFILE 'laminar'``, and stream rows to it.

        Raises:
            FileAsked: The server asked for another file.
            pymysql.Error: The server refuses, or the connection is lost.
        """
        self._execute_command(COMMAND.COM_QUERY, statement)
        wish: Any = self._read_packet()  # type: ignore[no-untyped-call]
        if not wish.is_load_local_packet():
            self._force_close()
            raise pymysql.err.OperationalError(
                CR.CR_COMMANDS_OUT_OF_SYNC, "the server does not ask for the rows"
            )
        name = wish.get_all_data()[1:].decode("utf-8", "replace")
        if name != STREAM:
            raise self._refuse_file(name)
        try:
            self._stream(rows)
        except pymysql.Error:
            raise
        except BaseException:
            # Finish the statement: only then can the transaction be rolled back.
            with suppress(pymysql.Error):
                self._finish_stream()
            raise
        done = self._finish_stream()
        return Answer((), done.affected_rows, done.warning_count)

    def _stream(self, rows: Iterable[memoryview]) -> None:
        for part in rows:
            for start in range(0, len(part), _BYTES_PER_PACKET):
                self.write_packet(part[start : start + _BYTES_PER_PACKET])

    def _finish_stream(self) -> OKPacketWrapper:
        self.write_packet(b"")
        return self._read_ok_packet()

    def _refuse_file(self, name: str) -> FileAsked:
        self._force_close()
        return FileAsked(
            CR.CR_LOAD_DATA_LOCAL_INFILE_REJECTED,
            f"the server asked for a file of this machine, {name!r}, and was given nothing",
        )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction; it is rolled back unless the block commits it."""
        self.run("START TRANSACTION READ WRITE")
        try:
            yield
        finally:
            # Do not leave it to closing: the server would hold the locks for a while.
            if self.is_in_transaction:
                self.limit(_ROLLBACK_WITHIN)
                with suppress(pymysql.Error):
                    self.run("ROLLBACK")
