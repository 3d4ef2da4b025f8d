"""Keys and functional dependencies of the rows of a relation.

Every column of every relation upstream is an attribute of its own, also those that a query leaves
out. Known of attributes are rules (functional dependencies), such as "equal in `id`, so equal in
`name`", and keys: attributes in which no two rows are alike. Columns of the output identify its
rows if their closure under the rules contains a key.

Two questions are answered. *Is a key right?* uses only certain rules. *Is it wrong?* uses every
rule that might hold, so that no key is refused which might be right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

from laminar_dagster.config.sql.changelog import WEIGHT

Attributes = frozenset[int]
NOTHING: Final[Attributes] = frozenset()
# The number of columns up to which a smallest key is searched by leaving out one at a time.
_MANY: Final = 200


class Certainty(IntEnum):
    """How certain a rule is."""

    POSSIBLE = 0
    # Holds among the rows that exist at one time, but not between a row and a retracted one.
    NOW = 1
    ALWAYS = 2


@dataclass(frozen=True, slots=True)
class Rule:
    """A functional dependency: rows that are equal in ``given`` are equal in ``follow``."""

    given: Attributes
    follow: Attributes
    certainty: Certainty


@dataclass(frozen=True, slots=True)
class Rows:
    """What is known of the rows of a relation.

    Attributes:
        columns: The attribute that each of its columns shows, by the column's name.
        types: The types of attributes, in lower case, where a source declares them.
        keys: Sets of attributes in which no two rows are alike that exist at one time.
        grain: Attributes that identify the rows, and are independent unless a rule says otherwise:
            two rows may differ in any one of them alone. None where that is unknown.
        is_lasting: There are no retractions, so what holds now holds always.
        is_replaced: A row may replace an older one without a retraction of it (upsert).
        may_linger: A row that the database has changed may stay, because its retraction came late
            or never: columns that are unique in the database are not unique here.
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
        """The attribute of a column; a name in another case counts if there is no exact one."""
        exact = self.columns.get(name)
        if exact is not None:
            return exact
        lowered = name.lower()
        return next(
            (each for known, each in self.columns.items() if known.lower() == lowered), None
        )

    def following(self, given: Iterable[int], least: Certainty) -> Attributes:
        """The closure of attributes: all that they determine by rules at least that certain."""
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
        """Whether columns certainly identify the rows that exist at one time."""
        given = frozenset(self.columns[each] for each in columns)
        if self.is_replaced:
            # By any other key, a sink would keep the row that was replaced.
            return given in self.keys
        found = self.following(given, Certainty.NOW)
        return any(key <= found for key in self.keys)

    def is_too_small(self, columns: Iterable[str]) -> bool:
        """Whether columns are certainly no key: distinct rows may be alike in all of them."""
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
        """Columns that identify the rows, preferably the given ones; empty if there are none."""
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
        """The output columns of attributes, in their order; empty if one has no column."""
        names = {each: name for name, each in self.columns.items()}
        if not all(each in names for each in attributes):
            return ()
        order = [*self.columns]
        return tuple(sorted((names[each] for each in attributes), key=order.index))

    def key_rules(self) -> tuple[Rule, ...]:
        """The rules that each key determines every attribute."""
        certainty = Certainty.ALWAYS if self.is_lasting else Certainty.NOW
        every = frozenset(self.columns.values()).union(*(each.follow for each in self.rules))
        return tuple(Rule(each, every, certainty) for each in self.keys)

    def without_lingering(self) -> Rows:
        """The rows as stored by an operator that never replaces one: stale rows break the keys."""
        if not self.may_linger:
            return self
        return replace(self.as_history(), is_lasting=self.is_lasting, may_linger=False)

    def as_history(self) -> Rows:
        """The rows as a log, for a reader that keeps rows after their retraction."""
        if self.is_lasting:
            return self
        rules = tuple(
            replace(each, certainty=Certainty.POSSIBLE) if each.certainty == Certainty.NOW else each
            for each in (*self.rules, *self.key_rules())
        )
        return replace(self, rules=rules, keys=(), grain=None, is_lasting=True)
