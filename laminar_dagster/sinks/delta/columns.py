"""Map the columns of a view to the columns of a Delta table.

Delta has signed integers, float and double, decimals up to 38 digits, strings, binary, booleans,
dates, timestamps in microseconds (with UTC, or without a zone), lists, structs and maps. A type
with an exact counterpart is cast to it; any other is refused by name, because the client would
silently cast and truncate. In an existing table, a column may be wider than the view's, also inside
lists, structs and maps; struct fields must be the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from laminar_dagster.core.ports import StagedOutput
from laminar_dagster.sinks.arrow_values import is_string
from laminar_dagster.sinks.changes import WEIGHT, Unwritable, split
from laminar_dagster.sinks.delta.partitions import check_partition_values
from laminar_dagster.sinks.staged import staged_columns


def target_schema(
    columns: tuple[pa.Field, ...], table: pa.Schema | None, *, create: bool
) -> pa.Schema:
    """The schema in which a view's columns are written to a Delta table.

    Args:
        columns: The view's columns.
        table: The Delta table's schema; None when the table is to be created.
        create: Whether columns that the table does not have may be added to it.

    Raises:
        Unwritable: A column does not fit, and why.
    """
    fields = [pa.field(each.name, _delta_type(each.name, each.type)) for each in columns]
    if table is None:
        return pa.schema(fields)
    there = {each.name: each for each in table}
    missing = [each.name for each in fields if each.name not in there]
    if missing and not create:
        names = _listed(missing)
        raise Unwritable(f"the Delta table has no column {names}; add it, or set create = 'true'")
    by_case = {name.casefold(): name for name in there}
    for name in missing:
        if other := by_case.get(name.casefold()):
            raise Unwritable(f"the Delta table's column is `{other}`, the view's is `{name}`")
    for each in table:
        if not each.nullable and each.name not in {field.name for field in fields}:
            raise Unwritable(f"the Delta table requires column `{each.name}`, the view has none")
    return pa.schema(
        [_as_in_table(each, there[each.name]) if each.name in there else each for each in fields]
    )


def cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the given types.

    Raises:
        Unwritable: A value does not fit, or is a string that is not UTF-8; nothing is truncated.
    """
    columns = []
    for field in schema:
        try:
            column = table.column(field.name).cast(field.type, safe=True)
        except pa.ArrowException as error:
            raise Unwritable(f"a value of column `{field.name}` does not fit: {error}") from error
        if _has_text(field.type):
            _refuse_odd_text(field.name, column)
        columns.append(column)
    return pa.table(columns, schema=schema)


def check_staged(
    staged: StagedOutput, target: pa.Schema, key: tuple[str, ...], partitioned_by: Sequence[str]
) -> None:
    """Refuse keys, weights and values that a commit would. Reads only columns that could be bad.

    Args:
        staged: The staged output of an epoch.
        target: The schema in which its columns are written.
        key: The key columns in upsert mode; empty in append mode.
        partitioned_by: The table's partition columns.

    Raises:
        Unwritable: Says which column, and why.
        ObjectMissing, ChecksumMismatch, MalformedDocument: A file cannot be read.
    """

    def wanted(schema: pa.Schema) -> list[str]:
        in_doubt = [each.name for each in target if _may_refuse(schema.field(each.name).type, each)]
        names = dict.fromkeys((*key, WEIGHT, *in_doubt, *partitioned_by))
        return [name for name in names if name in schema.names]

    for read in staged_columns(staged, wanted):
        if read.column_names:
            rows = split(read, key, one_row_per_key=bool(key)).rows
            rows = cast(rows, pa.schema([target.field(name) for name in rows.column_names]))
            check_partition_values(partitioned_by, rows)


def _may_refuse(kind: pa.DataType, field: pa.Field) -> bool:
    return kind != field.type or _has_text(field.type)


def _has_text(kind: pa.DataType) -> bool:
    return is_string(kind) or any(
        _has_text(kind.field(place).type) for place in range(kind.num_fields)
    )


def _refuse_odd_text(name: str, column: pa.ChunkedArray) -> None:
    # The client would write the bytes unchecked, and later merges could not read the file.
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise Unwritable(
            f"column `{name}` has values that are no UTF-8 text ({error}); keep them BINARY in the"
            " view, or encode them with base64"
        ) from None


def _delta_type(name: str, kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if (
        types.is_signed_integer(kind)
        or types.is_boolean(kind)
        or types.is_float32(kind)
        or types.is_float64(kind)
    ):
        return kind
    if types.is_float16(kind):
        return pa.float32()
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if (
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    ):
        return pa.binary()
    if types.is_decimal(kind) and kind.precision <= 38 and kind.scale >= 0:
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_date(kind):
        return pa.date32()
    if types.is_timestamp(kind):
        # Arrow stores zoned times in UTC; only the zone's name is lost.
        return pa.timestamp("us", "UTC" if kind.tz is not None else None)
    if types.is_dictionary(kind):
        return _delta_type(name, kind.value_type)
    if types.is_map(kind):
        return pa.map_(_delta_type(name, kind.key_type), _delta_type(name, kind.item_type))
    if types.is_struct(kind):
        return pa.struct([pa.field(part.name, _delta_type(name, part.type)) for part in kind])
    if _is_list(kind):
        return pa.list_(_delta_type(name, kind.value_type))
    raise Unwritable(
        f"column `{name}` is of type {kind}, which Delta cannot hold; cast it in the view"
    )


def _as_in_table(field: pa.Field, there: pa.Field) -> pa.Field:
    return pa.field(field.name, _stored_type(field.name, field.type, there.type))


def _stored_type(path: str, kind: pa.DataType, there: pa.DataType) -> pa.DataType:
    """The table's type, if it holds every value of the view's type unchanged.

    Nested types are checked down to their leaves: otherwise the client would turn 1.5 into 1 inside
    a struct, write null for a field of another spelling, and refuse an extra field only at commit.

    Raises:
        Unwritable: The table's type does not hold every value.
    """
    types = pa.types
    if types.is_struct(kind) and types.is_struct(there):
        _check_same_fields(path, kind, there)
        return pa.struct(
            [_inner(f"{path}.{part.name}", kind.field(part.name), part) for part in there]
        )
    if types.is_map(kind) and types.is_map(there):
        return pa.map_(
            _inner(f"{path}.key", kind.key_field, there.key_field),
            _inner(f"{path}.value", kind.item_field, there.item_field),
        )
    if _is_list(kind) and _is_list(there):
        return pa.list_(_inner(f"{path}.element", kind.value_field, there.value_field))
    stored = _delta_type(path, there)
    is_plain = not types.is_nested(kind) and not types.is_nested(stored)
    if is_plain and (kind == stored or _widens(kind, stored)):
        return stored
    raise Unwritable(
        f"column `{path}` is of type {kind}, the Delta table's is of type {stored};"
        " cast it in the view"
    )


def _inner(path: str, part: pa.Field, there: pa.Field) -> pa.Field:
    # Keeps the table's field name and nullability: with others the client's merge fails.
    return there.with_type(_stored_type(path, part.type, there.type))


def _check_same_fields(path: str, kind: pa.StructType, there: pa.StructType) -> None:
    ours, theirs = kind.names, there.names
    if sorted(ours) != sorted(theirs):
        raise Unwritable(
            f"column `{path}` has the fields {_listed(ours)}, the Delta table's has the fields"
            f" {_listed(theirs)}; give it the same fields in the view"
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(is_list)


def _widens(kind: pa.DataType, stored: pa.DataType) -> bool:
    types = pa.types
    both_whole = types.is_signed_integer(kind) and types.is_signed_integer(stored)
    both_float = types.is_floating(kind) and types.is_floating(stored)
    if both_whole or both_float:
        return bool(kind.bit_width <= stored.bit_width)
    if types.is_decimal(kind) and types.is_decimal(stored):
        return bool(kind.scale == stored.scale and kind.precision <= stored.precision)
    return False
