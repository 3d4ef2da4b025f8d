"""The scope of a query: the columns of its input, and which of them are event time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp


@dataclass(frozen=True, slots=True)
class EventTime:
    """A column of event time, which a watermark covers.

    Attributes:
        sources: The sources whose watermarks hold it back.
        window_micros: For a window's start, the window's length: its rows are emitted only when it
            has closed, that long after this time. 0 for any other event time.
        aligned: Whether the windows of that length do not overlap, and have no offset.
        delay_micros: How long after the watermark has passed this time a row may come, because it
            had to wait: for a partner in a join, or in a window with allowed lateness.
    """

    sources: tuple[str, ...]
    window_micros: int = 0
    aligned: bool = True
    delay_micros: int = 0

    @property
    def lag_micros(self) -> int:
        """How long after the watermark has passed this time a row of it may still come."""
        return self.window_micros + self.delay_micros


@dataclass(frozen=True, slots=True)
class Output:
    """The columns of a source, a view or a subquery.

    Attributes:
        times: Its columns of event time, by name in lower case.
        unknown: It has mistakes that are reported elsewhere: any column of it resolves.
        lacks_retractions: What to set so that every update carries a retraction of the old row;
            empty if every update does.
        hidden: Columns that ``*`` leaves out; they can be selected by name.
        required: Columns that are never NULL, because a source declares them NOT NULL.
        types: The types of columns, where known.
        rank: Its column of row numbers, which the query around has to limit; empty without one.
        reference: The kind of a reference table, empty for a stream. Rows with retractions may only
            join a *weighed* one, which never changes, or whose author accepts the difference.
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
        """The names by which its columns may be qualified."""
        return (self.alias,)

    def written(self, column: str) -> str:
        """The name of a column as a query writes it, without a qualifier."""
        return column

    def star(self, qualifier: str | None = None) -> Sequence[tuple[str, str]] | None:
        """The columns of ``*``: names, and the column of each; None if there is no such alias."""
        if qualifier is not None and qualifier.lower() != self.alias.lower():
            return None
        return [(each, each) for each in self.columns if each not in self.output.hidden]

    def choices(self, parts: Sequence[str]) -> tuple[str, ...]:
        """The qualified forms of an ambiguous name; empty if there are none."""
        return ()

    def resolve(self, parts: Sequence[str]) -> tuple[int, str] | None:
        """The index of the column in a dotted name, and the column's declared name.

        Parts before it are a qualifier; parts after it are fields of a struct.
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
        """Mark a column as used that the query does not name itself, by its declared name."""

    def time(self, column: str) -> EventTime | None:
        """The event time of a column; None if it is not event time."""
        return self.output.times.get(column.lower())


def plain_column(node: exp.Expr, scope: Scope) -> str:
    """The declared name of a column, if the expression is nothing else; empty otherwise."""
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
        return ""
    parts = [each.name for each in node.parts]
    found = scope.resolve(parts)
    return found[1] if found and found[0] == len(parts) - 1 else ""
