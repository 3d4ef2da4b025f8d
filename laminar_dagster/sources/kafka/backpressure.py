"""When a reader that is ahead of its consumer pauses fetching, and when it resumes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Decision = Literal["pause", "resume", "go on"]


@dataclass(slots=True)
class BackpressureController:
    """Decides by how full a buffer is. Between the two thresholds nothing changes.

    An empty buffer always resumes, so a consumer that takes everything is never kept waiting.

    Attributes:
        capacity: What the buffer should hold at most, in bytes.
        high: The share of the capacity at which to pause.
        low: The share of the capacity at which to resume.
        is_paused: Whether fetching is paused.
        pauses: How often fetching was paused.
    """

    capacity: int
    high: float = 0.8
    low: float = 0.5
    is_paused: bool = field(default=False, init=False)
    pauses: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Refuse thresholds that are out of order.

        Raises:
            ValueError: The thresholds or the capacity are out of range.
        """
        if self.capacity <= 0 or not 0 <= self.low < self.high <= 1:
            raise ValueError(
                f"a capacity above 0 and 0 <= low < high <= 1 are needed, not {self.capacity}, "
                f"{self.low:g} and {self.high:g}"
            )

    def decide(self, fill: int) -> Decision:
        """What to do when the buffer holds ``fill`` bytes."""
        if not self.is_paused and fill >= self.high * self.capacity:
            self.is_paused = True
            self.pauses += 1
            return "pause"
        if self.is_paused and fill <= self.low * self.capacity:
            self.is_paused = False
            return "resume"
        return "go on"
