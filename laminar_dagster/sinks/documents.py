"""Arrow values as JSON text, a column at a time.

For messages, and for targets without nested columns. Numbers and booleans are JSON numbers and
booleans; NaN and infinities, which JSON does not have, are null; decimals, dates and times are
strings, binary is base64, a duration is a number in its unit. A time with a zone is written in UTC.

Vectorised with Arrow's compute functions; only strings with characters to escape are rewritten.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.sinks.arrow_values import (
    elements,
    is_binary,
    is_list,
    is_string,
    offsets_of,
    owners_of,
    plain,
    plain_type,
    refuse_odd_text,
    refuse_twins,
)
from laminar_dagster.sinks.bad_values import BadValues, refuse
from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.pieces import binary, from_offsets, lengths_of, parts_of
from laminar_dagster.sinks.times import ODD_YEARS, odd_years

_SHORT: Final = {8: b"\\b", 9: b"\\t", 10: b"\\n", 12: b"\\f", 13: b"\\r", 34: b'\\"', 92: b"\\\\"}
_LONGEST: Final = 6
# The escaped form of each byte within a JSON string, and its length.
_SPELT: Final = np.zeros((256, _LONGEST), np.uint8)
_SIZES: Final = np.ones(256, np.int64)
_SPELT[:, 0] = np.arange(256)
for _code in (*range(32), 34, 92):
    _text = _SHORT.get(_code, f"\\u{_code:04x}".encode())
    _SPELT[_code, : len(_text)] = np.frombuffer(_text, np.uint8)
    _SIZES[_code] = len(_text)
_THERE: Final = np.arange(_LONGEST) < _SIZES[:, None]

_ALPHABET: Final = f"{string.ascii_uppercase}{string.ascii_lowercase}{string.digits}+/"
_BASE64: Final = np.frombuffer(_ALPHABET.encode(), np.uint8)

_KNOWN: Final = (
    *(pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    *(pa.types.is_date, pa.types.is_time, pa.types.is_timestamp, pa.types.is_duration),
    *(is_string, is_binary),
)


def check_json(column: str, kind: pa.DataType) -> None:
    """Refuse a type that cannot be written as JSON.

    Raises:
        Unwritable: The type, or a type nested in it, has no JSON form.
    """
    types, kind = pa.types, plain_type(kind)
    if types.is_map(kind):
        if types.is_nested(kind.key_type):
            raise Unwritable(
                f"column `{column}` has a map with keys of type {kind.key_type}, which JSON cannot"
                " hold; make them texts in the view"
            )
        check_json(column, kind.key_type)
        check_json(column, kind.item_type)
    elif types.is_struct(kind):
        for part in kind:
            check_json(column, part.type)
    elif is_list(kind):
        check_json(column, kind.value_type)
    elif not any(matches(kind) for matches in _KNOWN):
        raise Unwritable(
            f"column `{column}` has values of type {kind}, which JSON cannot hold; cast it in the"
            " view"
        )


def documents(array: pa.Array) -> pa.Array:
    """The JSON text of each value, as a StringArray; null where the value is null.

    Raises:
        BadValues: A value has no JSON form.
    """
    return json_texts(plain(array)).cast(pa.string())


def json_texts(array: pa.Array) -> pa.Array:
    """The JSON text of each value, as a LargeBinaryArray; null where the value is null.

    Args:
        array: Values from ``plain``, of a type that ``check_json`` accepts.

    Raises:
        BadValues: A value has no JSON form.
    """
    types, kind = pa.types, array.type
    if types.is_struct(kind):
        return _objects(array)
    if types.is_map(kind):
        return _maps(array)
    if types.is_large_list(kind):
        return _arrays(array)
    if types.is_floating(kind):
        return _floats(array)
    if types.is_boolean(kind) or types.is_integer(kind):
        return _printed(array)
    if types.is_duration(kind):
        return _printed(array.cast(pa.int64()))
    if types.is_large_string(kind):
        return _strings(array)
    if types.is_large_binary(kind):
        return _wrapped(b'"', _base64(array), b'"')
    refuse(odd_years(array), ODD_YEARS)
    if types.is_timestamp(kind) and kind.tz is not None:
        # Printing in the value's own zone is forty times slower in Arrow.
        return _wrapped(b'"', _printed(array.cast(pa.timestamp(kind.unit))), b'Z"')
    return _wrapped(b'"', _printed(array), b'"')


def objects(names: Sequence[str], texts: Sequence[pa.Array]) -> pa.Array:
    """JSON objects with these member names, from the JSON texts of their values."""
    parts: list[pa.Array | pa.Scalar] = []
    for place, (name, text) in enumerate(zip(names, texts, strict=True)):
        before = b"," if place else b"{"
        parts += [binary(before + _quoted(name) + b":"), text]
    return _joined(*parts, binary(b"}"))


def _quoted(name: str) -> bytes:
    codes = np.frombuffer(name.encode(), np.uint8)
    return b'"' + _SPELT[codes][_THERE[codes]].tobytes() + b'"'


def _joined(*parts: pa.Array | pa.Scalar) -> pa.Array:
    return pc.binary_join_element_wise(
        *parts, binary(b""), null_handling="replace", null_replacement="null"
    )


def _wrapped(before: bytes, texts: pa.Array, after: bytes) -> pa.Array:
    return pc.binary_join_element_wise(binary(before), texts, binary(after), binary(b""))


def _printed(array: pa.Array) -> pa.Array:
    return array.cast(pa.large_string()).cast(pa.large_binary())


def _floats(array: pa.Array) -> pa.Array:
    texts = pc.if_else(pc.is_finite(array), _printed(array), pa.scalar(None, pa.large_binary()))
    # Arrow prints 1.0 as 1, which a reader that infers types would take for an integer.
    bare = pc.and_(pc.equal(array, pc.trunc(array)), pc.invert(pc.match_substring(texts, "e")))
    if not pc.any(bare).as_py():
        return texts
    return pc.if_else(bare, _wrapped(b"", texts, b".0"), texts)


def _strings(array: pa.Array) -> pa.Array:
    refuse_odd_text(array)
    offsets, data = parts_of(array)
    raw = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    odd = (raw < 32) | (raw == 34) | (raw == 92)
    texts = array.cast(pa.large_binary())
    if odd.any():
        places = np.flatnonzero(odd) + offsets[0]
        rows = np.zeros(len(array), np.bool_)
        rows[np.searchsorted(offsets, places, side="right") - 1] = True
        texts = pc.replace_with_mask(texts, pa.array(rows), _escaped(texts.filter(pa.array(rows))))
    return _wrapped(b'"', texts, b'"')


def _escaped(texts: pa.Array) -> pa.Array:
    """Texts with control characters, quotes and backslashes escaped."""
    offsets, data = parts_of(texts)
    raw = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    sizes = offsets_of(_SIZES[raw])
    spelt = from_offsets(sizes[offsets - offsets[0]], pa.py_buffer(_SPELT[raw][_THERE[raw]]))
    return pc.if_else(texts.is_valid(), spelt, pa.scalar(None, pa.large_binary()))


def _base64(array: pa.Array) -> pa.Array:
    values = array.fill_null(b"")
    sizes = lengths_of(values)
    # Pad with zeros to groups of three bytes, each of which becomes four letters.
    missing = -sizes % 3
    zeros = pa.array([b"", b"\0", b"\0\0"], pa.large_binary()).take(pa.array(missing))
    offsets, data = parts_of(pc.binary_join_element_wise(values, zeros, binary(b"")))
    triples = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]].reshape(-1, 3)
    first, second, third = triples[:, 0], triples[:, 1], triples[:, 2]
    letters = np.empty((len(triples), 4), np.uint8)
    letters[:, 0] = first >> 2
    letters[:, 1] = (first & 3) << 4 | second >> 4
    letters[:, 2] = (second & 15) << 2 | third >> 6
    letters[:, 3] = third & 63
    spelt = _BASE64[letters]
    ends = (offsets[1:] - offsets[0]) // 3
    spelt[ends[missing > 0] - 1, 3] = ord("=")
    spelt[ends[missing > 1] - 1, 2] = ord("=")
    texts = from_offsets((offsets - offsets[0]) // 3 * 4, pa.py_buffer(spelt))
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.large_binary()))


def _objects(array: pa.Array) -> pa.Array:
    names = [part.name for part in array.type]
    texts = []
    for name, part in zip(names, array.flatten(), strict=True):
        try:
            texts.append(json_texts(part))
        except BadValues as bad:
            raise bad.within(np.arange(len(array)), len(array), name) from None
    if not names:
        return _or_null(
            array, from_offsets(np.arange(len(array) + 1) * 2, pa.py_buffer(b"{}" * len(array)))
        )
    return _or_null(array, objects(names, texts))


def _arrays(array: pa.Array) -> pa.Array:
    counts, values = elements(array)
    try:
        texts = json_texts(values)
    except BadValues as bad:
        raise bad.within(owners_of(counts), len(array), "element") from None
    return _or_null(array, _wrapped(b"[", _in_lists(counts, texts), b"]"))


def _maps(array: pa.Array) -> pa.Array:
    counts, pairs = elements(array)
    keys, values = pairs.flatten()
    try:
        spelt = _keys(keys)
        texts = json_texts(values)
    except BadValues as bad:
        raise bad.within(owners_of(counts), len(array), "value") from None
    refuse_twins(counts, spelt)
    members = _joined(spelt, binary(b":"), texts)
    return _or_null(array, _wrapped(b"{", _in_lists(counts, members), b"}"))


def _keys(keys: pa.Array) -> pa.Array:
    texts = json_texts(keys)
    refuse(texts.is_null().to_numpy(zero_copy_only=False), "have a key that JSON cannot spell")
    types, kind = pa.types, keys.type
    is_bare = (
        types.is_primitive(kind) and not types.is_temporal(kind) and not types.is_decimal(kind)
    )
    return _wrapped(b'"', texts, b'"') if is_bare or types.is_duration(kind) else texts


def _in_lists(counts: np.ndarray, texts: pa.Array) -> pa.Array:
    """The element texts of each row, joined with commas."""
    whole = texts.fill_null(b"null")
    lists = pa.LargeListArray.from_arrays(pa.array(offsets_of(counts)), whole)
    return pc.binary_join(lists, binary(b","))


def _or_null(array: pa.Array, texts: pa.Array) -> pa.Array:
    if not array.null_count:
        return texts
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.large_binary()))
