"""What turns messages of librdkafka into columns, one way or the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

import numpy as np

from laminar_dagster.sources.kafka.librdkafka import Addresses, Numbers
from laminar_dagster.sources.kafka.messages import MessageBatch, Wanted

NONE: Final[Addresses] = np.zeros(0, np.uint64)


class TooLarge(Exception):
    """More bytes were taken at once than a column can hold."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """Messages, copied.

    Attributes:
        others: The places of what is not a message: an error, or the end of the partition.
    """

    batch: MessageBatch
    others: Numbers


class Gather(ABC):
    """Copies messages that librdkafka has handed out, and gives them back. For one thread.

    Attributes:
        pointers: Where librdkafka puts them. What is in here and not 0 is still to be given back.
    """

    pointers: Addresses = NONE

    def make_room(self, most: int) -> None:
        """Be ready for so many messages; there must be none."""
        self.pointers = np.zeros(most, np.uint64)

    @abstractmethod
    def gather(self, count: int, wanted: Wanted) -> Gathered:
        """The first so many of the messages. Nothing that is returned points to their memory.

        Raises:
            TooLarge: They do not fit into one batch.
        """

    @abstractmethod
    def give_back(self) -> None:
        """Let go of all messages, also of those that an interrupt has kept. May be repeated."""
