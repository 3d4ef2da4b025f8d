"""Which fault strikes when: all of it follows from the seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Fault(StrEnum):
    """What can happen; the text is how it is told."""

    KILL = "kill -9 of the pipeline, with its Spark"
    PAUSE = "the pipeline is stopped for a while, with its Spark"
    TAKE_OVER = "the pipeline is stopped, another takes over, and the first wakes up"
    CUT_POSTGRES = "all connections to PostgreSQL break"
    LOSE_COMMIT = "a COMMIT does not reach PostgreSQL"
    LOSE_REPLY_TO_COMMIT = "PostgreSQL's reply to a COMMIT is lost"
    RESTART_POSTGRES = "kill -9 of PostgreSQL, and a new start"
    CUT_KAFKA = "all connections to Kafka break"
    LOSE_END_TXN = "the end of a transaction does not reach Kafka"
    LOSE_REPLY_TO_END_TXN = "Kafka's reply to the end of a transaction is lost"
    RESTART_KAFKA = "kill -9 of Kafka, and a new start"


# Long enough for an epoch in between, once the pipeline has started again.
_SHORTEST_PAUSE: Final = 4.0
_LONGEST_PAUSE: Final = 16.0


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault, and when it is due: seconds since the pipeline has made its first epoch."""

    due: float
    fault: Fault


def schedule(seed: int, seconds: float, faults: Sequence[Fault] = tuple(Fault)) -> list[Strike]:
    """The faults of a run. Each comes once before any comes again."""
    chance = random.Random(seed)
    strikes: list[Strike] = []
    bag: list[Fault] = []
    due = chance.uniform(1.0, _SHORTEST_PAUSE)
    while due < seconds:
        if not bag:
            bag = chance.sample(list(faults), len(faults))
        strikes.append(Strike(round(due, 2), bag.pop()))
        due += chance.uniform(_SHORTEST_PAUSE, _LONGEST_PAUSE)
    return strikes
