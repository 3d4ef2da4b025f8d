"""The rules of a contract for the rows of a view: plain values, which travel to the executors.

``config.contracts`` reads them from YAML; ``spark.contracts`` checks rows against them. Types are
spelled as by Spark's ``simpleString``, such as ``array<string>``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Final

INTEGERS: Final = frozenset({"tinyint", "smallint", "int", "bigint"})
FLOATS: Final = frozenset({"float", "double"})
NESTED: Final = frozenset({"array", "map", "struct", "variant"})
# The largest number of digits before and after the point that Arrow compares exactly.
DIGITS: Final = 38


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """The type that a column must have.

    Attributes:
        dtype: As its author wrote it; empty if any type will do.
        types: The types that ``dtype`` allows: a bare ``decimal`` allows every precision.
        line: The line of the contract.
    """

    column: str
    dtype: str
    types: tuple[str, ...]
    nullable: bool
    line: int

    def allows(self, kind: str) -> bool:
        """Whether a column may have a type."""
        plain = _plain(kind)
        return not self.types or any(each in (plain, base(plain)) for each in self.types)


@dataclass(frozen=True, slots=True)
class CheckRule:
    """A check that every value of a column must pass, nulls apart.

    Attributes:
        check: The full name of pandera's check, never an alias.
        arguments: By pandera's names.
    """

    column: str
    check: str
    arguments: Mapping[str, Any]
    line: int

    def __str__(self) -> str:
        """As a call, such as ``in_range(0, 5)`` or ``str_startswith('/')``."""
        shown = (
            repr(each) if isinstance(each, str) else str(each) for each in self.arguments.values()
        )
        return f"{self.check}({', '.join(shown)})"

    def misfit(self, kind: str) -> str:
        """Why it cannot be checked on a column of a type; empty if it can."""
        try:
            self.bounds(kind)
        except ValueError as error:
            return f"{self} cannot be checked on a column of type {kind}: {error}"
        return ""

    def bounds(self, kind: str) -> dict[str, Any]:
        """Its arguments; those that values are compared with, converted to the column's type.

        Raises:
            ValueError: It cannot be checked on a column of this type.
        """
        if self.check.startswith("str_"):
            if kind != "string":
                raise ValueError("it is for strings")
            return dict(self.arguments)
        return {name: _bound(name, value, kind) for name, value in self.arguments.items()}


@dataclass(frozen=True, slots=True)
class UniqueRule:
    """Columns whose values no two rows of an epoch may share.

    Attributes:
        report: Which of several equal rows count as broken: ``all``, ``exclude_first`` or
            ``exclude_last``.
    """

    columns: tuple[str, ...]
    report: str
    line: int


@dataclass(frozen=True, slots=True)
class ContractRules:
    """All rules of a contract."""

    columns: tuple[ColumnRule, ...] = ()
    checks: tuple[CheckRule, ...] = ()
    unique: tuple[UniqueRule, ...] = ()

    def misfits(self, kinds: Mapping[str, str]) -> Iterator[tuple[int, str]]:
        """Rules that the columns' types alone break, each with its line of the contract.

        Args:
            kinds: The type of each column of the view.
        """
        for rule in self.columns:
            kind = kinds.get(rule.column)
            if kind is None:
                yield rule.line, f"{rule.column}: the view has no such column"
            elif not rule.allows(kind):
                yield rule.line, f"{rule.column}: dtype('{rule.dtype}'), and it is {kind}"
        for check in self.checks:
            problem = check.misfit(kinds[check.column]) if check.column in kinds else ""
            if problem:
                yield check.line, f"{check.column}: {problem}"
        for unique in self.unique:
            for column in unique.columns:
                if base(kinds.get(column, "")) in NESTED:
                    yield unique.line, f"{column}: unique cannot be checked on {kinds[column]}"


def base(kind: str) -> str:
    """The name of a type without its parameters, such as ``array`` or ``decimal``."""
    return kind.partition("<")[0].partition("(")[0]


def _plain(kind: str) -> str:
    """The same text for the same type, however the names of its fields are quoted and cased."""
    return kind.replace("`", "").replace(" ", "").lower()


def _bound(name: str, value: Any, kind: str) -> Any:
    if name in ("include_min", "include_max"):
        return value
    if isinstance(value, list | tuple):
        return [_value(each, kind) for each in value]
    return _value(value, kind)


def _value(value: Any, kind: str) -> Any:
    name = base(kind)
    if name in INTEGERS or name == "decimal":
        return _number(value, name)
    if name in FLOATS and isinstance(value, int | float) and not isinstance(value, bool):
        if value != value:
            raise ValueError("NaN equals nothing")
        return float(value)
    if name in ("timestamp", "timestamp_ntz"):
        return _instant(value, name)
    if name == "date":
        return _day(value)
    wanted: Mapping[str, type] = {"string": str, "boolean": bool, "binary": bytes}
    if name not in wanted:
        why = "nothing is compared with it" if name not in FLOATS else f"{value!r} is no number"
        raise ValueError(why)
    if not isinstance(value, wanted[name]):
        raise ValueError(f"{value!r} is not of that type")
    return value


def _number(value: Any, name: str) -> Decimal:
    """A number as an exact decimal: 0.1 as written, not the nearest binary fraction."""
    is_text = isinstance(value, str) and name == "decimal"
    if isinstance(value, bool) or not (isinstance(value, int | float) or is_text):
        raise ValueError(f"{value!r} is no number")
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        raise ValueError(f"{value!r} is no number") from None
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{value!r} is not finite")
    if exponent < -DIGITS or len(digits) + exponent > DIGITS:
        raise ValueError(f"{value!r} has more than {DIGITS} digits before or after the point")
    return number


def _instant(value: Any, name: str) -> datetime:
    """A moment in UTC, or a time without a zone. A day is its midnight."""
    at = datetime.fromisoformat(value) if isinstance(value, str) else value
    if isinstance(at, date) and not isinstance(at, datetime):
        at = datetime.combine(at, time())
    if not isinstance(at, datetime):
        raise ValueError(f"{value!r} is no time")
    if name == "timestamp":
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    if at.tzinfo is not None:
        raise ValueError(f"{value!r} has a zone, and the column has none")
    return at


def _day(value: Any) -> date:
    day = date.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(day, date) or isinstance(day, datetime):
        raise ValueError(f"{value!r} is no date")
    return day
