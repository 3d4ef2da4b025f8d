"""The columns that a model declares: checks their types, and casts a model's output to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import pyarrow as pa

# The type of event time: a point in time, in microseconds.
TIMESTAMP: Final = pa.timestamp("us", "UTC")

# The types that a model may return its columns as.
Columns: TypeAlias = pa.Table | pa.RecordBatch | Mapping[str, Any]

_FAMILIES: Final = (
    ("a whole number", pa.types.is_signed_integer),
    ("a float", pa.types.is_floating),
    ("a decimal", pa.types.is_decimal),
    ("text", lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind)),
    ("binary", lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind)),
    ("a timestamp", pa.types.is_timestamp),
)


def unknown_type(kind: pa.DataType) -> str:
    """Why a type cannot be a column's type; empty if it can."""
    if pa.types.is_list(kind):
        return unknown_type(kind.value_type)
    if pa.types.is_struct(kind):
        return next((bad for field in kind if (bad := unknown_type(field.type))), "")
    if pa.types.is_map(kind):
        return unknown_type(kind.key_type) or unknown_type(kind.item_type)
    if pa.types.is_decimal128(kind):
        return ""
    if pa.types.is_timestamp(kind):
        known = kind in (TIMESTAMP, pa.timestamp("us"))
        return "" if known else f"{kind}: it has to be timestamp('us', 'UTC') or timestamp('us')"
    known = kind in _PLAIN
    return "" if known else f"{kind}: Spark has no such type"


_PLAIN: Final = (
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
)


def fitted(found: Columns, wanted: pa.Schema) -> pa.Table:
    """A model's return value as a table of the columns that it declares, in their order.

    Raises:
        ValueError: It lacks a column, has one too many, or one has another type.
    """
    if isinstance(found, pa.Table | pa.RecordBatch):
        given = {name: found.column(name) for name in found.schema.names}
    elif isinstance(found, Mapping):
        given = {name: _array(name, values) for name, values in found.items()}
    else:
        raise ValueError(f"it gave a {type(found).__name__} in place of a table")
    for name in wanted.names:
        if name not in given:
            raise ValueError(f"it gave no column `{name}`")
    for name in given:
        if name not in wanted.names:
            raise ValueError(f"it gave a column `{name}`, which it does not declare")
    columns = [_cast(given[each.name], each) for each in wanted]
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise ValueError(f"its columns have {' and '.join(map(str, sorted(lengths)))} rows")
    return pa.table(columns, schema=wanted)


def _array(name: str, values: Any) -> Any:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    raise ValueError(f"`{name}` is a {type(values).__name__} in place of an Arrow array")


def _cast(values: Any, wanted: pa.Field) -> Any:
    """Cast values to the declared type, if no value changes by that."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind = values.cast(kind.value_type), kind.value_type
    if kind == wanted.type:
        return values
    alike = any(test(kind) and test(wanted.type) for _, test in _FAMILIES)
    if not alike and not pa.types.is_null(kind) and not pa.types.is_nested(kind):
        raise ValueError(f"`{wanted.name}` is {kind}, and is declared as {wanted.type}")
    try:
        return values.cast(wanted.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        problem = f"`{wanted.name}` is {kind}, and is declared as {wanted.type}"
        raise ValueError(f"{problem}: {error}") from None
