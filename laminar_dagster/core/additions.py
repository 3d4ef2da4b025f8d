"""Schema evolution of state: partials that are added to existing state, and what they missed.

A state row that is older than a partial holds events that the partial has not counted; a row that
begins afterwards is complete. So every row carries the *generation* in which it began, and every
added partial the generation in which it came: for older rows the partial is unknown.

Pure: definitions and the parent's added partials in, the new list of added partials out.
"""

from __future__ import annotations

from collections.abc import Sequence

from laminar_dagster.core.definition import OnAdded, OperatorDefinition, Sql
from laminar_dagster.core.document import Natural, Record
from laminar_dagster.core.ids import EpochNumber


class AddedPartial(Record, frozen=True, kw_only=True):
    """A partial that was added to existing state, and so has missed events.

    Attributes:
        partial: Its name, such as ``sum(price)``.
        epoch: The first epoch that kept it.
        generation: Rows of an earlier generation hold events that it has missed.
        shows: What such rows show for it.
    """

    partial: Sql
    epoch: EpochNumber
    generation: Natural
    shows: OnAdded

    @property
    def meaning(self) -> str:
        """What rows from before the addition show, for people."""
        if self.shows == "null":
            return "NULL in rows that began before"
        return "in rows that began before, what came since"


def additions_of(
    old: OperatorDefinition | None,
    new: OperatorDefinition,
    before: Sequence[AddedPartial],
    epoch: EpochNumber,
) -> tuple[AddedPartial, ...]:
    """Every partial that was ever added to an operator, including those of this epoch.

    None is ever removed from the list: rows store generations, whose numbers must not be reused.

    Args:
        old: The definition that the state was computed by; None if it is not known to differ.
        new: The definition that the epoch is computed by.
        before: The parent's list.
        epoch: The epoch.
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
    """The last addition of each partial: one that was removed and added again is new again."""
    return {each.partial: each for each in additions}
