"""``INTERVAL`` literals of a fixed length, in microseconds."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Final

from sqlglot import exp

_MICROS: Final = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
_VARYING: Final = {"MONTH", "QUARTER", "YEAR"}
_MAX_MICROS: Final = 366 * _MICROS["DAY"]

EXAMPLE: Final = "such as INTERVAL '5' SECOND or INTERVAL '1' HOUR"


class NoInterval(ValueError):
    """Something that is not an interval of a fixed length."""


def micros(node: exp.Expr) -> int:
    """The length of an interval literal.

    Raises:
        NoInterval: It is none, with the reason.
    """
    if not isinstance(node, exp.Interval):
        raise NoInterval(f"an INTERVAL is expected here, {EXAMPLE}")
    unit = node.args.get("unit")
    name = unit.name.upper() if isinstance(unit, exp.Var) else ""
    name = name.removesuffix("S")
    if name in _VARYING:
        raise NoInterval(f"a {name} has no fixed length; give it in days or shorter")
    if name not in _MICROS or not isinstance(node.this, exp.Literal):
        raise NoInterval(f"this INTERVAL cannot be read; write it {EXAMPLE}")
    try:
        length = Decimal(node.this.name.strip()) * _MICROS[name]
    except InvalidOperation:
        raise NoInterval(f"this INTERVAL cannot be read; write it {EXAMPLE}") from None
    # Before int(), which fails on infinity and hangs on a number with a huge exponent.
    if not length.is_finite() or not 0 <= length <= _MAX_MICROS:
        raise NoInterval("an INTERVAL here is between 0 and 366 days")
    if length != int(length):
        raise NoInterval("an INTERVAL here is a whole number of microseconds")
    return int(length)


def spelled(length: int) -> str:
    """A length as an interval literal, in the largest unit that fits."""
    for name in ("DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND"):
        if length and length % _MICROS[name] == 0:
            return f"INTERVAL '{length // _MICROS[name]}' {name}"
    return f"INTERVAL '{length}' MICROSECOND"
