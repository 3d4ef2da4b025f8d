"""Deadlines that grow with the load of the machine.

A wait that is long enough on an idle machine fails by chance on a busy one. What is told here is
how long something may take where nothing else runs; how long that is here and now is measured.
"""

from __future__ import annotations

import os
import time
from typing import Final

# A machine that is more crowded than this is not one to wait for.
_MOST: Final = 20.0


def crowding() -> float:
    """How many processes want to run, for each core; 1 where each has its own."""
    try:
        load, _, _ = os.getloadavg()
    except OSError:
        return 1.0
    return min(max(1.0, load / (os.cpu_count() or 1)), _MOST)


class Deadline:
    """So many seconds from now on an idle machine, and later on a busy one."""

    def __init__(self, seconds: float) -> None:
        """Begin to wait.

        Args:
            seconds: How long it may take where nothing else runs.
        """
        self._begun = time.monotonic()
        self._seconds = seconds
        self._crowding = crowding()

    @property
    def is_over(self) -> bool:
        """Whether it has taken longer, at the greatest load since it began."""
        self._crowding = max(self._crowding, crowding())
        return time.monotonic() - self._begun > self._seconds * self._crowding

    @property
    def left(self) -> float:
        """Seconds until it is over, as things are now; for a wait that has to be told a number."""
        return max(0.0, self._begun + self._seconds * self._crowding - time.monotonic())

    def __str__(self) -> str:
        """How long was waited, and how long that would be without the load."""
        waited = time.monotonic() - self._begun
        return f"{waited:.0f} s, {self._seconds:g} s on an idle machine"
