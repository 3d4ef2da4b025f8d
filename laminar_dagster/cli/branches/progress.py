"""Follows a replay: where it is, and what it did."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from laminar_dagster.cli import wording
from laminar_dagster.cli.epoch_summary import COLUMNS, EpochSummary
from laminar_dagster.cli.run import step_words
from laminar_dagster.cli.tables import Block, Line, Table
from laminar_dagster.runtime.loop import EpochDone


@dataclass(slots=True)
class ReplayProgress:
    """What a replay has done so far.

    Attributes:
        show: Shows a line in the place of the last one.
        starting: Seconds that Spark took to start, until an epoch has accounted for them.
    """

    show: Callable[[str], None]
    starting: float = 0.0
    epochs: list[EpochSummary] = field(default_factory=list)

    def started(self, seconds: float) -> None:
        """Spark has started, within the epoch at hand."""
        self.starting = seconds

    def step(self, epoch: int, name: str) -> None:
        """A step begins."""
        done = f"  [{wording.count(len(self.epochs), 'epoch')} done]" if self.epochs else ""
        self.show(f"epoch {epoch}: {step_words(name)}{done}")

    def finished(self, done: EpochDone) -> None:
        """An epoch is replayed."""
        self.epochs.append(EpochSummary.of(done, self.starting))
        self.starting = 0.0

    def follow(self, replayed: Iterable[EpochDone]) -> None:
        """Take a replay to its end."""
        for done in replayed:
            self.finished(done)

    def documents(self) -> list[dict[str, Any]]:
        """The epochs as JSON values."""
        return [each.document() for each in self.epochs]

    def blocks(self) -> Iterator[Block]:
        """The epochs for people."""
        if self.epochs:
            yield Table(COLUMNS, [each.cells() for each in self.epochs], "Replayed")
            yield Line()
