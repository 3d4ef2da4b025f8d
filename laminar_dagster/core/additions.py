"""Partials that are added to a state that is there: from when on they know everything.

A row of the state that was there before a partial came holds events that the partial has missed.
A row that begins afterwards has missed nothing. So rows carry the *generation* in which they began,
and a partial the one in which it came: a row shows a value of it, or says that it knows none.

Pure: definitions and what the parent says of its additions in, what is to be said now out.
"""

from __future__ import annotations

from collections.abc import Sequence

from laminar_dagster.core.definition import OnAdded, OperatorDefinition, Sql
from laminar_dagster.core.document import Natural, Record
from laminar_dagster.core.ids import EpochNumber


class AddedPartial(Record, frozen=True, kw_only=True):
    """A partial that came to a state that was there already, and so has missed something.

    Attributes:
        partial: What it holds, such as ``sum(price)``.
        epoch: The first that kept it.
        generation: Rows of an earlier generation hold events that it has missed.
        shows: What such rows show of it.
    """

    partial: Sql
    epoch: EpochNumber
    generation: Natural
    shows: OnAdded

    @property
    def meaning(self) -> str:
        """What it shows of the time before, for people."""
        if self.shows == "null":
            return "NULL in rows that began before"
        return "in rows that began before, what came since"


def additions_of(
    old: OperatorDefinition | None,
    new: OperatorDefinition,
    before: Sequence[AddedPartial],
    epoch: EpochNumber,
) -> tuple[AddedPartial, ...]:
    """Every partial that was ever added to an operator, after it goes on from a state.

    None is forgotten, as no gap is: rows know generations, and these must not begin again.

    Args:
        old: By what the state was computed; None if it is not known to differ.
        new: By what the epoch is computed.
        before: What the state says already.
        epoch: Which.
    """
    missing = [each for each in new.partials if old and each not in old.partials]
    if new.on_added is None:
        return tuple(before)
    generation = 1 + max((each.generation for each in before), default=0)
    return (
        *before,
        *(
            AddedPartial(partial=each, epoch=epoch, generation=generation, shows=new.on_added)
            for each in missing
        ),
    )


def newest_additions(additions: Sequence[AddedPartial]) -> dict[str, AddedPartial]:
    """By partial; one that was left out and came again counts from when it came again."""
    return {each.partial: each for each in additions}
