"""What a benchmark yields: a figure, its target, and the peer it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from bench.measure import Sample

if TYPE_CHECKING:
    from bench.surroundings import Surroundings

Unit = Literal["s", "bytes", "share", "times", "records/s", "MB/s"]

# Of these, more is better.
_RATES: Final[tuple[Unit, ...]] = ("records/s", "MB/s")


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table.

    Attributes:
        sample: What was measured; None when it could not be.
        limit: The target: the median is to be below it, or above it if it is a rate. None where
            there is none.
        peer: What the figure is compared with, in words.
        peer_sample: The peer, measured in the same rounds.
        note: What a reader has to know to make sense of it, or why there is no sample.
    """

    name: str
    what: str
    sample: Sample | None
    unit: Unit = "s"
    limit: float | None = None
    peer: str = ""
    peer_sample: Sample | None = None
    note: str = ""

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None without a target or a measurement."""
        if self.limit is None or self.sample is None:
            return None
        median = self.sample.median
        return median > self.limit if self.is_rate else median < self.limit

    @property
    def is_rate(self) -> bool:
        """Whether more is better."""
        return self.unit in _RATES

    @property
    def best(self) -> float | None:
        """The round that other work disturbed least; None without a measurement."""
        if self.sample is None:
            return None
        return max(self.sample.values) if self.is_rate else self.sample.best

    @property
    def ratio(self) -> float | None:
        """How many times the peer; None without a peer."""
        if self.sample is None or self.peer_sample is None:
            return None
        return self.sample.over(self.peer_sample)

    def as_json(self) -> dict[str, Any]:
        """Everything, each round included."""
        return {
            "name": self.name,
            "what": self.what,
            "unit": self.unit,
            **_numbers("", self.sample),
            "target": self.limit,
            "is_met": self.is_met,
            "peer": self.peer or None,
            **_numbers("peer_", self.peer_sample),
            "ratio": self.ratio,
            "note": self.note or None,
        }


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Yields figures whose names begin with its own."""

    name: str
    what: str
    run: Callable[[Surroundings], Iterator[Figure]]


def in_words(requests: int) -> str:
    """A number of requests."""
    return f"{requests} request{'' if requests == 1 else 's'}"


def _numbers(prefix: str, sample: Sample | None) -> dict[str, Any]:
    if sample is None:
        return {f"{prefix}median": None}
    return {
        f"{prefix}median": sample.median,
        f"{prefix}spread": sample.spread,
        f"{prefix}best": sample.best,
        f"{prefix}rounds": list(sample.values),
    }
