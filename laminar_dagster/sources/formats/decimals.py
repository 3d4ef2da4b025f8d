"""Decimals from text and from JSON, where Arrow's own readers cannot be trusted.

Arrow scales the digits of a decimal without a look at whether they overflow: of 38 digits, some
large numbers become others. It looks up the power of ten by which to scale in a table, and does
not look where the table ends: a small enough exponent is read as zero, or ends the process. So it
is given only what it reads right.
"""

from __future__ import annotations

import re
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# What a decimal of 128 bits holds for sure.
_DIGITS: Final = 38
# As much, of 256 bits.
_WIDE_DIGITS: Final = 76
_SPELLING: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
# Characters of a number, in a text where each may be escaped.
_ESCAPED: Final = re.compile(rb"\\u00(?:2[bBdDeE]|3\d|[46]5)", re.ASCII)

_LOOK_BACK: Final = 64
_DIGIT: Final = np.isin(np.arange(256), np.frombuffer(b"0123456789", np.uint8))


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
    texts = pc.if_else(odd, array, None).to_pylist()
    return pc.coalesce(
        plain, pa.array([None if each is None else exact(each, kind) for each in texts], kind)
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


def exact(text: str, kind: pa.Decimal128Type) -> Decimal:
    """A number that is text, with white space around it or without.

    Raises:
        ValueError: It is none, or one that the type cannot hold exactly.
    """
    text = text.strip(" \t\n\v\f\r")
    found = _SPELLING.fullmatch(text)
    if not found:
        raise ValueError(f"{text[:80]!r} is not a number")
    if not found[1].strip("0."):
        # Python knows no zero whose exponent has more than 18 digits.
        return Decimal((0, (0,), -kind.scale))
    context = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])
    try:
        return Decimal(text).quantize(Decimal((0, (1,), -kind.scale)), context=context)
    except (Inexact, InvalidOperation):
        raise ValueError(f"{text[:80]} cannot be {kind} without a loss") from None


def may_be_too_small(data: bytes) -> npt.NDArray[np.int64]:
    """Where in lines of JSON there may be a number that the parser must not see.

    Only behind an exponent below zero may a number have more decimal places than the tables have
    powers.
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
    """Whether the digits before a place begin something: those of a UUID rarely do."""
    before = data[max(0, end - _LOOK_BACK) : end].rstrip(b"0123456789.")
    return not before or not before[-1:].isalnum()
