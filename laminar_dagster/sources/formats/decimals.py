"""Decimals from text and from JSON, where Arrow's own readers cannot be trusted.

Arrow scales the digits of a decimal without a look at whether they overflow: of 38 digits, some
large numbers become others. It looks up the power of ten by which to scale in a table, and does
not look where the table ends: a small enough exponent is read as zero, or ends the process. So it
is given only what it reads right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

# What a decimal of 128 bits holds for sure.
_DIGITS: Final = 38
# As much, of 256 bits.
_WIDE_DIGITS: Final = 76
_SPELLING: Final = re.compile(r"[+-]?(?:\d+\.?(\d*)|\.(\d+))(?:[eE]([+-]?\d+))?", re.ASCII)
# Only behind such an exponent may a number have more decimal places than the tables have powers.
_SMALL: Final = re.compile(rb"[eE]-\d")
_INFINITE: Final = re.compile(rb"\bInf\b")


def wire_type(kind: pa.Decimal128Type) -> pa.DataType:
    """What to ask the parser of JSON for, which takes as many digits as the type has."""
    if kind.precision + kind.scale <= _DIGITS:
        return kind
    return pa.decimal256(kind.precision, kind.scale)


def from_text(array: pa.StringArray, kind: pa.Decimal128Type) -> pa.Array:
    """Read decimals, with white space around them or without.

    Raises:
        ValueError: A text is no number, or one that the type cannot hold exactly.
    """
    longest = pc.max(pc.binary_length(array)).as_py() or 0
    odd = pc.or_(pc.match_substring(array, "e"), pc.match_substring(array, "E"))
    if longest > _DIGITS:
        odd = pc.or_(odd, pc.greater(pc.binary_length(array), _DIGITS))
    if not pc.any(odd).as_py():
        return _from_digits(array, kind, longest)
    plain = _from_digits(pc.if_else(odd, None, array), kind, min(longest, _DIGITS))
    exact = pc.if_else(odd, array, None).to_pylist()
    return pc.coalesce(
        plain, pa.array([None if each is None else _exact(each, kind) for each in exact], kind)
    )


def _from_digits(array: pa.StringArray, kind: pa.Decimal128Type, longest: int) -> pa.Array:
    """Read texts of up to 38 characters that have no exponent."""
    is_narrow = longest + kind.scale <= _DIGITS
    wide = kind if is_narrow else pa.decimal256(_WIDE_DIGITS, kind.scale)
    try:
        found = pc.cast(array, wide)
    except ValueError:
        found = pc.cast(pc.ascii_trim_whitespace(array), wide)
    return found if is_narrow else pc.cast(found, kind)


def _exact(text: str, kind: pa.Decimal128Type) -> Decimal:
    text = text.strip(" \t\n\v\f\r")
    if not _SPELLING.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is not a number")
    context = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])
    try:
        return Decimal(text).quantize(Decimal((0, (1,), -kind.scale)), context=context)
    except (Inexact, InvalidOperation):
        raise ValueError(f"{text[:80]} cannot be {kind} without a loss") from None


def may_be_too_small(data: bytes) -> bool:
    """Whether there may be a number among lines of JSON that the parser must not see."""
    return (b"e-" in data or b"E-" in data) and _SMALL.search(data) is not None


def too_small(line: bytes, kinds: Mapping[str, pa.DataType]) -> str:
    """Why the parser must not see a line of JSON; empty when it may.

    Args:
        line: Of JSON, perhaps.
        kinds: The declared types.
    """
    if not _SMALL.search(line):
        return ""
    try:
        value = json.loads(
            # The parser knows the spelling ``Inf``.
            _INFINITE.sub(b"Infinity", line).decode(),
            strict=False,
            object_pairs_hook=tuple,
            parse_float=str,
            parse_int=str,
        )
    except RecursionError:
        return "nested too deeply"
    except ValueError as error:
        return f"not JSON: {error}"
    if not isinstance(value, tuple):
        return "not a JSON object"
    for name, each in value:
        if name in kinds and (number := _too_small(each, kinds[name])):
            return f"`{name}`: {number[:80]} has more decimal places than a decimal may have"
    return ""


def _too_small(value: Any, kind: pa.DataType) -> str:
    """The first number within a value that the parser must not see."""
    if pa.types.is_decimal(kind):
        return value if isinstance(value, str) and _places(value) > _most_places(kind) else ""
    inner: list[tuple[Any, pa.DataType]] = []
    if pa.types.is_map(kind) and isinstance(value, tuple):
        inner = [(each, kind.item_type) for _, each in value]
    elif pa.types.is_list(kind) and isinstance(value, list):
        inner = [(each, kind.value_type) for each in value]
    elif pa.types.is_struct(kind) and isinstance(value, tuple):
        kinds = {each.name: each.type for each in kind}
        inner = [(each, kinds[name]) for name, each in value if name in kinds]
    return next((found for each, within in inner if (found := _too_small(each, within))), "")


def _most_places(kind: pa.Decimal128Type) -> int:
    """More than any number has that the type can hold, and few enough for the parser's table."""
    return _DIGITS if wire_type(kind) == kind else _WIDE_DIGITS


def _places(text: str) -> int:
    found = _SPELLING.fullmatch(text)
    if not found or not found[3]:
        return 0
    # Digits that are more than a few cannot be made a number in reasonable time.
    exponent = found[3].lstrip("+-0")
    size = int(exponent or 0) if len(exponent) <= 9 else 10**9
    return len(found[1] or found[2] or "") + (size if found[3].startswith("-") else -size)
