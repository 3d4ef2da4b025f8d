"""Derive a Protobuf message from the columns of a view, as a descriptor and as ``.proto`` text.

Fields have the numbers of the columns, from 1. A nullable column is ``optional``, except lists and
maps, which Protobuf cannot make optional: a null one is written as empty. Nested messages are named
after their fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from laminar_dagster.encoding.protobuf_schema import MAIN
from laminar_dagster.sinks.arrow_values import is_binary, is_list, is_string, plain_type
from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.formats.encoder import message_columns

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        FieldDescriptorProto,
        FileDescriptorProto,
    )

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TIMESTAMP: Final = "google.protobuf.Timestamp"
_TIMESTAMP_FILE: Final = "google/protobuf/timestamp.proto"
# Comments for fields whose Protobuf type does not show their meaning.
_MEANINGS: Final = {
    "date": "days since 1970-01-01",
    "time": "microseconds since midnight",
    "duration": "microseconds",
    "decimal": "a decimal number",
    "wall": "a time without a zone, as if in UTC",
}


def derived_file(schema: pa.Schema, name: str) -> tuple[FileDescriptorProto, dict[str, str]]:
    """The descriptor of a file with a message for these columns, and comments by field name.

    Raises:
        Unwritable: Protobuf has no type for a column, or does not allow its name.
    """
    from google.protobuf import descriptor_pb2

    for part in name.split("."):
        if not _NAME.fullmatch(part):
            raise Unwritable(f"`{name}` is no name of a message; take letters, digits and _")
    package, _, simple = name.rpartition(".")
    file = descriptor_pb2.FileDescriptorProto(name=MAIN, package=package, syntax="proto3")
    deriver = _Deriver(descriptor_pb2.FieldDescriptorProto)
    deriver.message(file.message_type.add(name=simple), message_columns(schema), name, "")
    if deriver.has_times:
        file.dependency.append(_TIMESTAMP_FILE)
    return file, deriver.meanings


class _Deriver:
    def __init__(self, forms: type[FieldDescriptorProto]) -> None:
        self._forms: Any = forms
        self.meanings: dict[str, str] = {}
        self.has_times = False

    def message(
        self, made: DescriptorProto, fields: Sequence[pa.Field], full_name: str, path: str
    ) -> None:
        self._check_names(fields, path)
        taken = {field.name for field in fields}
        maps = _maps(fields, taken)
        for number, field in enumerate(fields, 1):
            under = f"{path}.{field.name}" if path else field.name
            one = made.field.add(name=field.name, number=number)
            one.label = self._forms.LABEL_OPTIONAL
            kind = plain_type(field.type)
            if is_list(kind):
                one.label = self._forms.LABEL_REPEATED
                self._type(one, kind.value_type, made, taken, full_name, under)
            elif field.name in maps:
                self._map(one, kind, made, taken, full_name, under)
            elif pa.types.is_map(kind):
                one.label = self._forms.LABEL_REPEATED
                self._nested(one, _pair(kind), made, taken, full_name, under)
            else:
                self._type(one, kind, made, taken, full_name, under)
                if field.nullable and not one.type_name:
                    one.proto3_optional = True
                    one.oneof_index = len(made.oneof_decl)
                    made.oneof_decl.add(name=_free(f"_{field.name}", taken))

    def _check_names(self, fields: Sequence[pa.Field], path: str) -> None:
        known: dict[str, str] = {}
        for field in fields:
            under = f"{path}.{field.name}" if path else field.name
            if not _NAME.fullmatch(field.name):
                raise Unwritable(
                    f"column `{under}` has a name that Protobuf cannot spell; rename it in the"
                    " view, with letters, digits and _"
                )
            # Names must differ in Protobuf's JSON form too, which turns `a_b` into `aB`.
            json_name = re.sub("_+(.?)", lambda found: found[1].upper(), field.name)
            if json_name in known:
                raise Unwritable(
                    f"the columns `{known[json_name]}` and `{under}` are one name to Protobuf;"
                    " rename one of them in the view"
                )
            known[json_name] = field.name

    def _map(
        self,
        one: FieldDescriptorProto,
        kind: pa.DataType,
        made: DescriptorProto,
        taken: set[str],
        full_name: str,
        path: str,
    ) -> None:
        one.label, one.type = self._forms.LABEL_REPEATED, self._forms.TYPE_MESSAGE
        entry = made.nested_type.add(name=_entry(one.name))
        entry.options.map_entry = True
        one.type_name = f".{full_name}.{entry.name}"
        for number, part in enumerate(_pair(kind), 1):
            inner = entry.field.add(name=part.name, number=number)
            inner.label = self._forms.LABEL_OPTIONAL
            # A message of the value is nested beside the entry, because the text of the file has
            # `map<…>` in place of the entry.
            self._type(inner, plain_type(part.type), made, taken, full_name, path, one.name)

    def _nested(
        self,
        one: FieldDescriptorProto,
        fields: Sequence[pa.Field],
        made: DescriptorProto,
        taken: set[str],
        full_name: str,
        path: str,
        called: str = "",
    ) -> None:
        name = _free(_camel(called or one.name), taken)
        one.type, one.type_name = self._forms.TYPE_MESSAGE, f".{full_name}.{name}"
        self.message(made.nested_type.add(name=name), fields, f"{full_name}.{name}", path)

    def _type(
        self,
        one: FieldDescriptorProto,
        kind: pa.DataType,
        made: DescriptorProto,
        taken: set[str],
        full_name: str,
        path: str,
        called: str = "",
    ) -> None:
        types = pa.types
        if types.is_struct(kind):
            self._nested(one, list(kind), made, taken, full_name, path, called)
        elif types.is_nested(kind):
            items = [pa.field("items", kind, nullable=False)]
            self._nested(one, items, made, taken, full_name, path, called)
        elif types.is_timestamp(kind):
            one.type, one.type_name = self._forms.TYPE_MESSAGE, f".{TIMESTAMP}"
            self.has_times = True
        else:
            one.type = getattr(self._forms, f"TYPE_{_scalar(kind, path).upper()}")
        meaning = _meaning(kind)
        if meaning:
            self.meanings[f"{full_name}.{called or one.name}"] = meaning


def _scalar(kind: pa.DataType, path: str) -> str:
    types = pa.types
    for matches, found in (
        (types.is_boolean, "bool"),
        (lambda each: each == pa.uint64(), "uint64"),
        (types.is_unsigned_integer, "uint32"),
        (types.is_int64, "int64"),
        (types.is_integer, "int32"),
        (types.is_float64, "double"),
        (types.is_floating, "float"),
        (is_string, "string"),
        (types.is_decimal, "string"),
        (is_binary, "bytes"),
        (types.is_date, "int32"),
        (types.is_time, "int64"),
        (types.is_duration, "int64"),
    ):
        if matches(kind):
            return found
    raise Unwritable(
        f"column `{path}` is of type {kind}, which Protobuf cannot hold; cast it in the view"
    )


def _meaning(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_timestamp(kind) and kind.tz is None:
        return _MEANINGS["wall"]
    for matches, name in (
        (types.is_date, "date"),
        (types.is_time, "time"),
        (types.is_duration, "duration"),
        (types.is_decimal, "decimal"),
    ):
        if matches(kind):
            return _MEANINGS[name]
    return ""


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) or "Message"


def _entry(name: str) -> str:
    """The name that the Protobuf compiler gives to a map's entry message."""
    return f"{_camel(name)}Entry"


def _maps(fields: Sequence[pa.Field], taken: set[str]) -> set[str]:
    """The fields that become Protobuf maps; adds the names of their entry messages to ``taken``."""
    types = pa.types
    found: set[str] = set()
    for field in fields:
        if types.is_map(field.type) and _entry(field.name) not in taken:
            key = plain_type(field.type.key_type)
            if types.is_integer(key) or types.is_boolean(key) or is_string(key):
                taken.add(_entry(field.name))
                found.add(field.name)
    return found


def _pair(kind: pa.DataType) -> list[pa.Field]:
    return [pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)]


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def text_of(file: FileDescriptorProto, meanings: dict[str, str]) -> str:
    """The ``.proto`` text of a file descriptor."""
    lines = ['syntax = "proto3";', ""]
    if file.package:
        lines += [f"package {file.package};", ""]
    if file.dependency:
        lines += [*(f'import "{each}";' for each in file.dependency), ""]
    for message in file.message_type:
        full_name = f"{file.package}.{message.name}" if file.package else message.name
        lines += _message_lines(message, full_name, meanings)
    return "\n".join([*lines, ""])


def _message_lines(
    message: DescriptorProto, full_name: str, meanings: dict[str, str]
) -> Iterator[str]:
    yield f"message {message.name} {{"
    entries = {each.name: each for each in message.nested_type if each.options.map_entry}
    for nested in message.nested_type:
        if nested.name not in entries:
            for line in _message_lines(nested, f"{full_name}.{nested.name}", meanings):
                yield f"  {line}"
    for field in message.field:
        entry = entries.get(field.type_name.rpartition(".")[2])
        if entry is not None:
            key, value = entry.field
            spelt = f"map<{_spelt(key, full_name)}, {_spelt(value, full_name)}>"
        elif field.label == field.LABEL_REPEATED:
            spelt = f"repeated {_spelt(field, full_name)}"
        else:
            spelt = f"{'optional ' * field.proto3_optional}{_spelt(field, full_name)}"
        meaning = meanings.get(f"{full_name}.{field.name}")
        note = f"  // {meaning}" if meaning else ""
        yield f"  {spelt} {field.name} = {field.number};{note}"
    yield "}"


def _spelt(field: FieldDescriptorProto, full_name: str) -> str:
    if field.type_name:
        near = field.type_name.removeprefix(f".{full_name}.")
        # Within a package with a part `google`, a relative `google.protobuf` would resolve wrongly.
        return near if "google" in full_name.split(".") else near.removeprefix(".")
    return field.Type.Name(field.type).removeprefix("TYPE_").lower()
