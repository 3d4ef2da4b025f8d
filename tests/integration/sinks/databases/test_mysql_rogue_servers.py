"""Servers that want more than rows: a file of this machine, or the password as it is."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest

from laminar_dagster.clients.mysql.server import Server
from laminar_dagster.core.errors import AuthFailed, LaminarError, ServiceFailed
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.sinks.mysql.sink import MysqlSink
from tests.integration.sinks.databases.mysql_place import MysqlPlace
from tests.integration.sinks.databases.place import PIPELINE
from tests.unit.sinks.staging import SINK, staged

pytestmark = [pytest.mark.slow, pytest.mark.service("mariadb")]

ROWS = pa.table({"k": [1]})

OK = b"\0\0\0\x02\0\0\0"
GREETING = (
    b"\x0a10.11.0-MariaDB\0" + struct.pack("<I", 1) + b"12345678\0"
    + struct.pack("<H", 0xF7FF) + b"\x2d" + struct.pack("<HHB", 2, 0x0008, 21)
    + bytes(10) + b"123456789012\0mysql_native_password\0"
)  # fmt: skip


class RogueServer:
    """Speaks just enough of the protocol to ask for a file, as the answer to the n-th request."""

    def __init__(self, asks_at: int, wish: bytes) -> None:
        self._asks_at = asks_at
        self._wish = wish
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.asked = 0
        self.received: list[bytes] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        # Wakes the one who waits for a client.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with closing(client), suppress(OSError):
                    client.settimeout(5)
                    self._talk(client)

    def _talk(self, client: socket.socket) -> None:
        _send(client, 0, GREETING)
        number = 0
        while request := client.recv(65536):
            sequence = request[3] + 1
            if number >= self._asks_at:
                self.asked += 1
                _send(client, sequence, self._wish)
                # All that comes after it.
                while data := client.recv(65536):
                    self.received.append(data)
                return
            _send(client, sequence, OK)
            number += 1


def _send(client: socket.socket, sequence: int, payload: bytes) -> None:
    client.sendall(struct.pack("<I", len(payload))[:3] + bytes([sequence % 256]) + payload)


@contextmanager
def rogue(asks_at: int, wish: bytes) -> Iterator[RogueServer]:
    server = RogueServer(asks_at, wish)
    try:
        yield server
    finally:
        server.close()


@pytest.mark.parametrize("asks_at", range(4))
def test_a_rogue_server_that_asks_for_a_file_gets_nothing(asks_at: int, tmp_path: Path) -> None:
    """In answer to the log-in, to the first settings, and to the first question."""
    precious = tmp_path / "precious"
    precious.write_text("precious-content")
    with rogue(asks_at, b"\xfb" + str(precious).encode()) as server:
        place = Server("127.0.0.1", "d", "u", port=server.port, password="p", connect_timeout=0.3)
        sink = MysqlSink(SINK, PIPELINE, place, "t")
        for call in (sink.ledger, lambda: sink.commit(EpochNumber(1), staged(ROWS))):
            with pytest.raises(LaminarError) as caught:
                call()
        if asks_at == 3:
            assert isinstance(caught.value, AuthFailed)
            assert "asked for a file of this machine" in str(caught.value)
    assert server.asked == 2
    assert b"precious-content" not in b"".join(server.received)


def test_a_stream_goes_to_the_name_it_was_announced_under_and_to_no_other(
    mariadb_place: MysqlPlace, tmp_path: Path
) -> None:
    """A server that answers our own LOAD DATA with another name, by way of a rewriting wire."""
    precious = tmp_path / "p"
    precious.write_text("precious-content")
    mariadb_place.query("CREATE TABLE t (k bigint)")
    with mariadb_place.sink()._connected() as (session, _):
        statement = f"LOAD DATA LOCAL INFILE '{precious}' INTO TABLE t (k)"
        with pytest.raises(Exception, match="asked for a file of this machine") as caught:
            session.load(statement, [memoryview(b"1\n")])
        assert str(precious) in str(caught.value)
        assert not session.open
    assert mariadb_place.query("SELECT * FROM t") == []


@pytest.mark.parametrize("greeting", [b"", b"\x0a", b"HTTP/1.1 400", b"\x0ax.y\0" + bytes(60)])
def test_what_is_no_mysql_server_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, greeting: bytes
) -> None:
    """Another program at the port goes on being one: exit 75 would have people try for ever."""
    monkeypatch.setattr(f"{__name__}.GREETING", greeting)
    with rogue(0, OK) as server:
        place = Server("127.0.0.1", "d", "u", port=server.port, connect_timeout=0.3)
        with pytest.raises(ServiceFailed, match="no MySQL server answers there"):
            MysqlSink(SINK, PIPELINE, place, "t").ledger()


def test_a_password_that_cannot_be_encrypted_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some ways of logging in without TLS need a package that need not be there."""
    monkeypatch.setattr("pymysql._auth._have_cryptography", False)
    greeting = GREETING.replace(b"mysql_native_password", b"sha256_password")
    monkeypatch.setattr(f"{__name__}.GREETING", greeting)
    with rogue(0, b"\x01-----BEGIN PUBLIC KEY-----") as server:
        place = Server("127.0.0.1", "d", "u", port=server.port, password="my-own-secret")
        with pytest.raises(AuthFailed, match="cryptography"):
            MysqlSink(SINK, PIPELINE, place, "t").ledger()
    assert b"my-own-secret" not in b"".join(server.received)


def test_the_password_is_not_given_in_clear_text() -> None:
    """To a server that nobody has vouched for."""
    switch = b"\xfemysql_clear_password\0"
    with rogue(0, switch) as server:
        place = Server("127.0.0.1", "d", "u", port=server.port, password="my-own-secret")
        with pytest.raises(AuthFailed, match="wants the password in clear text"):
            MysqlSink(SINK, PIPELINE, place, "t").ledger()
    assert b"my-own-secret" not in b"".join(server.received)
