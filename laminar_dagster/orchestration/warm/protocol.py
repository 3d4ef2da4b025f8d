"""The messages between launcher, keeper and worker: one JSON object a line.

Launcher to keeper, each answered by one reply, in order::

    Submit(run_id)  → Accepted | Refused     after Refused the keeper does not have the run
                      | Withdrawn            it was cancelled before there was a worker
    Cancel(run_id)  → Withdrawn | Interrupting | Unknown
    Ask(run_id)     → Waiting | Running | Unknown

Keeper to worker::

    Setup           → Ready                  once
    Execute(run_id) → Finished | Stale       after Stale the run is untouched; the worker ends

The end of a connection is a message too: to the keeper, that a launcher is gone; to a launcher,
that the keeper is gone; to a worker, that it should end.
"""

import socket
from typing import Final, TypeAlias, TypeVar

import msgspec

MAX_LINE_BYTES: Final = 1024 * 1024


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag=True):
    """One line of the protocol."""


# --- launcher to keeper -------------------------------------------------------------------------


class Submit(Message, frozen=True):
    """Execute this run after those that wait already."""

    run_id: str


class Cancel(Message, frozen=True):
    """Do not start this run, or interrupt it."""

    run_id: str


class Ask(Message, frozen=True):
    """Ask for the state of this run."""

    run_id: str


# --- keeper to launcher -------------------------------------------------------------------------


class Accepted(Message, frozen=True):
    """The keeper has the run, and a worker to execute it."""

    worker_pid: int
    ahead: int


class Refused(Message, frozen=True):
    """The keeper does not have the run, and why."""

    reason: str


class Withdrawn(Message, frozen=True):
    """The run waited and will not start. The launcher that cancelled it reports that to Dagster."""


class Interrupting(Message, frozen=True):
    """The run was interrupted, and is killed if it does not react."""

    worker_pid: int


class Waiting(Message, frozen=True):
    """The run waits for its turn."""

    ahead: int


class Running(Message, frozen=True):
    """The run executes."""

    worker_pid: int


class Unknown(Message, frozen=True):
    """The keeper does not have this run: it is over, or was never here."""


# --- keeper and worker --------------------------------------------------------------------------


class KeeperSetup(Message, frozen=True):
    """The first line that a keeper reads, on its standard input.

    Attributes:
        instance: The Dagster instance, as text.
        folder: The keeper's own folder.
        socket: Where to listen.
        code_folder: What to watch for changed code.
        ignored: Folders below it that hold no code.
        idle_seconds: End after so long without a run.
        start_seconds: How long a worker may take to start.
        terminate_seconds: How long a run may take to react to an interrupt.
    """

    instance: str
    folder: str
    socket: str
    code_folder: str
    ignored: tuple[str, ...]
    idle_seconds: float
    start_seconds: float
    terminate_seconds: float


class Setup(Message, frozen=True):
    """The first line that a worker reads."""

    instance: str
    lock: str
    code_folder: str
    ignored: tuple[str, ...]
    terminate_seconds: float


class Execute(Message, frozen=True):
    """Execute this run now."""

    run_id: str


class Ready(Message, frozen=True):
    """The worker can execute runs."""


class Finished(Message, frozen=True):
    """The run is over; its outcome is in Dagster's event log.

    Attributes:
        reusable: Whether the worker may execute another.
    """

    reusable: bool


class Stale(Message, frozen=True):
    """The code changed since it was loaded, so the worker did not execute the run."""

    path: str


Request: TypeAlias = Submit | Cancel | Ask
Reply: TypeAlias = Accepted | Refused | Withdrawn | Interrupting | Waiting | Running | Unknown
Order: TypeAlias = Setup | Execute
News: TypeAlias = Ready | Finished | Stale

MessageT = TypeVar("MessageT")

requests: Final[msgspec.json.Decoder[Request]] = msgspec.json.Decoder(Request)
replies: Final[msgspec.json.Decoder[Reply]] = msgspec.json.Decoder(Reply)
orders: Final[msgspec.json.Decoder[Order]] = msgspec.json.Decoder(Order)
news: Final[msgspec.json.Decoder[News]] = msgspec.json.Decoder(News)
setups: Final[msgspec.json.Decoder[KeeperSetup]] = msgspec.json.Decoder(KeeperSetup)


def line(message: Message) -> bytes:
    """A message as a line."""
    return msgspec.json.encode(message) + b"\n"


class Lines:
    """Messages from a blocking socket."""

    def __init__(self, source: socket.socket) -> None:
        """Read from ``source``, which stays the caller's to close."""
        self._file = source.makefile("rb")

    def next(self, decoder: msgspec.json.Decoder[MessageT]) -> MessageT | None:
        """The next message, or None at the end.

        Raises:
            msgspec.DecodeError: It is no such message.
            OSError: The connection broke.
        """
        text = self._file.readline(MAX_LINE_BYTES)
        # A line without an end was cut off when its writer died.
        return decoder.decode(text) if text.endswith(b"\n") else None

    def close(self) -> None:
        """Drop what was read ahead."""
        self._file.close()
