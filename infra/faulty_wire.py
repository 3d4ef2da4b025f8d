"""A TCP proxy that fails on command, to put in front of any service.

The two faults that matter most for exactly-once are `FaultyWire.cut_next_request`, after which
the service has done nothing, and `FaultyWire.swallow_next_reply`, after which it has done all of
it. The client sees the same broken connection both times. Held back instead, a request or a reply
arrives when the test says so: perhaps after its sender is dead.

The proxy is one event loop in one thread: a connection is only ever touched by its own task, so
a reset is a reset and not a race between two closing threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar

from infra.load import Deadline

_LOOPBACK = "127.0.0.1"
_CHUNK = 64 * 1024
_T = TypeVar("_T")

RequestFilter = Callable[[bytes], bool]


class Held:
    """A request or a reply that waits inside the wire until it is released."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nothing is held yet."""
        self._loop = loop
        self._taken = threading.Event()
        self._released = asyncio.Event()

    def wait(self, seconds: float = 60.0) -> None:
        """Return when it is inside the wire.

        Raises:
            AssertionError: It did not come.
        """
        deadline = Deadline(seconds)
        while not self._taken.wait(0.5):
            assert not deadline.is_over, f"nothing came to be held within {deadline}"

    def is_taken_before(self, is_over: Callable[[], bool]) -> bool:
        """Wait until it is inside the wire, or it is too late for that."""
        while not self._taken.wait(0.01):
            if is_over():
                return self._taken.is_set()
        return True

    def release(self) -> None:
        """Let it arrive."""
        self._loop.call_soon_threadsafe(self._released.set)

    async def hold(self) -> None:
        """Called in the wire, with the thing in hand."""
        self._taken.set()
        await self._released.wait()


@dataclass(frozen=True, slots=True)
class _Fault:
    kind: Literal["cut", "swallow", "hold request", "hold reply"]
    matches: RequestFilter
    quiet: float = 0.0
    held: Held | None = None


class _Connection:
    """A client's connection and its twin to the service."""

    def __init__(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self.from_client, self.to_client = client
        self.from_upstream, self.to_upstream = upstream
        self.swallow: _Fault | None = None
        self.hold_reply: Held | None = None

    def reset(self) -> None:
        _reset(self.to_client)
        _reset(self.to_upstream)


class FaultyWire:
    """A loopback port that forwards to a service until it is told to fail.

    Every control may be called from any thread and has taken effect when it returns. A *request*
    is what a client sends in one piece; ``when`` picks the one a fault waits for, by its bytes.

    Attributes:
        host: Loopback address to connect to instead of the service's.
        port: Port to connect to instead of the service's.
        accepted: Connections accepted so far.
        cuts: Connections broken so far, by any fault.
        swallowed: Replies swallowed so far.
    """

    def __init__(self, upstream_host: str, upstream_port: int, *, port: int = 0) -> None:
        """Listen on a loopback port in front of the given service.

        Args:
            upstream_host: Where the service is.
            upstream_port: Where the service is.
            port: One that is reserved (``infra.ports.reserved_port``); a free one otherwise.
        """
        self._upstream = (upstream_host, upstream_port)
        self._delay = 0.0
        self._faults: list[_Fault] = []
        self._held: list[Held] = []
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self.accepted = 0
        self.cuts = 0
        self.swallowed = 0
        self.host = _LOOPBACK
        self.port = port
        self._is_reserved = port != 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="faulty-wire", daemon=True
        )
        self._thread.start()
        self._do(self._listen())

    @property
    def url(self) -> str:
        """The wire as an HTTP endpoint."""
        return f"http://{self.host}:{self.port}"

    @property
    def open_connections(self) -> int:
        """Connections that are open now."""
        return len(self._connections)

    def cut(self) -> int:
        """Break every open connection; return how many. New ones are served."""
        return self._do(self._cut())

    def refuse(self) -> None:
        """Refuse new connections and break the open ones, as if the service were down."""
        self._do(self._refuse())

    def delay(self, seconds: float) -> None:
        """Hold every request back for ``seconds`` on its way to the service."""
        self._delay = seconds

    def cut_next_request(self, when: RequestFilter = lambda _: True) -> None:
        """Break the connection of the next request before the service sees that request."""
        self._do(self._arm(_Fault("cut", when)))

    def swallow_next_reply(
        self, when: RequestFilter = lambda _: True, *, quiet: float = 0.2
    ) -> None:
        """Deliver the next request, wait for the whole reply, and break the connection instead.

        The reply is whole when the service has sent something and then nothing for ``quiet``
        seconds. An HTTP ``100 Continue`` is passed on, as the request is not complete before it.
        """
        self._do(self._arm(_Fault("swallow", when, quiet)))

    def hold_next_request(self, when: RequestFilter = lambda _: True) -> Held:
        """Keep the next request from the service until it is released.

        It is then delivered, even if its sender is gone.
        """
        return self._do(self._arm_to_hold("hold request", when))

    def hold_next_reply(self, when: RequestFilter = lambda _: True) -> Held:
        """Deliver the next request, and keep the reply from the client until it is released."""
        return self._do(self._arm_to_hold("hold reply", when))

    def forward_to(self, host: str, port: int) -> None:
        """Send new connections to another service, such as the same one after a restart."""
        self._upstream = (host, port)

    def wait_until_idle(self, seconds: float = 30.0) -> None:
        """Return when every connection has ended, so that what was in the wire has arrived.

        Raises:
            AssertionError: Somebody stays connected.
        """
        deadline = Deadline(seconds)
        while self._connections:
            assert not deadline.is_over, f"{self.open_connections} connections are left"
            time.sleep(0.01)

    def restore(self) -> None:
        """Forget every fault, release what is held, and accept connections again."""
        self._do(self._restore())

    def close(self) -> None:
        """Break everything and free the port."""
        if self._loop.is_closed():
            return
        self._do(self._shut_down())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        """Return the wire, to be closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _do(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=30)

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(
            self._accept, self.host, self.port, reuse_port=self._is_reserved
        )
        self.port = self._listener.sockets[0].getsockname()[1]

    async def _cut(self) -> int:
        broken = list(self._connections)
        for connection in broken:
            self._break(connection)
        return len(broken)

    async def _refuse(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        await self._cut()

    async def _arm(self, fault: _Fault) -> None:
        self._faults.append(fault)

    async def _arm_to_hold(
        self, kind: Literal["hold request", "hold reply"], when: RequestFilter
    ) -> Held:
        held = Held(self._loop)
        self._held.append(held)
        await self._arm(_Fault(kind, when, held=held))
        return held

    async def _restore(self) -> None:
        self._delay = 0.0
        self._faults.clear()
        while self._held:
            self._held.pop().release()
        if self._listener is None:
            await self._listen()

    async def _shut_down(self) -> None:
        await self._refuse()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = self._loop.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream = await asyncio.open_connection(*self._upstream)
        except OSError:
            _reset(writer)
            return
        connection = _Connection((reader, writer), upstream)
        self._connections.add(connection)
        pumps = [
            asyncio.ensure_future(self._pump_requests(connection)),
            asyncio.ensure_future(self._pump_replies(connection)),
        ]
        try:
            # A connection that is gone need not be a ConnectionError: ENOTCONN is none.
            with contextlib.suppress(OSError):
                await asyncio.gather(*pumps)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self._connections.discard(connection)
            for end in (connection.to_client, connection.to_upstream):
                end.close()
                with contextlib.suppress(ConnectionError):
                    await end.wait_closed()

    async def _pump_requests(self, connection: _Connection) -> None:
        while data := await connection.from_client.read(_CHUNK):
            fault = self._take_fault(data)
            if fault is not None and fault.kind == "cut":
                self._break(connection)
                return
            if fault is not None and fault.kind == "swallow":
                connection.swallow = fault
            if fault is not None and fault.held:
                if fault.kind == "hold request":
                    await fault.held.hold()
                else:
                    connection.hold_reply = fault.held
            if self._delay:
                await asyncio.sleep(self._delay)
            connection.to_upstream.write(data)
            await connection.to_upstream.drain()
        _send_end(connection.to_upstream)

    async def _pump_replies(self, connection: _Connection) -> None:
        replied = False
        while True:
            fault = connection.swallow
            try:
                async with asyncio.timeout(fault.quiet if fault and replied else None):
                    data = await connection.from_upstream.read(_CHUNK)
            except TimeoutError:
                data = b""
            # The fault may have been taken while this task waited for the reply.
            fault = connection.swallow
            if fault is None:
                if not data:
                    _send_end(connection.to_client)
                    return
            elif not data:
                self.swallowed += 1
                self._break(connection)
                return
            elif not data.startswith(b"HTTP/1.1 100 "):
                replied = True
                continue
            if connection.hold_reply and not data.startswith(b"HTTP/1.1 100 "):
                held, connection.hold_reply = connection.hold_reply, None
                await held.hold()
            connection.to_client.write(data)
            await connection.to_client.drain()

    def _take_fault(self, request: bytes) -> _Fault | None:
        for fault in self._faults:
            if fault.matches(request):
                self._faults.remove(fault)
                return fault
        return None

    def _break(self, connection: _Connection) -> None:
        self.cuts += 1
        self._connections.discard(connection)
        connection.reset()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST instead of FIN, so that the client cannot take it for an orderly end."""
    raw = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _send_end(writer: asyncio.StreamWriter) -> None:
    if writer.can_write_eof() and not writer.transport.is_closing():
        writer.write_eof()
