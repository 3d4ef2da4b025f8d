"""The proxy's own promises, against a tiny HTTP server that remembers what reached it."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from infra.load import Deadline
from tests.services.faulty_wire import FaultyWire, WireFactory

BODY = b"x" * 200_000


class Recorder(ThreadingHTTPServer):
    """Answers each request and records its path."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[str] = []

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: broken connections are what these tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Recorder

    def do_GET(self) -> None:
        self.server.seen.append(self.path)
        body = BODY if self.path == "/large" else b"done"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.path == "/trickle":
            for byte in body:
                time.sleep(0.05)
                self.wfile.write(bytes([byte]))
        else:
            self.wfile.write(body)

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append(f"{self.path}:{len(body)}")
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Recorder]:
    with Recorder() as recorder:
        thread = threading.Thread(target=recorder.serve_forever, args=(0.01,))
        thread.start()
        yield recorder
        recorder.shutdown()
        thread.join()


@pytest.fixture
def wire(server: Recorder, faulty_wire: WireFactory) -> FaultyWire:
    return faulty_wire("127.0.0.1", server.server_port)


@pytest.fixture
def client(wire: FaultyWire) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(wire.host, wire.port, timeout=10)
    yield connection
    connection.close()


def get(client: http.client.HTTPConnection, path: str) -> bytes:
    client.request("GET", path)
    return client.getresponse().read()


def test_it_forwards_and_counts(client: http.client.HTTPConnection, wire: FaultyWire) -> None:
    assert get(client, "/a") == b"done"
    assert get(client, "/large") == BODY
    assert (wire.accepted, wire.open_connections, wire.cuts, wire.swallowed) == (1, 1, 0, 0)


def test_a_swallowed_reply_reached_the_service_and_not_the_client(
    client: http.client.HTTPConnection, wire: FaultyWire, server: Recorder
) -> None:
    wire.swallow_next_reply()
    with pytest.raises(ConnectionResetError):
        get(client, "/lost")
    assert server.seen == ["/lost"]
    assert (wire.swallowed, wire.cuts, wire.open_connections) == (1, 1, 0)
    client.close()
    assert get(client, "/next") == b"done"


@pytest.mark.parametrize("path", ["/large", "/trickle"])
def test_swallowing_waits_for_the_whole_reply(
    client: http.client.HTTPConnection, wire: FaultyWire, server: Recorder, path: str
) -> None:
    wire.swallow_next_reply()
    with pytest.raises(ConnectionResetError):
        get(client, path)
    assert server.seen == [path]


def test_a_request_is_cut_before_the_service_sees_it(
    client: http.client.HTTPConnection, wire: FaultyWire, server: Recorder
) -> None:
    assert get(client, "/before") == b"done"
    wire.cut_next_request()
    with pytest.raises((ConnectionError, http.client.BadStatusLine)):
        get(client, "/never")
    client.close()
    assert get(client, "/after") == b"done"
    assert server.seen == ["/before", "/after"]
    assert wire.cuts == 1


def test_a_fault_waits_for_the_request_it_was_armed_for(
    client: http.client.HTTPConnection, wire: FaultyWire, server: Recorder
) -> None:
    wire.swallow_next_reply(when=lambda request: request.startswith(b"GET /commit "))
    assert get(client, "/read") == b"done"
    with pytest.raises(ConnectionResetError):
        get(client, "/commit")
    assert server.seen == ["/read", "/commit"]


def test_a_continue_is_not_taken_for_the_reply(wire: FaultyWire, server: Recorder) -> None:
    wire.swallow_next_reply(quiet=0.1)
    with socket.create_connection((wire.host, wire.port), timeout=10) as raw:
        raw.sendall(b"PUT /o HTTP/1.1\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert raw.recv(1000).startswith(b"HTTP/1.1 100 Continue")
        time.sleep(0.3)
        raw.sendall(b"abc")
        with pytest.raises(ConnectionResetError):
            raw.recv(1000)
    assert server.seen == ["/o:3"]


def test_cutting_breaks_every_open_connection(wire: FaultyWire) -> None:
    clients = [http.client.HTTPConnection(wire.host, wire.port, timeout=10) for _ in range(3)]
    for each in clients:
        assert get(each, "/a") == b"done"
    assert wire.cut() == 3
    for each in clients:
        with pytest.raises((ConnectionError, http.client.BadStatusLine)):
            get(each, "/b")
        each.close()
    assert wire.open_connections == 0


def test_refusing_until_restored(client: http.client.HTTPConnection, wire: FaultyWire) -> None:
    wire.refuse()
    with pytest.raises(ConnectionRefusedError):
        get(client, "/down")
    client.close()
    wire.restore()
    assert get(client, "/up") == b"done"


def test_delay(client: http.client.HTTPConnection, wire: FaultyWire) -> None:
    wire.delay(0.3)
    started = time.monotonic()
    assert get(client, "/slow") == b"done"
    assert time.monotonic() - started >= 0.3
    wire.delay(0)
    assert get(client, "/fast") == b"done"


def test_a_service_that_is_down_breaks_the_connection(faulty_wire: WireFactory) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        wire = faulty_wire("127.0.0.1", taken.getsockname()[1])
        client = http.client.HTTPConnection(wire.host, wire.port, timeout=10)
        with pytest.raises((ConnectionError, http.client.BadStatusLine)):
            get(client, "/a")
        client.close()


def test_an_orderly_end_passes_through(wire: FaultyWire) -> None:
    with socket.create_connection((wire.host, wire.port), timeout=10) as raw:
        raw.sendall(b"GET /a HTTP/1.1\r\nConnection: close\r\n\r\n")
        reply = b""
        while data := raw.recv(1000):
            reply += data
    assert reply.endswith(b"done")


def test_closing_twice_is_harmless_and_frees_the_port() -> None:
    wire = FaultyWire("127.0.0.1", 1)
    wire.close()
    wire.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((wire.host, wire.port), timeout=5)


def test_a_held_request_arrives_when_it_is_released(
    server: Recorder, wire: FaultyWire, client: http.client.HTTPConnection
) -> None:
    held = wire.hold_next_request(lambda request: b"/first" in request)
    client.request("GET", "/first")
    held.wait()
    other = http.client.HTTPConnection(wire.host, wire.port, timeout=10)
    other.request("GET", "/second")
    assert other.getresponse().read() == b"done"
    other.close()
    assert server.seen == ["/second"]
    held.release()
    assert client.getresponse().read() == b"done"
    assert server.seen == ["/second", "/first"]


def test_a_held_request_arrives_after_its_sender_is_gone(
    server: Recorder, wire: FaultyWire, client: http.client.HTTPConnection
) -> None:
    held = wire.hold_next_request()
    client.request("GET", "/")
    held.wait()
    client.close()
    assert server.seen == []
    held.release()
    deadline = Deadline(10)
    while not server.seen:
        assert not deadline.is_over
        time.sleep(0.01)


def test_a_held_reply_is_that_of_a_request_that_was_served(
    server: Recorder, wire: FaultyWire, client: http.client.HTTPConnection
) -> None:
    held = wire.hold_next_reply()
    client.request("GET", "/")
    held.wait()
    assert server.seen == ["/"]
    wire.restore()
    assert client.getresponse().read() == b"done"


def test_a_service_that_has_moved_is_found(
    wire: FaultyWire, client: http.client.HTTPConnection
) -> None:
    with Recorder() as moved:
        thread = threading.Thread(target=moved.serve_forever, args=(0.01,))
        thread.start()
        wire.forward_to("127.0.0.1", moved.server_port)
        client.request("GET", "/")
        assert client.getresponse().read() == b"done"
        assert moved.seen == ["/"]
        moved.shutdown()
        thread.join()
