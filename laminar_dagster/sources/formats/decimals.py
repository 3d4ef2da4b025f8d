"""Reads decimals from text and JSON where Arrow's own readers cannot be trusted.

Arrow scales the digits of a decimal without checking for overflow: some large numbers of 38 digits
become others. And it looks up the power of ten in a table without a bounds check: a small enough
exponent is read as zero, or crashes the process. So Arrow is given only what it reads right.
"""

from __future__ import annotations

import re
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# The digits that a decimal of 128 bits always holds.
_DIGITS: Final = 38
# The digits that a decimal of 256 bits always holds.
_WIDE_DIGITS: Final = 76
_SPELLING: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
# Characters of a number, written as Unicode escapes.
_ESCAPED: Final = re.compile(rb"\\u00(?:2[bBdDeE]|3\d|[46]5)", re.ASCII)

_LOOK_BACK: Final = 64
_DIGIT: Final = np.isin(np.arange(256), np.frombuffer(b"0123456789", np.uint8))


def wire_type(kind: pa.Decimal128Type) -> pa.DataType:
    """The type to ask the JSON parser for: wide enough that scaling cannot overflow."""
    if kind.precision + kind.scale <= _DIGITS:
        return kind
    return pa.decimal256(kind.precision, kind.scale)


def from_text(array: pa.StringArray, kind: pa.Decimal128Type) -> pa.Array:
    """Parse decimals, which may have white space around them.

    Raises:
        ValueError: A text is no number, or the type cannot hold it exactly.
    """
    longest = pc.max(pc.binary_length(array)).as_py() or 0
    odd = pc.or_(pc.match_substring(array, "e"), pc.match_substring(array, "E"))
    if longest > _DIGITS:
        odd = pc.or_(odd, pc.greater(pc.binary_length(array), _DIGITS))
    if not pc.any(odd).as_py():
        return _from_digits(array, kind, longest)
    plain = _from_digits(pc.if_else(odd, None, array), kind, min(longest, _DIGITS))
    texts = pc.if_else(odd, array, None).to_pylist()
    return pc.coalesce(
        plain, pa.array([None if each is None else exact(each, kind) for each in texts], kind)
    )


def _from_digits(array: pa.StringArray, kind: pa.Decimal128Type, longest: int) -> pa.Array:
    """Parse texts of up to 38 characters without an exponent."""
    is_narrow = longest + kind.scale <= _DIGITS
    wide = kind if is_narrow else pa.decimal256(_WIDE_DIGITS, kind.scale)
    try:
        found = pc.cast(array, wide)
    except ValueError:
        found = pc.cast(pc.ascii_trim_whitespace(array), wide)
    return found if is_narrow else pc.cast(found, kind)


def exact(text: str, kind: pa.Decimal128Type) -> Decimal:
    """Parse one number exactly; it may have white space around it.

    Raises:
        ValueError: The text is no number, or the type cannot hold it exactly.
    """
    text = text.strip(" \t\n\v\f\r")
    found = _SPELLING.fullmatch(text)
    if not found:
        raise ValueError(f"{text[:80]!r} is not a number")
    if not found[1].strip("0."):
        # Python refuses a zero whose exponent has more than 18 digits.
        return Decimal((0, (0,), -kind.scale))
    context = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])
    try:
        return Decimal(text).quantize(Decimal((0, (1,), -kind.scale)), context=context)
    except (Inexact, InvalidOperation):
        raise ValueError(f"{text[:80]} cannot be {kind} without a loss") from None


def may_be_too_small(data: bytes) -> npt.NDArray[np.int64]:
    """Where lines of JSON may have a number so small that the parser might crash.

    Only a number with a negative exponent can have more decimal places than Arrow's table has
    powers of ten.
    """
    places: list[int] = []
    if b"e-" in data or b"E-" in data:
        raw = np.frombuffer(data, np.uint8)
        signs = np.flatnonzero(raw == ord("-"))
        signs = signs[(signs > 1) & (signs + 1 < len(raw))]
        is_power = (raw[signs - 1] | 0x20) == ord("e")
        is_power &= _DIGIT[raw[signs + 1]] & (_DIGIT[raw[signs - 2]] | (raw[signs - 2] == ord(".")))
        places += (each for each in signs[is_power].tolist() if _ends_number(data, each - 1))
    if b"\\u00" in data:
        places += (found.start() for found in _ESCAPED.finditer(data))
    return np.array(places, np.int64)


def _ends_number(data: bytes, end: int) -> bool:
    """Whether the digits before a place begin a token; in a UUID they rarely do."""
    before = data[max(0, end - _LOOK_BACK) : end].rstrip(b"0123456789.")
    return not before or not before[-1:].isalnum()
