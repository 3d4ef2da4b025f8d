"""Converts values as Debezium encodes them: time as numbers, decimals as bytes.

A timestamp is ISO 8601 text, or a number whose unit is stated by the schema in the message, else
by the source's options. A date is ISO 8601 text or days since 1970. A decimal is a number, text,
or its unscaled value in base64.
"""

from __future__ import annotations

import binascii
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.sources.formats.columns import BadRows, convert
from laminar_dagster.sources.formats.records import Offsets

TimeUnit = Literal["ms", "us", "ns"]
DecimalMode = Literal["string", "precise"]

# The parts of the ``schema`` beside an envelope that are read.
SCHEMA_TYPE: Final = pa.struct(
    {
        "fields": pa.list_(
            pa.struct(
                {
                    "field": pa.string(),
                    "fields": pa.list_(
                        pa.struct(
                            {
                                "field": pa.string(),
                                "type": pa.string(),
                                "name": pa.string(),
                                "parameters": pa.struct({"scale": pa.string()}),
                            }
                        )
                    ),
                }
            )
        )
    }
)

_UNITS: Final[dict[str, TimeUnit]] = {
    "io.debezium.time.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
    "org.apache.kafka.connect.data.Timestamp": "ms",
}
_DATES: Final = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
_PER_MICRO: Final[dict[TimeUnit, float]] = {"ms": 0.001, "us": 1, "ns": 1000}
_NAMES: Final[dict[TimeUnit, str]] = {
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
}

# The years 1 to 9999, the range of Spark's timestamps.
_FIRST_SECOND: Final = -62_135_596_800
_LAST_SECOND: Final = 253_402_300_799
_SECONDS_A_DAY: Final = 86_400
_PRECISE: Final = Context(prec=100)


@dataclass(frozen=True, slots=True)
class About:
    """What the schemas of some messages state of one column; null where they state nothing."""

    types: pa.StringArray
    names: pa.StringArray
    scales: pa.StringArray


@dataclass(frozen=True, slots=True)
class Told:
    """What the schemas of messages state of columns."""

    columns: dict[str, About]

    def of(self, name: str, places: Offsets) -> About:
        """What is stated of a column in the messages at some places."""
        found, indices = self.columns[name], pa.array(places)
        return About(
            found.types.take(indices), found.names.take(indices), found.scales.take(indices)
        )


def is_flexible(kind: pa.DataType) -> bool:
    """Whether values of a declared type may be text or numbers."""
    kinds = (pa.types.is_timestamp, pa.types.is_date32, pa.types.is_decimal)
    return any(is_kind(kind) for is_kind in kinds)


def wire_type(kind: pa.DataType, *, is_number: bool) -> pa.DataType:
    """The Arrow type to ask the parser for."""
    if not is_number:
        return pa.string()
    return kind if pa.types.is_decimal(kind) else pa.int64()


def told_by(schemas: pa.StructArray, names: list[str]) -> Told:
    """Read what the schemas of messages state of some columns."""
    count = len(schemas)
    parts, owners = _elements(pc.struct_field(schemas, "fields"), np.arange(count))
    is_after = _where_equal(pc.struct_field(parts, "field"), "after")
    parts, owners = parts.take(pa.array(is_after)), owners[is_after]
    fields, owners = _elements(pc.struct_field(parts, "fields"), owners)
    labels = pc.struct_field(fields, "field")
    columns: dict[str, About] = {}
    for name in names:
        rows = _where_equal(labels, name)
        places = np.full(count, -1, np.int64)
        places[owners[rows]] = rows
        indices = pa.array(places, mask=places < 0)
        columns[name] = About(
            pc.struct_field(fields, "type").take(indices),
            pc.struct_field(fields, "name").take(indices),
            pc.struct_field(fields, ["parameters", "scale"]).take(indices),
        )
    return Told(columns)


def finished(
    column: pa.Array,
    kind: pa.DataType,
    about: About | None,
    unit: TimeUnit,
    mode: DecimalMode | None,
) -> tuple[pa.Array, BadRows]:
    """Convert a column from its wire type to the declared type.

    Args:
        column: The column as it was parsed.
        kind: The declared type.
        about: What the messages' schemas state of the column; None without schemas.
        unit: The unit of timestamps, where the schema states none.
        mode: How text in decimals is encoded, where the schema states nothing.

    Returns:
        The column, null where the value does not fit, and the reason for each such row.
    """
    if pa.types.is_decimal(kind):
        return _decimals(column, kind, about, mode) if column.type != kind else (column, {})
    if pa.types.is_string(column.type):
        return convert(pa.chunked_array([column], pa.string()), kind)
    if pa.types.is_date32(kind):
        return _dates(column, about)
    return _timestamps(column, kind, about, unit)


def _timestamps(
    column: pa.Array, kind: pa.DataType, about: About | None, default: TimeUnit
) -> tuple[pa.Array, BadRows]:
    values, valid = _numbers(column)
    bad = _unlike(about, valid, tuple(_UNITS), kind)
    micros = np.zeros(len(values), np.int64)
    for unit, per_micro in _PER_MICRO.items():
        is_of = _of_unit(about, unit, default, len(values))
        low = int(_FIRST_SECOND * 1_000_000 * per_micro)
        high = int((_LAST_SECOND + 1) * 1_000_000 * per_micro)
        outside = is_of & valid & ((values < low) | (values >= high))
        for row in np.flatnonzero(outside).tolist():
            reason = f"{values[row]} {_NAMES[unit]} are beyond the year 9999 or before the year 1"
            hint = "" if _is_told(about, row) else "; `debezium.time.unit` sets the unit"
            bad.setdefault(row, reason + hint)
        chosen = is_of & valid & ~outside
        micros[chosen] = values[chosen] * 1000 if unit == "ms" else values[chosen] // int(per_micro)
    valid[list(bad)] = False
    return pa.array(micros, mask=~valid).cast(pa.timestamp("us")).cast(kind), bad


def _of_unit(
    about: About | None, unit: TimeUnit, default: TimeUnit, count: int
) -> npt.NDArray[np.bool_]:
    if about is None:
        return np.full(count, unit == default)
    names = [name for name, each in _UNITS.items() if each == unit]
    is_of: npt.NDArray[np.bool_] = pc.is_in(about.names, pa.array(names)).to_numpy(
        zero_copy_only=False
    )
    return is_of | (~_flags(about.names.is_valid()) & (unit == default))


def _dates(column: pa.Array, about: About | None) -> tuple[pa.Array, BadRows]:
    values, valid = _numbers(column)
    bad = _unlike(about, valid, _DATES, pa.date32())
    low, high = _FIRST_SECOND // _SECONDS_A_DAY, _LAST_SECOND // _SECONDS_A_DAY
    for row in np.flatnonzero(valid & ((values < low) | (values > high))).tolist():
        bad.setdefault(row, f"{values[row]} days are beyond the year 9999 or before the year 1")
    valid[list(bad)] = False
    days = np.where(valid, values, 0).astype(np.int32)
    return pa.array(days, mask=~valid).cast(pa.date32()), bad


def _unlike(
    about: About | None, valid: npt.NDArray[np.bool_], known: tuple[str, ...], kind: pa.DataType
) -> BadRows:
    """The rows whose message states another logical type than the declared one."""
    if about is None:
        return {}
    other = valid & _flags(about.names.is_valid())
    other &= ~_flags(pc.is_in(about.names, pa.array(known)))
    return {
        row: f"{about.names[row].as_py()[:80]} where {kind} is declared"
        for row in np.flatnonzero(other).tolist()
    }


def _is_told(about: About | None, row: int) -> bool:
    return about is not None and bool(about.names[row].is_valid)


def _decimals(
    column: pa.StringArray, kind: pa.DataType, about: About | None, mode: DecimalMode | None
) -> tuple[pa.Array, BadRows]:
    count = len(column)
    is_bytes = np.full(count, mode == "precise")
    is_text = np.full(count, mode == "string")
    if about is not None:
        told_bytes, told_text = (
            _flags(pc.equal(about.types, each)) for each in ("bytes", "string")
        )
        is_bytes = told_bytes | (is_bytes & ~told_text)
        is_text = told_text | (is_text & ~told_bytes)
    valid = _flags(column.is_valid())
    text = pc.if_else(pa.array(is_text), column, pa.scalar(None, pa.string()))
    found, bad = convert(pa.chunked_array([text]), kind)
    for row in np.flatnonzero(valid & ~is_bytes & ~is_text).tolist():
        bad[row] = "text may be a number or base64: set `debezium.decimal.mode`"
    rows = np.flatnonzero(valid & is_bytes).tolist()
    if not rows:
        return found, bad
    values: list[Decimal | None] = [None] * count
    for row in rows:
        scale = about.scales[row].as_py() if about is not None else None
        try:
            value = _from_base64(column[row].as_py(), kind.scale if scale is None else int(scale))
            values[row] = pa.scalar(value, kind).as_py()
        except (ValueError, pa.ArrowException) as error:
            bad[row] = str(error)
    return pc.coalesce(found, pa.array(values, kind)), bad


def _from_base64(text: str, scale: int) -> Decimal:
    try:
        raw = binascii.a2b_base64(text.encode(), strict_mode=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from None
    if not raw or len(raw) > 16:
        raise ValueError(f"{len(raw)} bytes are no decimal of up to 38 digits")
    return Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-scale, _PRECISE)


def _elements(lists: pa.ListArray, owners: Offsets) -> tuple[pa.StructArray, Offsets]:
    """The elements of lists, and the owner of each element's list."""
    parents = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    return lists.flatten(), owners[parents]


def _where_equal(column: pa.StringArray, text: str) -> Offsets:
    return np.flatnonzero(_flags(pc.equal(column, text)))


def _numbers(column: pa.Int64Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    values: npt.NDArray[np.int64] = column.fill_null(0).to_numpy(zero_copy_only=False)
    return values, _flags(column.is_valid())


def _flags(values: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    # Copied, because Arrow's own memory is read-only.
    flags: npt.NDArray[np.bool_] = values.fill_null(False).to_numpy(zero_copy_only=False).copy()
    return flags
