"""One turn of one contestant: a process of its own that does the same job a few times.

The first job is done by a cold process: from its start to its answer is what a user waits for who
starts it anew. The last one is done by a warm engine: its own time from submission to the last
commit is the figure. Every job must give the rows that were worked out beforehand.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

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
        jobs: How often a process does the job: engines on a JVM get faster for a while.
    """

    name: str
    title: str
    program: Callable[[], Program]
    settings: Mapping[str, str] = field(default_factory=dict)
    jobs: int = 6

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
        whole: From the start of the process to the end of its first job.
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


def take_turn(
    entrant: Entrant,
    venue: Venue,
    topic: ClickTopic,
    expected: Sequence[Row],
    *,
    task: str = "aggregate",
    cores: int,
    jobs: int,
) -> Turn:
    """Start the process, let it do its jobs, and end it.

    Args:
        entrant: Whose turn it is.
        venue: Where.
        topic: What to read.
        expected: What has to come of it.
        task: See ``Job``.
        cores: How many it may use.
        jobs: How many to do.

    Raises:
        ContestantFailed: It ended too soon, or gave other rows.
        ServiceUnavailable: It cannot be installed.
    """
    program = entrant.program()
    begun = time.perf_counter()
    with running(entrant, program, venue.surroundings.folder(), cores) as channel:
        process = channel.process
        turns: list[Turn] = []
        for number in range(jobs):
            job = _job(entrant, venue, topic, task, cores)
            before, broker_before = seconds_of(process.pid), venue.broker_seconds()
            channel.send(job)
            seconds = float(channel.receive())
            ended = time.perf_counter()
            turns.append(
                Turn(
                    records=topic.total,
                    seconds=seconds,
                    processor=seconds_of(process.pid) - before,
                    broker=venue.broker_seconds() - broker_before,
                    whole=turns[0].whole if turns else ended - begun,
                )
            )
            require_same(entrant, number, channel.receive(), expected)
        return turns[-1]


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
