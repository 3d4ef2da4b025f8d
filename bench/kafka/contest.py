"""The contestants at work: each has a process of its own, which does the same job again and again.

The first job is done by a cold process: from its start to its answer is what a user waits for who
starts it anew. The last one of each turn is done by a warm engine: its own time from submission to
the last commit is the figure. Every job must give the rows that were worked out beforehand.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from bench.kafka.click_topic import AVRO_SCHEMA, ClickTopic, comparable
from bench.kafka.contestants.protocol import READY, Job, Row
from bench.kafka.peers import Program
from bench.kafka.processor_time import seconds_of
from bench.kafka.venue import Venue


@dataclass(frozen=True, slots=True, eq=False)
class Entrant:
    """Who takes part, and how.

    Attributes:
        name: Short, for figures.
        title: For people.
        program: Makes sure that it is installed.
        settings: Its own.
        jobs: How often a process does the job in its first turn: engines on a JVM get faster for a
            while.
        jobs_again: How often in a later turn. While the others have theirs, it has waited long
            enough to lose what it keeps ready, such as Spark its Python workers.
    """

    name: str
    title: str
    program: Callable[[], Program]
    settings: Mapping[str, str] = field(default_factory=dict)
    jobs: int = 5
    jobs_again: int = 2

    @property
    def is_own(self) -> bool:
        """Whether it is this project."""
        return self.name in ("portable", "fast")


@dataclass(frozen=True, slots=True)
class Turn:
    """What was measured, for so many records.

    Attributes:
        seconds: Of the last job, from submission to the last commit.
        processor: Processor seconds of the whole process tree meanwhile.
        broker: Processor seconds of the broker meanwhile.
        whole: From the start of the process to the end of its first job; the same in every turn.
    """

    records: int
    seconds: float
    processor: float
    broker: float
    whole: float

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.seconds

    @property
    def processor_per_million(self) -> float:
        """Processor seconds for a million records."""
        return self.processor / self.records * 1e6

    @property
    def broker_per_million(self) -> float:
        """The broker's."""
        return self.broker / self.records * 1e6


class ContestantFailed(RuntimeError):
    """It ended, or its rows are wrong: there is no figure."""


@dataclass
class Arena(AbstractContextManager["Arena"]):
    """One contest. A process is started for an entrant's first turn, and ended with the block.

    Attributes:
        venue: Where.
        topic: What to read.
        expected: What has to come of it.
        task: See ``Job``.
        cores: How many an entrant may use.
        is_warm: Whether engines are warmed up; otherwise a turn is one job.
    """

    venue: Venue
    topic: ClickTopic
    expected: Sequence[Row]
    task: str
    cores: int
    is_warm: bool
    _stack: ExitStack = field(default_factory=ExitStack, repr=False)
    _running: dict[Entrant, tuple[Channel, float]] = field(default_factory=dict, repr=False)
    _stumbled: set[Entrant] = field(default_factory=set, repr=False)

    def __enter__(self) -> Self:
        """Return it; nothing is started yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """End every process."""
        self._stack.close()

    def take_turn(self, entrant: Entrant) -> Turn:
        """Let an entrant do its jobs; the last one counts.

        A peer that stumbles is started once more, as somebody who uses it would do.

        Raises:
            ContestantFailed: It ended too soon, or gave other rows.
            ServiceUnavailable: It cannot be installed.
        """
        try:
            return self._turn(entrant)
        except ContestantFailed:
            if entrant.is_own or entrant in self._stumbled:
                raise
            self._stumbled.add(entrant)
            self._running.pop(entrant, None)
            return self._turn(entrant)

    def _turn(self, entrant: Entrant) -> Turn:
        if entrant in self._running:
            channel, whole = self._running[entrant]
            jobs = entrant.jobs_again if self.is_warm else 1
        else:
            program = entrant.program()
            begun = time.perf_counter()
            folder = self.venue.surroundings.folder()
            channel = self._stack.enter_context(running(entrant, program, folder, self.cores))
            turn = self._job(entrant, channel, 0)
            whole = time.perf_counter() - begun
            self._running[entrant] = channel, whole
            jobs = entrant.jobs - 1
            if not jobs or not self.is_warm:
                return replace(turn, whole=whole)
        for number in range(jobs):
            turn = self._job(entrant, channel, number)
        return replace(turn, whole=whole)

    def _job(self, entrant: Entrant, channel: Channel, number: int) -> Turn:
        process, venue = channel.process, self.venue
        job = _job(entrant, venue, self.topic, self.task, self.cores)
        before, broker_before = seconds_of(process.pid), venue.broker_seconds()
        channel.send(job)
        seconds = float(channel.receive())
        turn = Turn(
            records=self.topic.total,
            seconds=seconds,
            processor=seconds_of(process.pid) - before,
            broker=venue.broker_seconds() - broker_before,
            whole=0.0,
        )
        require_same(entrant, number, channel.receive(), self.expected)
        return turn


@contextmanager
def running(entrant: Entrant, program: Program, folder: Path, cores: int) -> Iterator[Channel]:
    """A process that waits for jobs, and is ended with the block.

    Raises:
        ContestantFailed: It ended too soon.
    """
    channel = _start(entrant, program, folder, cores)
    try:
        channel.expect(READY)
        yield channel
    finally:
        _end(channel.process)


def _start(entrant: Entrant, program: Program, folder: Path, cores: int) -> Channel:
    log = folder / "log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            program.command(cores),
            env=program.variables(),
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            # A group of its own, so that all of it can be ended.
            start_new_session=True,
        )
    return Channel(entrant, process, log)


def _job(entrant: Entrant, venue: Venue, topic: ClickTopic, task: str, cores: int) -> Job:
    return Job(
        task=task,
        servers=venue.servers,
        topic=topic.name,
        ends=topic.ends,
        format=topic.format,
        registry=venue.registry_url() if topic.format == "avro" else "",
        schema=AVRO_SCHEMA,
        folder=str(venue.surroundings.folder()),
        cores=cores,
        settings=dict(entrant.settings),
    )


def require_same(entrant: Entrant, number: int, found: Any, expected: Sequence[Row]) -> None:
    """Refuse rows that are not those that were worked out.

    Raises:
        ContestantFailed: Names the first that differs.
    """
    rows = comparable([tuple(row) for row in found]) if len(expected) > 1 else [*map(tuple, found)]
    if rows == list(expected):
        return
    wrong = next(
        (pair for pair in zip(rows, expected, strict=False) if pair[0] != pair[1]), ("", "")
    )
    raise ContestantFailed(
        f"{entrant.title}: job {number + 1} gave {len(rows)} rows instead of {len(expected)}; "
        f"the first that differs: {wrong[0]} instead of {wrong[1]}"
    )


@dataclass(frozen=True, slots=True)
class Channel:
    """The way to a contestant and back.

    Attributes:
        log: What it wrote to standard error.
    """

    entrant: Entrant
    process: subprocess.Popen[str]
    log: Path

    def send(self, job: Job) -> None:
        """Tell it a job."""
        stdin = self.process.stdin
        if stdin is None:
            raise ValueError("no standard input")
        stdin.write(job.as_line())
        stdin.flush()

    def receive(self) -> Any:
        """Its next answer.

        Raises:
            ContestantFailed: It ended instead.
        """
        stdout = self.process.stdout
        # A line that never comes would keep everybody waiting.
        limit = threading.Timer(_LONGEST, _kill, [self.process])
        limit.start()
        line = stdout.readline() if stdout else ""
        limit.cancel()
        if not line:
            code = self.process.wait()
            reason = _gist(self.log.read_text(errors="replace"))
            raise ContestantFailed(f"{self.entrant.title} ended with {code}:\n{reason}")
        return json.loads(line)

    def expect(self, word: str) -> None:
        """Wait for a word."""
        found = self.receive()
        if found != word:
            raise ContestantFailed(f"{self.entrant.title} said {found!r} instead of {word!r}")


_LONGEST: Final = 900.0
_PATIENCE: Final = 20.0
_LINES: Final = 30


def _gist(log: str) -> str:
    """The end of a log, without the places in Java's libraries."""
    lines = [line for line in log.splitlines() if not line.startswith("\tat ")]
    return "\n".join(lines[-_LINES:])


def _end(process: subprocess.Popen[str]) -> None:
    """It ends by itself when it is told no more jobs, and its JVM with it."""
    if process.stdin:
        process.stdin.close()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        _kill(process)
        process.wait()
    if process.stdout:
        process.stdout.close()


def _kill(process: subprocess.Popen[str]) -> None:
    """And what it has started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
