"""A worker from the keeper's side: a child process with a socket."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from typing import Final

import msgspec

from laminar_dagster.orchestration.warm.protocol import (
    MAX_LINE_BYTES,
    Execute,
    Finished,
    Message,
    News,
    Ready,
    Setup,
    Stale,
    line,
    news,
)

_MODULE: Final = "laminar_dagster.orchestration.warm.worker"


class WorkerGone(Exception):
    """The worker ended, or was killed, before it reported the run's end."""


class WorkerProcess:
    """One worker, in a process session of its own, so that its children can be killed with it."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        terminate_seconds: float,
    ) -> None:
        """Wrap a started process; ``start`` is the way to make one."""
        self._process = process
        self._reader = reader
        self._writer = writer
        self._terminate_seconds = terminate_seconds
        self._exit = asyncio.create_task(asyncio.to_thread(process.wait))
        self._killer: asyncio.TimerHandle | None = None
        self.was_interrupted = False
        self.did_not_react = False

    @classmethod
    async def start(cls, setup: Setup, seconds: float) -> "WorkerProcess":
        """Start a worker, and wait until it is ready.

        Raises:
            WorkerGone: It did not get ready; says why.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = subprocess.Popen(
                    [sys.executable, "-m", _MODULE, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise WorkerGone(str(error)) from error
        reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE_BYTES)
        worker = cls(process, reader, writer, setup.terminate_seconds)
        try:
            async with asyncio.timeout(seconds):
                await worker._say(setup)
                if not isinstance(await worker._hear(), Ready):
                    await worker.kill()
                    raise WorkerGone("it spoke out of turn")
        except TimeoutError:
            await worker.kill()
            raise WorkerGone(f"it was not ready after {seconds:g} s") from None
        return worker

    @property
    def pid(self) -> int:
        """Its process number."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._exit.done()

    async def execute(self, run_id: str) -> Finished | Stale:
        """Execute a run.

        Raises:
            WorkerGone: The process ended in the middle of it; says how.
        """
        await self._say(Execute(run_id=run_id))
        outcome = await self._hear()
        if isinstance(outcome, Ready):
            await self.kill()
            raise WorkerGone("it spoke out of turn")
        return outcome

    def interrupt(self) -> None:
        """Interrupt the run at hand; kill the worker if it does not react."""
        if not self.was_interrupted and not self._exit.done():
            self.was_interrupted = True
            os.kill(self.pid, signal.SIGINT)
            loop = asyncio.get_running_loop()
            self._killer = loop.call_later(self._terminate_seconds, self._give_up)

    async def end(self) -> None:
        """Let the worker end; kill it, and its child processes, if it takes too long."""
        self._writer.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._terminate_seconds):
                await asyncio.shield(self._exit)
        await self.kill()

    async def kill(self) -> None:
        """Kill the worker and its child processes."""
        if self._killer is not None:
            self._killer.cancel()
        self._kill_group()
        await asyncio.shield(self._exit)
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def _give_up(self) -> None:
        self.did_not_react = True
        self._kill_group()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def _say(self, message: Message) -> None:
        with contextlib.suppress(OSError):
            self._writer.write(line(message))
            await self._writer.drain()

    async def _hear(self) -> News:
        """The next message of the worker.

        Raises:
            WorkerGone: The worker has ended; says how.
        """
        hearing = asyncio.create_task(self._reader.readline())
        await asyncio.wait({hearing, self._exit}, return_when=asyncio.FIRST_COMPLETED)
        if not hearing.done():
            # The worker exited: wait for a last message, but not for the end of the socket, which
            # a child of the worker may hold open.
            await asyncio.wait({hearing}, timeout=0.1)
        hearing.cancel()
        text = b""
        with contextlib.suppress(asyncio.CancelledError, OSError, ValueError):
            text = await hearing
        if text.endswith(b"\n"):
            with contextlib.suppress(msgspec.DecodeError):
                return news.decode(text)
        if not text and not self._exit.done():
            # The socket is closed: the process is about to be gone.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._terminate_seconds):
                    await asyncio.shield(self._exit)
        await self.kill()
        raise WorkerGone(self._how_it_ended())

    def _how_it_ended(self) -> str:
        if self.did_not_react:
            return f"it did not react to the interrupt within {self._terminate_seconds:g} s"
        code = self._process.returncode
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            hint = "; was it out of memory?" if -code == signal.SIGKILL else ""
            return f"it was killed by signal {-code} ({name}){hint}"
        return f"it exited with code {code}"
