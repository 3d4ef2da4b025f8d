"""Compiles a writer's Avro schema and the declared columns into readers, once for each schema.

Declared columns are matched to the writer's fields by name or alias. Fields that are not declared
are skipped, columns that the writer lacks are null. The supported conversions:

- int and long: any integer, if the value fits; FLOAT, DOUBLE, DECIMAL
- float: FLOAT, DOUBLE; double: DOUBLE
- string and bytes: STRING, BINARY; fixed: BINARY; enum: STRING; uuid: STRING, or as its base type
- decimal: DECIMAL, if no digit is lost; date: DATE; timestamps: TIMESTAMP, TIMESTAMP_NTZ
- every other logical type: as its base type
- a union: as any of its branches. A record that holds a branch without conversion is bad
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from laminar_dagster.encoding.avro_schema import Named, resolved, type_name
from laminar_dagster.sources.formats import avro_read as read
from laminar_dagster.sources.formats import avro_walk as walk
from laminar_dagster.sources.formats.binary.numeric import (
    FromInts,
    dates_of,
    floats_of,
    integers_of,
    times_of,
    whole_decimals_of,
)

_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_UNITS: Final = {"millis": "ms", "micros": "us", "nanos": "ns"}
MAX_PRECISION: Final = 38
_ROOT: Final = "the record"


class Incompatible(ValueError):
    """A writer's type cannot become the declared one."""


def plan_of(schema: pa.Schema, writer: Any, named: Named) -> read.Struct:
    """The reader of messages of a writer's schema into the declared columns.

    Raises:
        Incompatible: A field cannot be converted to its declared type.
    """
    reader = Compiler(named).reader(writer, pa.struct(list(schema)), "")
    if not isinstance(reader, read.Struct):
        raise Incompatible(f"the schema is a {type_name(writer)}, not a record")
    return reader


class Compiler:
    """Builds the walkers and readers of one schema."""

    def __init__(self, named: Named) -> None:
        """Take the named types of the schema."""
        self._named = named
        self._walkers: dict[str, walk.Walker] = {}

    def walker(self, writer: Any, path: str) -> walk.Walker:
        """A walker that skips values of a type."""
        kind, details = resolved(writer, self._named)
        what = f"`{path}`" if path else _ROOT
        match kind:
            case "union":
                return walk.Branches(what, [self.walker(each, path) for each in details])
            case "int" | "long" | "enum":
                return walk.Varint(what)
            case "string" | "bytes":
                return walk.Prefixed(what)
            case "fixed":
                return walk.Sized(what, details["size"])
            case "array":
                return walk.Blocks(what, self.walker(details["items"], _under(path, "element")))
            case "map":
                return walk.Blocks(what, self._pair(details, path))
            case "record":
                return self._record(details, path, what)
        return walk.Sized(what, _SIZES[kind])

    def _pair(self, details: Mapping[str, Any], path: str) -> walk.Walker:
        key = walk.Prefixed(f"a key of `{path}`")
        return walk.Fields([key, self.walker(details["values"], _under(path, "value"))])

    def _record(self, details: Mapping[str, Any], path: str, what: str) -> walk.Walker:
        name = details["name"]
        if name in self._walkers:
            return self._walkers[name]
        # A recursive type refers to itself while it is being built: look it up when it is used.
        self._walkers[name] = walk.Named(what, lambda: self._walkers[name])
        made = walk.Fields(
            [self.walker(each["type"], _under(path, each["name"])) for each in details["fields"]]
        )
        self._walkers[name] = made
        return made

    def reader(self, writer: Any, kind: pa.DataType, path: str) -> read.Reader:
        """A reader of values of a writer's type into a declared type.

        Raises:
            Incompatible: There is no conversion.
        """
        name, details = resolved(writer, self._named)
        what = f"`{path}`" if path else _ROOT
        found: read.Reader | None = None
        match name:
            case "union":
                found = self._choice(details, kind, path)
            case "null":
                found = read.Nothing(kind)
            case "boolean" if pa.types.is_boolean(kind):
                found = read.Booleans(what)
            case "float" | "double" if pa.types.is_floating(kind):
                if kind.bit_width >= 8 * _SIZES[name]:
                    found = read.Floats(what, _SIZES[name], kind)
            case "int" | "long":
                convert = _from_ints(details.get("logicalType"), kind, what)
                found = convert and read.Ints(what, name == "int", convert)
            case "enum" if pa.types.is_string(kind):
                found = read.Symbols(what, pa.array(details["symbols"], pa.string()))
            case "string" | "bytes" | "fixed":
                found = _stretch(name, details, kind, what)
            case "array" if pa.types.is_list(kind):
                item = self.reader(details["items"], kind.value_type, _under(path, "element"))
                found = read.Lists(self._blocks(writer, path), item, kind)
            case "map" if pa.types.is_map(kind):
                key = self.reader("string", kind.key_type, _under(path, "key"))
                value = self.reader(details["values"], kind.item_type, _under(path, "value"))
                found = read.Maps(self._blocks(writer, path), key, value, kind)
            case "record" if pa.types.is_struct(kind):
                found = self._struct(details, list(kind), path)
        if found is None:
            raise Incompatible(f"{what}: {type_name(writer)} cannot become {kind}")
        return found

    def _blocks(self, writer: Any, path: str) -> walk.Blocks:
        made = self.walker(writer, path)
        assert isinstance(made, walk.Blocks)
        return made

    def _choice(self, branches: Sequence[Any], kind: pa.DataType, path: str) -> read.Reader:
        readers: list[read.Reader] = []
        problem: Incompatible | None = None
        for each in branches:
            try:
                readers.append(self.reader(each, kind, path))
            except Incompatible as error:
                problem = error
                readers.append(read.Unreadable(self.walker(each, path), kind, str(error)))
        if problem and all(isinstance(each, read.Unreadable | read.Nothing) for each in readers):
            raise problem
        walker = walk.Branches(f"`{path}`", [self.walker(each, path) for each in branches])
        return read.Choice(walker, readers, kind)

    def _struct(
        self, details: Mapping[str, Any], kinds: Sequence[pa.Field], path: str
    ) -> read.Struct:
        places = match_fields([each.name for each in kinds], details["fields"])
        fields: list[tuple[read.Reader, int] | walk.Walker] = []
        for number, each in enumerate(details["fields"]):
            under = _under(path, each["name"])
            place = places.get(number)
            if place is None:
                fields.append(self.walker(each["type"], under))
            else:
                under = _under(path, kinds[place].name)
                fields.append((self.reader(each["type"], kinds[place].type, under), place))
        return read.Struct(fields, kinds)


def match_fields(declared: Sequence[str], fields: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """The writer's field numbers, each with the number of the declared field it becomes."""
    names = {each["name"]: number for number, each in enumerate(fields)}
    aliases: dict[str, int] = {}
    for number, each in enumerate(fields):
        for alias in each.get("aliases", ()):
            aliases.setdefault(alias, number)
    found: dict[int, int] = {}
    for place, name in enumerate(declared):
        field = names.get(name)
        if field is not None:
            found[field] = place
    for place, name in enumerate(declared):
        field = aliases.get(name)
        if name not in names and field is not None:
            found.setdefault(field, place)
    return found


def _under(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _from_ints(logical: str | None, kind: pa.DataType, what: str) -> FromInts | None:
    if pa.types.is_integer(kind):
        return integers_of(kind, what)
    if logical == "date":
        return dates_of(what) if pa.types.is_date32(kind) else None
    clock, _, unit = (logical or "").rpartition("-")
    if pa.types.is_timestamp(kind) and clock in ("timestamp", "local-timestamp"):
        return times_of(kind, _UNITS[unit], what) if unit in _UNITS else None
    if clock in ("time", "timestamp", "local-timestamp"):
        return None
    if pa.types.is_floating(kind):
        return floats_of(kind)
    return whole_decimals_of(kind, what) if pa.types.is_decimal(kind) else None


def _stretch(
    name: str, details: Mapping[str, Any], kind: pa.DataType, what: str
) -> read.Reader | None:
    size = details["size"] if name == "fixed" else None
    logical = details.get("logicalType")
    if logical == "decimal" and name != "string" and pa.types.is_decimal(kind):
        scale = details.get("scale", 0)
        return read.Decimals(what, size, scale, kind) if scale <= MAX_PRECISION else None
    if logical == "uuid" and size == 16 and pa.types.is_string(kind):
        return read.Uuids(what)
    if pa.types.is_binary(kind) or (pa.types.is_string(kind) and size is None):
        return read.Stretches(what, size, kind)
    return None
