"""What a query can see: the columns of its input, and which of them are event time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp


@dataclass(frozen=True, slots=True)
class EventTime:
    """A column that a watermark speaks of.

    Attributes:
        sources: Whose watermarks hold it back.
        window_micros: Rows of a window of this length appear only when it has closed, that long
            after this time; 0 for a time that is already complete when its row appears.
        aligned: Whether the windows of that length do not overlap.
        delay_micros: A row may come so long after the watermark has passed this time, because it
            had to wait: for a partner in a join, or in a window that takes late records.
    """

    sources: tuple[str, ...]
    window_micros: int = 0
    aligned: bool = True
    delay_micros: int = 0

    @property
    def lag_micros(self) -> int:
        """How long after the watermark has passed this time its row may still come."""
        return self.window_micros + self.delay_micros


@dataclass(frozen=True, slots=True)
class Output:
    """The columns of a source, a view or a subquery.

    Attributes:
        times: Its columns of event time, by name in lower case.
        unknown: It is broken, and told so elsewhere: any column may be asked of it.
        lacks_retractions: What to set so that its ``_weight`` takes back every row that changes;
            empty if it does.
        hidden: Columns that ``*`` does not stand for; they are there by name.
        required: Columns that are never NULL, because a source says NOT NULL of them.
        types: Of those columns of which the type is known.
        rank: Its column of row numbers, of which the query around has to say how many it wants.
        reference: It is a reference table. Rows that may be taken back join a *weighed* one, which
            never changes or was said to be fit for it, and no *unweighed* one. Empty for a stream.
    """

    columns: tuple[str, ...] = ()
    times: Mapping[str, EventTime] = field(default_factory=dict)
    unknown: bool = False
    lacks_retractions: str = ""
    hidden: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()
    types: Mapping[str, exp.DataType] = field(default_factory=dict)
    rank: str = ""
    reference: Literal["", "weighed", "unweighed"] = ""


BROKEN = Output(unknown=True)


@dataclass(frozen=True, slots=True)
class Star:
    """A column that ``*`` stands for: its name, its Spark SQL, and the input's column."""

    name: str
    sql: str
    origin: str


class Scope:
    """The input of a query under the name by which its columns may be qualified."""

    def __init__(self, alias: str, output: Output, description: str) -> None:
        """Take the input's alias, its columns, and what to call it in an error."""
        self.alias = alias
        self.output = output
        self.description = description
        self._columns = {each.lower(): each for each in output.columns}

    @property
    def columns(self) -> Sequence[str]:
        """The columns as they are declared."""
        return self.output.columns

    @property
    def aliases(self) -> tuple[str, ...]:
        """By which names its columns may be qualified."""
        return (self.alias,)

    def written(self, column: str) -> str:
        """The name of a column to its readers, without a qualifier."""
        return column

    def star(self, qualifier: str | None = None) -> Sequence[tuple[str, str]] | None:
        """What ``*`` stands for: names, and the column of each; None if there is no such alias."""
        if qualifier is not None and qualifier.lower() != self.alias.lower():
            return None
        return [(each, each) for each in self.columns if each not in self.output.hidden]

    def choices(self, parts: Sequence[str]) -> tuple[str, ...]:
        """How a name that may mean several columns can be qualified; nothing if it cannot."""
        return ()

    def resolve(self, parts: Sequence[str]) -> tuple[int, str] | None:
        """Which part of a dotted name is the column, and the column's declared name.

        What comes before is a qualifier; what comes after are fields of a struct.
        """
        names = [each.lower() for each in parts]
        if len(names) > 1 and names[0] == self.alias.lower():
            if names[1] in self._columns:
                return 1, self._columns[names[1]]
            if self.output.unknown:
                return 1, parts[1]
        if names[0] in self._columns:
            return 0, self._columns[names[0]]
        return (0, parts[0]) if self.output.unknown else None

    def keep(self, column: str) -> None:
        """Say that a query needs a column which it does not name itself, by its declared name."""

    def time(self, column: str) -> EventTime | None:
        """What a column is as event time; None if it is none."""
        return self.output.times.get(column.lower())


def plain_column(node: exp.Expr, scope: Scope) -> str:
    """The declared name of the input's column that an expression is; empty if it is more."""
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
        return ""
    parts = [each.name for each in node.parts]
    found = scope.resolve(parts)
    return found[1] if found and found[0] == len(parts) - 1 else ""
