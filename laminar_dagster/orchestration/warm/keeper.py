"""The keeper: holds the queue of a worker, starts the worker, and watches it.

``python -m laminar_dagster.orchestration.warm.keeper``, started by a launcher, which writes its
setup to standard input. It ends when no launcher is connected and no run is left, or when there
was no run for long. It has one thread, and imports Dagster only to report lost runs.

A run is added to the record on disk before it is accepted, and removed after its end is in
Dagster's event log. So the record of a dead keeper shows which runs have to be reported.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, assert_never

import msgspec

from laminar_dagster.orchestration.warm.folder import KeeperFolder, Record, hold
from laminar_dagster.orchestration.warm.protocol import (
    MAX_LINE_BYTES,
    Accepted,
    Ask,
    Cancel,
    Finished,
    Interrupting,
    KeeperSetup,
    Refused,
    Reply,
    Request,
    Running,
    Setup,
    Stale,
    Submit,
    Unknown,
    Waiting,
    Withdrawn,
    line,
    requests,
    setups,
)
from laminar_dagster.orchestration.warm.worker_process import WorkerGone, WorkerProcess

_PREDECESSOR_SECONDS: Final = 10.0
# How long to stay without a connection: a launcher that restarts, or has only just started the
# keeper, connects within this time.
_ALONE_SECONDS: Final = 3.0


@dataclass(slots=True, eq=False)
class _Entry:
    """A run in the queue. Its launcher gets the reply when a worker is ready, or cannot start."""

    run_id: str
    reply: "asyncio.Future[Accepted | Refused | Withdrawn]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def answer(self, reply: Accepted | Refused | Withdrawn) -> None:
        if not self.reply.done():
            self.reply.set_result(reply)

    @property
    def is_accepted(self) -> bool:
        return self.reply.done()


class Keeper:
    """Queues runs, and has the worker execute them one after the other."""

    def __init__(self, setup: KeeperSetup) -> None:
        """Serve as ``setup`` says."""
        self._setup = setup
        self._folder = KeeperFolder(Path(setup.folder))
        self._entries: deque[_Entry] = deque()
        self._arrival = asyncio.Event()
        self._current: _Entry | None = None
        self._worker: WorkerProcess | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()

    async def serve(self) -> None:
        """Serve until it is stopped, unused, or idle for too long."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        # A socket file left there is a dead keeper's, as this process holds the keeper's lock.
        Path(self._setup.socket).unlink(missing_ok=True)
        server = await asyncio.start_unix_server(
            self._connect, self._setup.socket, limit=MAX_LINE_BYTES
        )
        self._write_record()
        tasks = [
            asyncio.create_task(work)
            for work in (self._run_all(), self._leave(), self._stop.wait())
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await self._close(server, tasks)

    async def _close(self, server: asyncio.Server, tasks: "Sequence[asyncio.Task[object]]") -> None:
        runs = self._runs()
        server.close()
        Path(self._setup.socket).unlink(missing_ok=True)
        for task in (*tasks, *self._connections):
            task.cancel()
        await asyncio.gather(*tasks, *self._connections, return_exceptions=True)
        if self._worker is not None:
            await self._worker.end()
        if runs:
            await self._report(runs, f"The keeper of its worker (pid {os.getpid()}) was stopped.")
        self._folder.forget()

    # --- launchers ------------------------------------------------------------------------------

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with contextlib.suppress(OSError, ValueError, msgspec.DecodeError):
                while (text := await reader.readline()).endswith(b"\n"):
                    writer.write(line(await self._answer(requests.decode(text))))
                    await writer.drain()
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(self, request: Request) -> Reply:
        match request:
            case Submit(run_id=run_id):
                return await self._submit(run_id)
            case Cancel(run_id=run_id):
                return self._cancel(run_id)
            case Ask(run_id=run_id):
                return self._ask(run_id)
        assert_never(request)

    async def _submit(self, run_id: str) -> Accepted | Refused | Withdrawn:
        if self._stop.is_set():
            # Stopping: the launcher sees the connection end, and that the record lacks its run.
            raise ConnectionAbortedError
        if run_id in self._runs():
            return Refused(reason=f"the run {run_id} is here already")
        ahead = len(self._runs())
        entry = _Entry(run_id)
        self._entries.append(entry)
        self._write_record()
        self._arrival.set()
        if self._worker is not None and not self._worker.has_ended:
            entry.answer(Accepted(worker_pid=self._worker.pid, ahead=ahead))
        # Shielded: if the launcher disconnects before the reply, the run stays in the queue.
        return await asyncio.shield(entry.reply)

    def _cancel(self, run_id: str) -> Withdrawn | Interrupting | Unknown:
        for entry in self._entries:
            if entry.run_id == run_id:
                self._entries.remove(entry)
                self._write_record()
                entry.answer(Withdrawn())
                return Withdrawn()
        if (
            self._current is not None
            and self._current.run_id == run_id
            and self._worker is not None
        ):
            self._worker.interrupt()
            return Interrupting(worker_pid=self._worker.pid)
        return Unknown()

    def _ask(self, run_id: str) -> Waiting | Running | Unknown:
        runs = self._runs()
        if run_id not in runs:
            return Unknown()
        if self._current is not None and run_id == runs[0] and self._worker is not None:
            return Running(worker_pid=self._worker.pid)
        return Waiting(ahead=runs.index(run_id))

    # --- runs -----------------------------------------------------------------------------------

    async def _run_all(self) -> None:
        while True:
            await self._arrival.wait()
            if not self._entries:
                self._arrival.clear()
                continue
            try:
                worker = await self._ready_worker()
            except WorkerGone as gone:
                await self._refuse_all(f"its worker could not be started: {gone}")
                continue
            # It may have been cancelled while the worker started.
            if self._entries:
                await self._run(worker, self._entries.popleft())

    async def _run(self, worker: WorkerProcess, entry: _Entry) -> None:
        self._current = entry
        try:
            outcome = await worker.execute(entry.run_id)
        except WorkerGone as gone:
            self._worker = None
            what = f"The worker of this run (pid {worker.pid}) is gone: {gone}."
            await self._report([entry.run_id], f"{what} Its log: {self._folder.log}")
        else:
            await self._after(worker, entry, outcome)
        self._current = None
        self._write_record()
        self._folder.trim_log()

    async def _after(self, worker: WorkerProcess, entry: _Entry, outcome: Finished | Stale) -> None:
        match outcome:
            case Finished(reusable=reusable):
                # Not after an interrupt: a thread or a Spark job of that run may still go on.
                is_spent = worker.was_interrupted or not reusable
            case Stale(path=path):
                _say(f"{path} changed: a fresh worker takes the run {entry.run_id}")
                is_spent = True
                self._entries.appendleft(entry)
                self._arrival.set()
            case _:
                assert_never(outcome)
        if is_spent:
            self._current = None
            self._worker = None
            self._write_record()
            await worker.end()

    async def _ready_worker(self) -> WorkerProcess:
        if self._worker is not None and self._worker.has_ended:
            # It died between two runs; kill child processes that it may have left.
            await self._worker.kill()
            self._worker = None
        if self._worker is None:
            setup = Setup(
                instance=self._setup.instance,
                lock=str(self._folder.worker_lock),
                code_folder=self._setup.code_folder,
                ignored=self._setup.ignored,
                terminate_seconds=self._setup.terminate_seconds,
            )
            self._worker = await WorkerProcess.start(setup, self._setup.start_seconds)
            self._write_record()
        for ahead, entry in enumerate(self._entries):
            entry.answer(Accepted(worker_pid=self._worker.pid, ahead=ahead))
        return self._worker

    async def _refuse_all(self, reason: str) -> None:
        """Report accepted runs as lost, and refuse the others, which are then launched cold."""
        _say(reason)
        accepted = [entry.run_id for entry in self._entries if entry.is_accepted]
        if accepted:
            await self._report(accepted, f"The run is lost: {reason}. Its log: {self._folder.log}")
        refused = list(self._entries)
        self._entries.clear()
        self._write_record()
        for entry in refused:
            entry.answer(Refused(reason=f"{reason}; see {self._folder.log}"))

    async def _report(self, run_ids: Sequence[str], message: str) -> None:
        _say(message)
        try:
            await asyncio.to_thread(_report_lost, self._setup.instance, run_ids, message)
        except Exception as error:
            _say(f"could not report {', '.join(run_ids)}: {error!r}")

    # --- the record, and the end ----------------------------------------------------------------

    def _runs(self) -> tuple[str, ...]:
        current = () if self._current is None else (self._current.run_id,)
        return (*current, *(entry.run_id for entry in self._entries))

    def _write_record(self) -> None:
        self._folder.write(
            Record(
                keeper_pid=os.getpid(),
                worker_pid=0 if self._worker is None else self._worker.pid,
                socket=self._setup.socket,
                runs=self._runs(),
            )
        )

    async def _leave(self) -> None:
        """Stop when no launcher is connected and no run is left, or after a long idle time."""
        loop = asyncio.get_running_loop()
        busy = wanted = loop.time()
        while True:
            now = loop.time()
            if self._runs():
                busy = wanted = now
            elif self._connections:
                wanted = now
            if now - wanted >= _ALONE_SECONDS or now - busy >= self._setup.idle_seconds:
                self._stop.set()
            await asyncio.sleep(min(0.5, self._setup.idle_seconds))


def _report_lost(instance: str, run_ids: Sequence[str], message: str) -> None:
    # Imported here: Dagster takes seconds and memory to import, and is needed only in this case.
    from laminar_dagster.orchestration.warm.lost_runs import report_lost

    report_lost(instance, run_ids, message)


def _say(text: str) -> None:
    sys.stderr.write(f"keeper {os.getpid()}: {text}\n")
    sys.stderr.flush()


def main() -> None:
    """Run a keeper until it ends."""
    setup = setups.decode(sys.stdin.buffer.readline(MAX_LINE_BYTES))
    folder = KeeperFolder(Path(setup.folder))
    with hold(folder.keeper_lock, _PREDECESSOR_SECONDS):

        async def serve() -> None:
            await Keeper(setup).serve()

        asyncio.run(serve())


if __name__ == "__main__":
    main()
