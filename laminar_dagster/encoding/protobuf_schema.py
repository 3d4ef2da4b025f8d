"""Protobuf descriptors: compiled from the text of ``.proto`` files, or from a descriptor set."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from laminar_dagster.core.errors import ComputeFailed

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

# The file name of the schema itself; no import has this name.
MAIN: Final = "__schema__.proto"
_SECONDS: Final = 60

_TYPES: Final = (
    *("", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string"),
    *("group", "message", "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)
# Google's wrapper messages: a value that may be null.
WRAPPERS: Final = frozenset(
    f"google.protobuf.{each}Value"
    for each in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


def compile_proto(text: str, imports: Mapping[str, str]) -> bytes:
    """A descriptor set of a ``.proto`` file and all that it imports.

    Args:
        text: The content of the file.
        imports: The content of other files, by import path. Google's own files come with the
            compiler.

    Raises:
        ValueError: The schema does not compile.
        ComputeFailed: The compiler was killed.
    """
    with tempfile.TemporaryDirectory(prefix="laminar-proto-") as name:
        folder = Path(name)
        for path, content in {**imports, MAIN: text}.items():
            parts = PurePosixPath(path)
            if parts.is_absolute() or ".." in parts.parts:
                raise ValueError(f"the Protobuf schema imports {path!r}, which is no relative path")
            (folder / parts).parent.mkdir(parents=True, exist_ok=True)
            (folder / parts).write_text(content)
        # In a process of its own: the compiler reports errors only on stderr.
        done = subprocess.run(
            [
                *(sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", "--include_imports"),
                *(f"--descriptor_set_out={folder / 'set'}", MAIN),
            ],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        if done.returncode < 0:
            # Killed by a signal, perhaps out of memory: that does not make the schema invalid.
            reason = f"it was ended by signal {-done.returncode}"
            raise ComputeFailed("the Protobuf compiler", reason)
        if done.returncode:
            told = done.stderr.replace(f"{folder}/", "")
            problem = " ".join(told.split()) or f"exit code {done.returncode}"
            raise ValueError(f"the Protobuf schema does not compile: {problem}")
        return (folder / "set").read_bytes()


def load(descriptor_set: bytes) -> dict[str, FileDescriptor]:
    """The files of a descriptor set by name, imported ones first.

    Raises:
        ValueError: It is not a descriptor set.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf.message import DecodeError

    pool: Any = descriptor_pool.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file
        for each in files:
            pool.Add(each)
        return {each.name: pool.FindFileByName(each.name) for each in files}
    except (DecodeError, TypeError, KeyError) as error:
        raise ValueError(f"the Protobuf descriptor set cannot be read: {error}") from None


def message_named(descriptor_set: bytes, name: str) -> Descriptor:
    """Find a message of a descriptor set by its full name.

    Raises:
        ValueError: There is no such message.
    """
    known: dict[str, Descriptor] = {}
    stack = [
        each
        for file in load(descriptor_set).values()
        for each in file.message_types_by_name.values()
    ]
    while stack:
        each = stack.pop()
        known[each.full_name] = each
        stack.extend(each.nested_types)
    if name not in known:
        names = ", ".join(sorted(known))
        raise ValueError(f"the Protobuf schema has no message `{name}`; it has: {names}")
    return known[name]


def message_at(file: FileDescriptor, path: Sequence[int]) -> Descriptor:
    """Find a message by its index path: its index in the file, then those of nested messages.

    The compiler adds a nested message for the entries of each map field. Producers in Python and Go
    count these in the path, those in Java do not. No record is a map entry, so a path that ends at
    one, or leads through one, was written by Java.

    Raises:
        ValueError: There is no message at this path.
    """
    if not path:
        raise ValueError("the message does not say which message of the schema it is")
    found = _message_at(file, path, counts_entries=True)
    if found is None or found.GetOptions().map_entry:
        found = _message_at(file, path, counts_entries=False)
    if found is None:
        raise ValueError(f"the Protobuf schema has no message at {list(path)}")
    return found


def _message_at(
    file: FileDescriptor, path: Sequence[int], *, counts_entries: bool
) -> Descriptor | None:
    found: Descriptor | None = None
    for place in path:
        inside = found.nested_types if found else list(file.message_types_by_name.values())
        if not counts_entries:
            inside = [each for each in inside if not each.GetOptions().map_entry]
        if not 0 <= place < len(inside):
            return None
        found = inside[place]
    return found


def path_of(message: Descriptor) -> list[int]:
    """The index path of a message: the indices of its outer messages, then its own."""
    outer = message.containing_type
    beside = outer.nested_types if outer else list(message.file.message_types_by_name.values())
    places = [each.full_name for each in beside]
    return [*(path_of(outer) if outer else ()), places.index(message.full_name)]


def wire_name(field: FieldDescriptor) -> str:
    """The type of a field's values as ``.proto`` files spell it: ``sint64``, or ``message``."""
    return _TYPES[field.type]


def type_name(field: FieldDescriptor) -> str:
    """Describe a field's type for an error message."""
    name = wire_name(field)
    if field.message_type is not None:
        name = field.message_type.full_name
    elif field.enum_type is not None:
        name = f"enum {field.enum_type.full_name}"
    if is_map(field):
        return "map"
    return f"repeated {name}" if field.is_repeated else name


def is_map(field: FieldDescriptor) -> bool:
    """Whether a field is a map."""
    message = field.message_type
    return message is not None and message.GetOptions().map_entry
