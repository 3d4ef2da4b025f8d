"""What came of a contest: every entrant's turns, or why it has none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.figures import Figure
from bench.kafka.contest import ContestantFailed, Entrant, Turn
from bench.measure import Sample
from infra.errors import ServiceUnavailable


@dataclass(frozen=True, slots=True)
class Standing:
    """The turns of every entrant, in the order of the rounds.

    Attributes:
        name: Of the benchmark.
        what: Was measured, in words.
        failures: Why an entrant has no turns.
    """

    name: str
    what: str
    turns: Mapping[Entrant, Sequence[Turn]]
    failures: Mapping[Entrant, str]

    @property
    def best_peer(self) -> Entrant | None:
        """The fastest that is not this project; None if no peer has a turn."""
        peers = [each for each in self.turns if not each.is_own]
        return max(peers, key=lambda each: self.rate(each).median, default=None)

    def rate(self, entrant: Entrant) -> Sample:
        """Records per second, warm."""
        return Sample(tuple(turn.rate for turn in self.turns[entrant]))

    def whole(self, entrant: Entrant) -> Sample:
        """Seconds from the start of the process to the end of its first job."""
        return Sample(tuple(turn.whole for turn in self.turns[entrant]))

    def processor(self, entrant: Entrant) -> Sample:
        """Processor seconds for a million records."""
        return Sample(tuple(turn.processor_per_million for turn in self.turns[entrant]))

    def broker(self, entrant: Entrant) -> Sample:
        """The broker's meanwhile."""
        return Sample(tuple(turn.broker_per_million for turn in self.turns[entrant]))

    def figures(self, targets: Mapping[str, float] = {}) -> Iterator[Figure]:
        """Three rows for each entrant, beside the best peer.

        Args:
            targets: How many times the best peer an entrant's rate is to be, by its name.
        """
        best = self.best_peer
        for entrant in self.turns:
            peer = best if best is not entrant else None
            name = f"{self.name}/{entrant.name}"
            title = peer.title if peer else ""
            wanted = targets.get(entrant.name)
            yield Figure(
                name,
                f"{entrant.title}: {self.what}",
                self.rate(entrant),
                unit="records/s",
                limit=wanted * self.rate(peer).median if wanted and peer else None,
                peer=title,
                peer_sample=self.rate(peer) if peer else None,
                note=f"target: {wanted:g} times the best peer" if wanted else "",
            )
            yield Figure(
                f"{name}/processor",
                "processor time for 1,000,000 records, all its processes",
                self.processor(entrant),
                peer=title,
                peer_sample=self.processor(peer) if peer else None,
                note=f"and {self.broker(entrant).median:.2f} s of the broker",
            )
            yield Figure(
                f"{name}/whole",
                "from the start of the process to the end of its first job",
                self.whole(entrant),
                peer=title,
                peer_sample=self.whole(peer) if peer else None,
            )
        for entrant, reason in self.failures.items():
            name = f"{self.name}/{entrant.name}"
            yield Figure(name, entrant.title, None, note=reason.splitlines()[0])


def hold(
    name: str,
    what: str,
    entrants: Sequence[Entrant],
    rounds: int,
    take: Callable[[Entrant], Turn],
) -> Standing:
    """Let the entrants take turns, in rounds. Who fails once is out, and is told about.

    Raises:
        ContestantFailed: It is this project that failed.
    """
    turns: dict[Entrant, list[Turn]] = {each: [] for each in entrants}
    failures: dict[Entrant, str] = {}
    order = list(entrants)
    for number in range(rounds):
        for entrant in order:
            if entrant in failures:
                continue
            try:
                turn = take(entrant)
            except (ContestantFailed, ServiceUnavailable) as error:
                if entrant.is_own:
                    raise
                failures[entrant] = str(error)
                print(f"{name}: {error}", file=sys.stderr, flush=True)
                continue
            turns[entrant].append(turn)
            told = f"{name}, round {number + 1}: {entrant.title}: {turn.rate:,.0f} records/s"
            print(told, file=sys.stderr, flush=True)
        # Whoever goes second finds the broker's pages in memory.
        order.reverse()
    measured = {each: found for each, found in turns.items() if each not in failures}
    return Standing(name, what, measured, failures)
