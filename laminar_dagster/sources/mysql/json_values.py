"""Converts MySQL's binary JSON, as in the log, to the text that the server shows.

MariaDB stores JSON as text, which needs no conversion.
"""

from __future__ import annotations

import json
import struct
from typing import Final

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_DOUBLE, _STRING, _OPAQUE = 11, 12, 15
_LITERALS: Final = {0: "null", 1: "true", 2: "false"}
_NUMBERS: Final = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
# The server's own limit of nesting.
_DEEPEST: Final = 100


def json_text(data: bytes) -> str:
    """Convert one document.

    Raises:
        ValueError: It is invalid, or holds a value of a type that JSON does not have.
    """
    if not data:
        return "null"
    try:
        return _text(data[0], memoryview(data)[1:], 0)
    except (struct.error, IndexError, UnicodeDecodeError):
        raise ValueError("the JSON document is cut short") from None


def _text(kind: int, data: memoryview, depth: int) -> str:
    if depth > _DEEPEST:
        raise ValueError(f"the JSON document is nested more than {_DEEPEST} deep")
    if kind <= _LARGE_ARRAY:
        return _container(kind, data, depth)
    if kind == _LITERAL:
        return _LITERALS[data[0]]
    if kind in _NUMBERS:
        return str(struct.unpack_from(_NUMBERS[kind], data)[0])
    if kind == _DOUBLE:
        return _spelled(struct.unpack_from("<d", data)[0])
    if kind == _STRING:
        length, size = _length(data)
        return _quoted(data, size, length)
    if kind == _OPAQUE:
        raise ValueError(f"a JSON document holds MySQL's type {data[0]}, which JSON has not")
    raise ValueError(f"a JSON document holds a value of the unknown type {kind}")


def _container(kind: int, data: memoryview, depth: int) -> str:
    is_object, is_small = kind <= _LARGE_OBJECT, kind in (_SMALL_OBJECT, _SMALL_ARRAY)
    size, shape = (2, "<H") if is_small else (4, "<I")
    count, total = (struct.unpack_from(shape, data, at)[0] for at in (0, size))
    if total > len(data):
        raise ValueError("the JSON document is cut short")
    at = 2 * size
    keys: list[str] = []
    if is_object:
        for number in range(count):
            entry = at + number * (size + 2)
            (place,), (length,) = (
                struct.unpack_from(shape, data, entry),
                struct.unpack_from("<H", data, entry + size),
            )
            keys.append(_quoted(data, place, length))
        at += count * (size + 2)
    values: list[str] = []
    for number in range(count):
        entry = at + number * (size + 1)
        inner = data[entry]
        if inner in (_LITERAL, 5, 6) or (inner in (7, 8) and not is_small):
            values.append(_text(inner, data[entry + 1 :], depth + 1))
        else:
            (place,) = struct.unpack_from(shape, data, entry + 1)
            values.append(_text(inner, data[place:], depth + 1))
    if not is_object:
        return f"[{', '.join(values)}]"
    return f"{{{', '.join(f'{key}: {value}' for key, value in zip(keys, values, strict=True))}}}"


def _length(data: memoryview) -> tuple[int, int]:
    """A varint, seven bits a byte, lowest first, and its size in bytes."""
    found = 0
    for place in range(5):
        found |= (data[place] & 0x7F) << 7 * place
        if data[place] < 0x80:
            return found, place + 1
    raise ValueError("the JSON document holds a length that is none")


def _quoted(data: memoryview, start: int, length: int) -> str:
    if start + length > len(data):
        raise ValueError("the JSON document is cut short")
    return json.dumps(bytes(data[start : start + length]).decode(), ensure_ascii=False)


def _spelled(number: float) -> str:
    """A double with a point or an exponent, so that it does not look like an integer."""
    text = repr(number)
    mantissa, mark, exponent = text.partition("e")
    if not mark:
        return text
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"
