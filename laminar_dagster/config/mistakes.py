"""Everything that is wrong with a pipeline, reported at once.

A ``Mistake`` says where, what, and what to write instead. ``Report`` collects them while files are
read, and ``InvalidPipeline`` is the error with all of them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from laminar_dagster.core.errors import InvalidConfig

# More mistakes than this are one mistake repeated, or a file of another kind.
MAX_SHOWN: Final = 100

_WHERE: Final = re.compile(r"(.*?):(\d+)(?::(\d+))?", re.DOTALL)

# Fuzzy matching of a name with a hundred thousand others would look like a hang.
_MAX_COMPARED: Final = 1_000
_MAX_ALIKE: Final = 200
_MAX_NAME: Final = 100


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong in a file.

    Attributes:
        where: ``file``, ``file:line`` or ``file:line:column``.
    """

    where: str
    problem: str
    suggestion: str = ""

    def __str__(self) -> str:
        """As a line for people."""
        return f"{self.where}: {self.problem}" + (
            f" ({self.suggestion})" if self.suggestion else ""
        )


@dataclass(eq=False)
class InvalidPipeline(InvalidConfig):
    """A pipeline's files are wrong; ``mistakes`` lists every one that was found."""

    mistakes: tuple[Mistake, ...] = ()

    @classmethod
    def of(cls, mistakes: Iterable[Mistake]) -> InvalidPipeline:
        """The error for these mistakes, of which there is at least one."""
        first, *others = sorted(mistakes, key=_position)[: MAX_SHOWN + 1]
        told = others[: MAX_SHOWN - 1]
        problem = "; ".join([first.problem, *map(str, told)])
        if len(others) > len(told):
            problem += "; and more"
        return cls(first.where, problem, first.suggestion, (first, *told))

    def lines(self) -> tuple[str, ...]:
        """One line for each mistake, for people."""
        return tuple(map(str, self.mistakes))


def _position(mistake: Mistake) -> tuple[str, int, int]:
    """Where to show a mistake among the others: file by file, from top to bottom."""
    found = _WHERE.fullmatch(mistake.where)
    if not found:
        return mistake.where, 0, 0
    return found[1], int(found[2]), int(found[3] or 0)


@dataclass(slots=True)
class Report:
    """Gathers mistakes and warnings while a pipeline is read."""

    mistakes: list[Mistake] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    _told: set[Mistake] = field(default_factory=set)

    def add(self, where: str, problem: str, suggestion: str = "") -> None:
        """Note a mistake. The same one in the same place counts once."""
        mistake = Mistake(where, problem, suggestion)
        if mistake not in self._told:
            self._told.add(mistake)
            self.mistakes.append(mistake)

    def add_error(self, error: InvalidConfig) -> None:
        """Note what an error carries."""
        if isinstance(error, InvalidPipeline):
            for each in error.mistakes:
                self.add(each.where, each.problem, each.suggestion)
        else:
            self.add(error.where, error.problem, error.suggestion)

    def warn(self, where: str, problem: str, suggestion: str = "") -> None:
        """Note something doubtful that is allowed."""
        self.warnings.append(str(Mistake(where, problem, suggestion)))

    def raise_if_any(self) -> None:
        """Stop if anything is wrong.

        Raises:
            InvalidPipeline: With every mistake.
        """
        if self.mistakes:
            raise InvalidPipeline.of(self.mistakes)


def nearest(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Which known name was probably meant, as a suggestion; ``otherwise`` when none is close."""
    wanted = name.lower()
    spelled = {each.lower(): each for each in known}
    if len(spelled) > _MAX_COMPARED:
        alike = (each for each in spelled if each[:2] == wanted[:2] and _as_long(each, wanted))
        spelled = {each: spelled[each] for each in islice(alike, _MAX_ALIKE)}
    if len(wanted) <= _MAX_NAME:
        close = difflib.get_close_matches(wanted, spelled, n=1, cutoff=0.6)
        if close:
            return f"did you mean `{spelled[close[0]]}`?"
    return otherwise


def _as_long(one: str, other: str) -> bool:
    return abs(len(one) - len(other)) <= 2


def listed(names: Iterable[str], prefix: str, limit: int = 12) -> str:
    """A suggestion that lists what there is: ``columns: a, b, …``."""
    shown = [each for each, _ in zip(names, range(limit + 1), strict=False)]
    if not shown:
        return ""
    return f"{prefix}: {', '.join(shown[:limit])}" + (", …" if len(shown) > limit else "")
