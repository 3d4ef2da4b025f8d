"""Judges one JSON record by its bytes alone, and respells it for Arrow's parser.

Arrow's parser reads a batch in one go and does not say which record is bad: it reads some finite
numbers as infinity, refuses some zeros, and refuses a whole batch for one odd record. What it
refuses, or may have read wrong, is decided here: the record is bad, or its declared columns are
respelled so that the parser reads them right.

    a number for DOUBLE, FLOAT   the nearest value; too large is bad, too small is zero
    a number for whole numbers   digits alone, within the range of the type
    a number or text for DECIMAL exactly the number, with the scale of the type; else bad
    NaN, Infinity, Inf           with a sign or without, for DOUBLE and FLOAT alone
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Final

import numpy as np
import pyarrow as pa

from laminar_dagster.sources.formats import decimals
from laminar_dagster.sources.formats.columns import FLOATS, Unfit

# The deepest nesting of objects and arrays. Python's parser recurses, and how deep it can depends
# on the caller's stack; this limit is safe wherever it is called.
DEEPEST: Final = 256

_OPENERS: Final = np.frombuffer(b"[{", np.uint8)
_CLOSERS: Final = np.frombuffer(b"]}", np.uint8)
_STRING: Final = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_TEXT: Final = re.compile(_STRING.encode(), re.DOTALL)
# Arrow accepts these and Python does not. Strings are matched first, to leave their content.
_INFINITE: Final = re.compile(_STRING + r"|Inf(?!inity)|-NaN", re.DOTALL)
_RESPELT: Final = {"Inf": "Infinity", "-NaN": "NaN"}
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_WHOLE: Final = re.compile(r"-?\d+", re.ASCII)
_NUMBER: Final = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?)(\d+))?", re.ASCII)
# Numbers without an exponent and this short are always in the range of FLOAT.
_SHORT: Final = 25
# Digits of an exponent; a longer one makes any number zero or infinite, whatever its digits.
_POWER_DIGITS: Final = 18
# Powers of ten that the parser accepts; anything below them is zero as DOUBLE.
_LOWEST_POWER: Final = -400
_HIGHEST_POWER: Final = 308
# Half way between the largest FLOAT and the next power of two: rounds to infinity.
_FLOAT_END: Final = 2**128 - 2**103

# Spells a value that is not null, or raises ``Unfit``.
Speller = Callable[[Any], str]


class Members(list[tuple[str, Any]]):
    """The members of an object, in order, repeated ones included."""


class Number(str):
    """A number in its original spelling, so that no digit is lost."""

    __slots__ = ()


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=Members, parse_float=Number, parse_int=Number, parse_constant=Number
)


def record_speller(kinds: Mapping[str, pa.DataType]) -> Callable[[bytes], str]:
    """A function that spells the declared columns of a screened record, or raises ``Unfit``."""
    spell = _objects(kinds)
    return lambda line: spell(members_of(line))


def members_of(line: bytes) -> Members:
    """Parse a line that is a JSON object into its members.

    Raises:
        Unfit: The line is not a JSON object.
    """
    try:
        found = _DECODER.decode(_as_python_spells(line.decode()))
    except json.JSONDecodeError as error:
        raise Unfit(f"not JSON: {error.msg} at character {error.pos}") from None
    if not isinstance(found, Members):
        raise Unfit("not a JSON object")
    if _SURROGATE.search(line) and _has_lone_surrogate(found):
        raise Unfit("not JSON: half of a surrogate pair is no character")
    return found


def is_too_deep(text: bytes) -> bool:
    """Whether a record nests objects and arrays deeper than ``DEEPEST``."""
    if text.count(b"[") + text.count(b"{") <= DEEPEST:
        return False
    raw = np.frombuffer(_TEXT.sub(b"", text), np.uint8)
    steps = np.isin(raw, _OPENERS).astype(np.int64) - np.isin(raw, _CLOSERS)
    return bool((np.cumsum(steps) > DEEPEST).any())


def _as_python_spells(text: str) -> str:
    """Respell the infinities and NaNs that Python does not accept.

    Positions in Python's errors then may be further on than in the record.
    """
    if "Inf" not in text and "-NaN" not in text:
        return text
    return _INFINITE.sub(lambda found: _RESPELT.get(found[0], found[0]), text)


def _has_lone_surrogate(value: Any) -> bool:
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, (list, tuple)):
            left.extend(each)
        elif isinstance(each, str) and any("\ud800" <= letter <= "\udfff" for letter in each):
            return True
    return False


def _speller(kind: pa.DataType) -> Speller:
    if pa.types.is_integer(kind):
        return _integers(kind)
    if pa.types.is_floating(kind):
        return _floats(kind)
    if pa.types.is_decimal(kind):
        return _decimals(kind)
    if pa.types.is_map(kind):
        return _maps(kind)
    if pa.types.is_list(kind):
        return _lists(kind)
    if pa.types.is_struct(kind):
        return _structs(kind)
    if pa.types.is_boolean(kind):
        return lambda value: ("false", "true")[_of(bool, value, kind)]
    return lambda value: quoted(_of(str, value, kind))


def _of(wanted: type, value: Any, kind: pa.DataType) -> Any:
    if value.__class__ is not wanted:
        raise Unfit(f"{_NAMES[value.__class__]} where {kind} is declared")
    return value


_NAMES: Final[dict[type, str]] = {
    bool: "a boolean",
    Number: "a number",
    str: "text",
    list: "an array",
    Members: "an object",
}


def _integers(kind: pa.DataType) -> Speller:
    low, high = -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1)
    longest = len(str(low))

    def spell(value: Any) -> str:
        number: str = _of(Number, value, kind)
        if not _WHOLE.fullmatch(number):
            raise Unfit(f"a number where {kind} is declared, which is not whole: {number[:80]}")
        if len(number) > longest or not low <= int(number) < high:
            raise Unfit(f"the number is out of the range of {kind}")
        return number

    return spell


def _floats(kind: pa.DataType) -> Speller:
    def spell(value: Any) -> str:
        number: str = _of(Number, value, kind)
        if len(number) <= _SHORT and "e" not in number and "E" not in number:
            return number
        return _scaled(number, kind)

    return spell


def _scaled(number: str, kind: pa.DataType) -> str:
    """The same number in scientific notation."""
    found = _NUMBER.fullmatch(number)
    if found is None:
        raise Unfit(f"{number[:80]!r} is not a number")
    sign, whole, fraction, direction, power = found.groups("")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return f"{sign}0.0"
    power = power.lstrip("0")
    size = int(power or 0) if len(power) <= _POWER_DIGITS else 10**_POWER_DIGITS
    first = (-size if direction == "-" else size) + len(digits) - len(fraction) - 1
    if first < _LOWEST_POWER:
        return f"{sign}0.0"
    # Without trailing zeros, spellings of equal numbers do not differ in length alone.
    spelt = f"{sign}{digits[0]}.{digits[1:].rstrip('0') or '0'}e{first}"
    if first > _HIGHEST_POWER or math.isinf(nearest := float(spelt)):
        raise Unfit(f"the number is too large for {FLOATS[kind]}")
    if kind == pa.float32() and abs(nearest) >= _FLOAT_END:
        # The nearest DOUBLE may be the limit itself, and the number below it: compare exactly.
        # ``abs`` of a ``Decimal`` would round.
        if Decimal(spelt.lstrip("-")) >= _FLOAT_END:
            raise Unfit(f"the number is too large for {FLOATS[kind]}")
    return spelt


def _decimals(kind: pa.Decimal128Type) -> Speller:
    def spell(value: Any) -> str:
        if value.__class__ is not Number:
            _of(str, value, kind)
        try:
            return f"{decimals.exact(value, kind):f}"
        except ValueError as error:
            raise Unfit(str(error)) from None

    return spell


def _lists(kind: pa.ListType) -> Speller:
    spell = _speller(kind.value_type)
    return lambda value: (
        "["
        + ",".join(["null" if each is None else spell(each) for each in _of(list, value, kind)])
        + "]"
    )


def _structs(kind: pa.StructType) -> Speller:
    spell = _objects({each.name: each.type for each in kind})
    return lambda value: spell(_of(Members, value, kind))


def _objects(kinds: Mapping[str, pa.DataType]) -> Callable[[Members], str]:
    spellers = {name: (f"{quoted(name)}:", _speller(kind)) for name, kind in kinds.items()}

    def spell(members: Members) -> str:
        found: dict[str, str] = {}
        for name, value in members:
            if name not in spellers:
                continue
            if name in found:
                raise Unfit(f"`{name}` stands twice")
            begin, of_kind = spellers[name]
            try:
                found[name] = begin + ("null" if value is None else of_kind(value))
            except Unfit as error:
                raise Unfit(f"`{name}`: {error}") from None
        return "{" + ",".join(found.values()) + "}"

    return spell


def _maps(kind: pa.MapType) -> Speller:
    """Spell a map as a list of key-value pairs, which the parser can read."""
    of_item = _speller(kind.item_type)

    def spell(value: Any) -> str:
        pairs = _of(Members, value, kind)
        if len({name for name, _ in pairs}) != len(pairs):
            raise Unfit("a map's key stands twice")
        spelt = [
            f'{{"key":{quoted(name)},"value":{"null" if each is None else of_item(each)}}}'
            for name, each in pairs
        ]
        return f"[{','.join(spelt)}]"

    return spell
