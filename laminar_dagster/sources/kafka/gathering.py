"""The ``Gather`` port: copies librdkafka's messages into columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

import numpy as np

from laminar_dagster.sources.kafka.librdkafka import Addresses, Numbers
from laminar_dagster.sources.kafka.messages import MessageBatch, Wanted

NONE: Final[Addresses] = np.zeros(0, np.uint64)


class TooLarge(Exception):
    """The messages hold more bytes than a column can."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """Messages that were copied.

    Attributes:
        others: The places of entries that are errors, or the end of the partition.
    """

    batch: MessageBatch
    others: Numbers


class Gather(ABC):
    """Copies messages that librdkafka has handed out, and gives them back. For one thread.

    Attributes:
        pointers: librdkafka's messages. Each entry that is not 0 must still be given back.
    """

    pointers: Addresses = NONE

    def make_room(self, most: int) -> None:
        """Make room for pointers to so many messages; all earlier ones must be given back."""
        self.pointers = np.zeros(most, np.uint64)

    @abstractmethod
    def gather(self, count: int, wanted: Wanted) -> Gathered:
        """Copy the first ``count`` messages. Nothing returned points to librdkafka's memory.

        Raises:
            TooLarge: The messages do not fit into one batch.
        """

    @abstractmethod
    def give_back(self) -> None:
        """Release all messages, also those left by an interrupt. May be repeated."""
