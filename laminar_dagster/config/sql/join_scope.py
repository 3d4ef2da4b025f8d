"""The scope of a query over a join: the columns of both sides, qualified by alias or not."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from laminar_dagster.config.sql.changelog import WEIGHT
from laminar_dagster.config.sql.scope import EventTime, Output, Scope

LEFT: Final = "left."
RIGHT: Final = "right."


class JoinedScope(Scope):
    """The two inputs of a join. Its columns are called ``left.id`` and ``right.id``.

    Attributes:
        left: The left input.
        right: The right input.
        used: The columns that the query uses: the join need not keep others.
    """

    def __init__(
        self,
        left: Scope,
        right: Scope,
        *,
        unites: Mapping[str, str] | None = None,
        is_subquery: bool = False,
    ):
        """Take the inputs.

        Args:
            left: The left input.
            right: The right input.
            unites: The side that a column of USING is taken from.
            is_subquery: The right is that of a subquery, so a name of both sides means the right.
        """
        self.left = left
        self.right = right
        self.used: set[str] = set()
        self._unites = unites or {}
        self._is_subquery = is_subquery
        self._hides_right = False
        columns = [LEFT + each for each in left.columns if each != WEIGHT]
        columns += [RIGHT + each for each in right.columns if each != WEIGHT]
        unknown = left.output.unknown or right.output.unknown
        types = {LEFT + name: kind for name, kind in left.output.types.items()}
        types |= {RIGHT + name: kind for name, kind in right.output.types.items()}
        output = Output(tuple(columns), unknown=unknown, types=types)
        super().__init__("", output, "the join")

    def seen(self, times: Mapping[str, EventTime], *, hides_right: bool, weighs: bool) -> None:
        """Set the output: its event time, whether it has the right's columns, and ``_weight``."""
        self._hides_right = hides_right
        columns = [each for each in self.output.columns if not hides_right or _is_left(each)]
        columns += [WEIGHT] if weighs else []
        required = {LEFT + each for each in self.left.output.required if hides_right}
        self.output = replace(
            self.output, columns=tuple(columns), times=times, required=frozenset(required)
        )

    @property
    def aliases(self) -> tuple[str, ...]:
        """See ``Scope.aliases``."""
        return (*self.left.aliases, *(() if self._hides_right else self.right.aliases))

    def side_of(self, parts: Sequence[str]) -> str | None:
        """The side of a column, ``left.`` or ``right.``; None if it is unknown or ambiguous."""
        found = self._found(parts)
        return found[0][0] if len(found) == 1 else None

    def resolve(self, parts: Sequence[str]) -> tuple[int, str] | None:
        """See ``Scope.resolve``."""
        found = self._found(parts)
        if any(name == WEIGHT for _, _, name in found):
            return (found[0][1], WEIGHT) if WEIGHT in self.columns else None
        if not found and parts[-1].lower() == WEIGHT and WEIGHT in self.columns:
            return len(parts) - 1, WEIGHT
        if len(found) != 1:
            return None
        side, position, name = found[0]
        self.keep(side + name)
        return position, side + name

    def keep(self, column: str) -> None:
        """See ``Scope.keep``."""
        self.used.add(column)
        # An upstream join has to keep the column, too.
        if column.startswith(LEFT):
            self.left.keep(column.removeprefix(LEFT))
        else:
            self.right.keep(column.removeprefix(RIGHT))

    def _found(self, parts: Sequence[str]) -> list[tuple[str, int, str]]:
        """The columns that a name may mean: the side, the column's index in the name, its name."""
        sides = [(LEFT, self.left), *([] if self._hides_right else [(RIGHT, self.right)])]
        found = [
            (side, *resolved)
            for side, scope in sides
            if (resolved := scope.resolve(parts)) is not None
        ]
        qualified = [each for each in found if each[1] > 0]
        found = qualified or found
        known = [
            each
            for each in found
            if each[2] in (self.left if each[0] == LEFT else self.right).columns
        ]
        found = known if len(found) > 1 and self.output.unknown else found
        if self._is_subquery:
            found = [each for each in found if each[0] == RIGHT] or found
        united = self._unites.get(parts[0].lower()) if not qualified else None
        return [each for each in found if united is None or each[0] == united]

    def choices(self, parts: Sequence[str]) -> tuple[str, ...]:
        """See ``Scope.choices``."""
        deeper = (*self.left.choices(parts), *self.right.choices(parts))
        shown = [
            f"{alias}.{parts[0]}"
            for alias in self.aliases
            if len(parts) == 1 and self.resolve([alias, parts[0]])
        ]
        return deeper or (tuple(shown) if len(shown) > 1 else ())

    def written(self, column: str) -> str:
        """See ``Scope.written``."""
        if column.startswith(LEFT):
            return self.left.written(column.removeprefix(LEFT))
        return self.right.written(column.removeprefix(RIGHT))

    def star(self, qualifier: str | None = None) -> Sequence[tuple[str, str]] | None:
        """See ``Scope.star``."""
        found: list[tuple[str, str]] = []
        known = False
        for side, scope in ((LEFT, self.left), (RIGHT, self.right)):
            below = None if self._hides_right and side == RIGHT else scope.star(qualifier)
            known = known or below is not None
            for name, column in below or ():
                if name == WEIGHT or self._is_united_elsewhere(side, name, qualifier):
                    continue
                self.used.add(side + column)
                found.append((name, side + column))
        if WEIGHT in self.columns and qualifier is None:
            found.append((WEIGHT, WEIGHT))
        return found if known else None

    def _is_united_elsewhere(self, side: str, name: str, qualifier: str | None) -> bool:
        return qualifier is None and self._unites.get(name.lower(), side) != side


def kept(columns: Collection[str], side: str) -> list[str]:
    """The columns of a join from one side, by their names on that side, sorted."""
    return sorted(each.removeprefix(side) for each in columns if each.startswith(side))


def _is_left(column: str) -> bool:
    return column.startswith(LEFT)
