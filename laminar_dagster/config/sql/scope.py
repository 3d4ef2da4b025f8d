"""What a query can see: the columns of its input, and which of them are event time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class EventTime:
    """A column that a watermark speaks of.

    Attributes:
        sources: Whose watermarks hold it back.
        window_micros: Rows of a window of this length appear only when it has closed, that long
            after this time; 0 for a time that is already complete when its row appears.
        aligned: Whether the windows of that length do not overlap.
    """

    sources: tuple[str, ...]
    window_micros: int = 0
    aligned: bool = True


@dataclass(frozen=True, slots=True)
class Output:
    """The columns of a source, a view or a subquery.

    Attributes:
        times: Its columns of event time, by name in lower case.
        unknown: It is broken, and told so elsewhere: any column may be asked of it.
        lacks_retractions: What to set so that its ``_weight`` takes back every row that changes;
            empty if it does.
        rank: Its column of row numbers, of which the query around has to say how many it wants.
    """

    columns: tuple[str, ...] = ()
    times: Mapping[str, EventTime] = field(default_factory=dict)
    unknown: bool = False
    lacks_retractions: str = ""
    rank: str = ""


BROKEN = Output(unknown=True)


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

    def time(self, column: str) -> EventTime | None:
        """What a column is as event time; None if it is none."""
        return self.output.times.get(column.lower())
