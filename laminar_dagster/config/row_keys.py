"""What is known of the rows of a relation: which columns identify them, and what they share.

Every column of every relation that takes part is an attribute of its own, also those that a query
leaves out. What is known of them are rules, such as "equal in `id`, so equal in `name`", and keys:
attributes in which no two rows are alike. Columns of the output identify its rows if what follows
from them holds a key.

Two things are asked. *Is a key right?* is answered by what is certain alone. *Is it wrong?* takes
every rule into account that might hold, so that nothing is refused which might be right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

from laminar_dagster.config.sql.changelog import WEIGHT

Attributes = frozenset[int]
NOTHING: Final[Attributes] = frozenset()
# So many columns are tried one by one for a key that would do.
_MANY: Final = 200


class Certainty(IntEnum):
    """How far a rule holds."""

    POSSIBLE = 0
    # Of the rows that are there at one time; a row that was taken back may have said otherwise.
    NOW = 1
    ALWAYS = 2


@dataclass(frozen=True, slots=True)
class Rule:
    """Rows that are equal in ``given`` are equal in ``follow``."""

    given: Attributes
    follow: Attributes
    certainty: Certainty


@dataclass(frozen=True, slots=True)
class Rows:
    """What is known of the rows of a relation.

    Attributes:
        columns: The attribute that each of its columns shows, by the column's name.
        types: Of attributes whose type a source declares, in lower case.
        keys: Attributes in which no two rows are alike that are there at one time.
        grain: Attributes that identify the rows, none of which says anything of the others unless
            a rule says so: of two rows any one of them may differ alone. None where that is open.
        is_lasting: No row is ever taken back, so what holds now holds always.
        is_replaced: A row may take the place of another one that is not taken back before.
        may_linger: A row may stay that the database has changed, because what takes it back came
            late, or not at all: what is unique there is not so here.
    """

    columns: Mapping[str, int]
    types: Mapping[int, str] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    keys: tuple[Attributes, ...] = ()
    grain: Attributes | None = None
    is_lasting: bool = True
    is_replaced: bool = False
    may_linger: bool = False

    def find(self, name: str) -> int | None:
        """The attribute that a column shows."""
        exact = self.columns.get(name)
        if exact is not None:
            return exact
        lowered = name.lower()
        return next(
            (each for known, each in self.columns.items() if known.lower() == lowered), None
        )

    def following(self, given: Iterable[int], least: Certainty) -> Attributes:
        """What rows are equal in that are equal in some attributes."""
        found = set(given)
        rules = [each for each in self.rules if each.certainty >= least]
        grows = True
        while grows:
            grows = False
            for each in rules:
                if each.given <= found and not each.follow <= found:
                    found |= each.follow
                    grows = True
        return frozenset(found)

    def identifies(self, columns: Iterable[str]) -> bool:
        """Whether no two rows that are there at one time are alike in some columns, for certain."""
        given = frozenset(self.columns[each] for each in columns)
        if self.is_replaced:
            # With any other key, the row that is replaced would stay.
            return given in self.keys
        found = self.following(given, Certainty.NOW)
        return any(key <= found for key in self.keys)

    def is_too_small(self, columns: Iterable[str]) -> bool:
        """Whether rows may be alike in some columns, whatever they hold."""
        given = {self.columns[each] for each in columns}
        if self.grain is None:
            return False
        for left_out in self.grain:
            rest = self.grain - {left_out}
            plain = self.following(rest, Certainty.ALWAYS)
            possible = self.following(rest, Certainty.POSSIBLE)
            is_known = left_out in possible or any(key <= possible for key in self.keys)
            if given <= plain and not is_known:
                return True
        return False

    def smallest_key(self, preferred: Sequence[str]) -> tuple[str, ...]:
        """Columns that would do, with as many of the preferred ones as may be; none if none."""
        shown = [names for key in self.keys if (names := self._shown(key))]
        if shown or self.is_replaced or len(self.columns) > _MANY:
            return max(shown, key=lambda each: len({*each} & {*preferred}), default=())
        fit = [each for each in self.columns if each != WEIGHT]
        if not self.identifies(fit):
            return ()
        for name in sorted(fit, key=lambda each: (each in preferred, -fit.index(each))):
            without = [each for each in fit if each != name]
            if without and self.identifies(without):
                fit = without
        return tuple(fit)

    def _shown(self, attributes: Attributes) -> tuple[str, ...]:
        """The columns that show some attributes; none if one of them is not shown."""
        names = {each: name for name, each in self.columns.items()}
        if not all(each in names for each in attributes):
            return ()
        order = [*self.columns]
        return tuple(sorted((names[each] for each in attributes), key=order.index))

    def key_rules(self) -> tuple[Rule, ...]:
        """A key says everything of its row."""
        certainty = Certainty.ALWAYS if self.is_lasting else Certainty.NOW
        every = frozenset(self.columns.values()).union(*(each.follow for each in self.rules))
        return tuple(Rule(each, every, certainty) for each in self.keys)

    def without_lingering(self) -> Rows:
        """The same for who keeps each of the rows, and does not put one in the place of another."""
        if not self.may_linger:
            return self
        return replace(self.as_history(), is_lasting=self.is_lasting, may_linger=False)

    def as_history(self) -> Rows:
        """The same for who sees rows come, and keeps them when they are taken back."""
        if self.is_lasting:
            return self
        rules = tuple(
            replace(each, certainty=Certainty.POSSIBLE) if each.certainty == Certainty.NOW else each
            for each in (*self.rules, *self.key_rules())
        )
        return replace(self, rules=rules, keys=(), grain=None, is_lasting=True)
