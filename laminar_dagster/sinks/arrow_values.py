"""Normalise Arrow arrays to the few layouts that encoders handle, and take lists apart."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.sinks.bad_values import BadValues, Rows, refuse
from laminar_dagster.sinks.numbers import Int64s


def plain(array: pa.Array) -> pa.Array:
    """Values without dictionaries, views and 16-bit floats; texts and bytes with 64-bit offsets."""
    kind = array.type
    if kind == plain_type(kind):
        return array
    if pa.types.is_struct(kind):
        # `flatten` masks the children of null structs, which may hold garbage, such as an index
        # outside the dictionary.
        parts = [plain(part) for part in array.flatten()]
        return pa.StructArray.from_arrays(
            parts, names=[part.name for part in kind], mask=array.is_null()
        )
    if pa.types.is_nested(kind):
        counts, values = elements(array)
        values, offsets, mask = plain(values), offsets_of(counts), array.is_null()
        if not pa.types.is_map(kind):
            return pa.LargeListArray.from_arrays(pa.array(offsets), values, mask=mask)
        starts = pa.array(offsets, pa.int32())
        return pa.MapArray.from_arrays(starts, *values.flatten(), mask=mask)
    if pa.types.is_dictionary(kind):
        return plain(array.cast(kind.value_type))
    return array.cast(plain_type(kind))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type that ``plain`` converts a type to."""
    types = pa.types
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_map(kind):
        key = kind.key_field.with_type(plain_type(kind.key_type))
        return pa.map_(key, kind.item_field.with_type(plain_type(kind.item_type)))
    if types.is_struct(kind):
        return pa.struct([part.with_type(plain_type(part.type)) for part in kind])
    if is_list(kind):
        return pa.large_list(kind.value_field.with_type(plain_type(kind.value_type)))
    if is_string(kind):
        return pa.large_string()
    if types.is_binary(kind) or types.is_binary_view(kind) or types.is_fixed_size_binary(kind):
        return pa.large_binary()
    # Arrow has few compute functions for 16-bit floats.
    return pa.float32() if types.is_float16(kind) else kind


def is_string(kind: pa.DataType) -> bool:
    """Whether a type is a string of any layout."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_binary(kind: pa.DataType) -> bool:
    """Whether a type is binary of any layout."""
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is a list of any layout."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def valid_rows(array: pa.Array) -> Rows:
    """A mask of the rows that are not null."""
    found: Rows = array.is_valid().to_numpy(zero_copy_only=False)
    return found


def elements(array: pa.Array) -> tuple[Int64s, pa.Array]:
    """The length of each list, and all elements; for maps, the entries as structs."""
    if pa.types.is_map(array.type):
        pair = [array.type.key_field.with_name("key"), array.type.item_field.with_name("value")]
        array = array.cast(pa.large_list(pa.struct(pair)))
    counts = pc.list_value_length(array).fill_null(0).cast(pa.int64())
    return counts.to_numpy(zero_copy_only=False), array.flatten()


def owners_of(counts: Int64s) -> Int64s:
    """The row of each element."""
    return np.repeat(np.arange(len(counts)), counts)


def offsets_of(counts: Int64s) -> Int64s:
    """The offset at which each row's elements begin, and the end of the last row's."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def refuse_twins(counts: Int64s, keys: pa.Array) -> None:
    """Refuse maps with a duplicate key: a reader would silently keep one of the values.

    Args:
        counts: How many keys each map has.
        keys: The keys of all maps, without nulls.

    Raises:
        BadValues: A map has a duplicate key.
    """
    if not len(keys) or counts.max() < 2:
        return
    owners = owners_of(counts)
    encoded = keys.dictionary_encode()
    pairs = owners * len(encoded.dictionary) + encoded.indices.to_numpy()
    order = np.argsort(pairs, kind="stable")
    again = order[1:][pairs[order][1:] == pairs[order][:-1]]
    if len(again):
        rows = np.zeros(len(counts), np.bool_)
        rows[owners[again]] = True
        raise BadValues(rows, "hold a key twice; keep one of them in the view")


def refuse_odd_text(array: pa.Array) -> None:
    """Refuse strings that are not UTF-8, which Spark's cast from binary produces unchecked.

    Args:
        array: A LargeStringArray.

    Raises:
        BadValues: A string is not UTF-8.
    """
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        raw = array.cast(pa.large_binary()).to_pylist()
        odd = np.fromiter((not _is_utf8(value) for value in raw), np.bool_, len(raw))
        refuse(odd, "are no UTF-8 text; keep them BINARY in the view, or encode them with base64")


def _is_utf8(value: bytes | None) -> bool:
    try:
        return value is None or value.decode() is not None
    except UnicodeDecodeError:
        return False
