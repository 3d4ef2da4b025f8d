"""How a contestant is driven: it is told jobs on its standard input, and answers in JSON lines.

Imports nothing but the standard library: contestants run in environments of their own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

# Page, minute in milliseconds since 1970, and what was counted.
Row = tuple[str, int, int, int, float, float]

COLUMNS = ("page", "minute", "clicks", "total", "mean", "most")
READY = "ready"


@dataclass(frozen=True)
class Job:
    """What to do.

    Attributes:
        task: ``aggregate`` counts by page and minute into a sink; ``scan`` decodes every column
            and adds up what it found.
        servers: The broker's address.
        ends: How many messages each partition holds.
        format: ``json`` or ``avro``.
        registry: Where the Avro schema is.
        schema: The Avro schema.
        folder: An empty folder for state and output.
        cores: How many to use.
        settings: Of the contestant, such as which state store.
    """

    task: str
    servers: str
    topic: str
    ends: tuple[int, ...]
    format: str
    registry: str
    schema: str
    folder: str
    cores: int
    settings: dict[str, str] = field(default_factory=dict)

    def as_line(self) -> str:
        """As it is sent."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_line(cls, line: str) -> Job:
        """As it was sent."""
        fields: dict[str, Any] = json.loads(line)
        fields["ends"] = tuple(fields["ends"])
        return cls(**fields)

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.folder)


class Contestant(Protocol):
    """A system whose engine runs."""

    def run(self, job: Job) -> float:
        """Do the job; seconds from submission to the last commit."""

    def rows(self, job: Job) -> list[Row]:
        """What the job wrote, in any order; of a scan one row of sums. Not timed."""


def serve(start: Callable[[int], Contestant]) -> None:
    """Start the engine, and do jobs until there are no more.

    Args:
        start: Given the number of cores, starts the engine.
    """
    # Engines print as they please: the answers get a channel that is theirs alone.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    cores = int(sys.argv[1])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    contestant = start(cores)
    _answer(answers, READY)
    for line in sys.stdin:
        job = Job.from_line(line)
        _answer(answers, contestant.run(job))
        _answer(answers, contestant.rows(job))


def _answer(channel: Any, content: object) -> None:
    channel.write(json.dumps(content) + "\n")
    channel.flush()
