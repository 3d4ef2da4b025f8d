"""YAML into frozen models: every mistake at once, each with its file, line and nearest spelling.

Safe on hostile files: plain data only, no aliases (which make bombs), a size limit. A value such
as ``${NAME}`` or ``${NAME:-default}`` is taken from the environment, and never shown in an error.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, get_args, get_origin

import msgspec
import yaml

from laminar_dagster.config.files import MAX_FILE_BYTES, read_text
from laminar_dagster.config.mistakes import InvalidPipeline, Mistake, listed, nearest
from laminar_dagster.config.variables import fill, has_variable
from laminar_dagster.core.errors import InvalidConfig, InvalidName

__all__ = ["MAX_FILE_BYTES", "Mistake", "Written", "compose", "read_model", "written"]

MAX_DEPTH: Final = 50

ModelT = TypeVar("ModelT", bound=msgspec.Struct)
Path_ = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Written:
    """A value as its author wrote it: its place, and its text if it is a scalar."""

    line: int
    text: str = ""
    column: int = 1


def read_model(
    path: Path, kind: type[ModelT], environment: Mapping[str, str] = os.environ
) -> ModelT:
    """Read a file as a model.

    Raises:
        InvalidPipeline: Lists every mistake.
        InvalidConfig: It is not YAML at all.
    """
    reader = _Reader(path, environment)
    value = reader.convert(compose(path), kind)
    if reader.mistakes:
        raise InvalidPipeline.of(reader.mistakes)
    model: ModelT = value
    return model


def written(node: yaml.Node) -> Mapping[Path_, Written]:
    """The place and text of each path of a document, such as ``("sinks", 0, "view")``."""
    return dict(_walk(node, ()))


def _walk(node: yaml.Node, path: Path_) -> Iterator[tuple[Path_, Written]]:
    mark = node.start_mark
    text = node.value if _is_scalar(node) else ""
    yield path, Written(_line(mark), text, mark.column + 1 if mark else 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _walk(value, (*path, str(key.value)))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _walk(value, (*path, index))


def compose(path: Path) -> yaml.Node:
    """Parse a file into nodes, which know their lines.

    Raises:
        InvalidConfig: It cannot be read, or is not plain YAML.
    """
    text = read_text(path)
    try:
        _check_events(path, text)
        node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except RecursionError:
        raise InvalidConfig(str(path), "it is nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        where = f"{path}:{_line(error.problem_mark)}"
        raise InvalidConfig(where, error.problem or "it is not YAML") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = f"it holds U+{ord(text[error.position]):04X}, which YAML does not allow"
        raise InvalidConfig(f"{path}:{line}", problem) from None
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidConfig(str(path), f"it is not YAML: {error}") from None
    if node is None:
        raise InvalidConfig(str(path), "it is empty")
    return node


def _check_events(path: Path, text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            where = f"{path}:{_line(event.start_mark)}"
            raise InvalidConfig(where, "aliases are not allowed", "write it out")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                where = f"{path}:{_line(event.start_mark)}"
                raise InvalidConfig(where, f"it is nested more than {MAX_DEPTH} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _line(mark: Any) -> int:
    return mark.line + 1 if mark else 1


def _is_scalar(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode)


class _Reader:
    """Walks a file's nodes along a model's fields, and collects mistakes."""

    def __init__(self, path: Path, environment: Mapping[str, str]) -> None:
        self._path = path
        self._environment = environment
        self._loader = yaml.SafeLoader("")
        self.mistakes: list[Mistake] = []

    def convert(self, node: yaml.Node, kind: Any) -> Any:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self._model(node, kind)
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is UnionType and len(arguments) == 2 and arguments[1] is NoneType:
            model = arguments[0]
            if isinstance(model, type) and issubclass(model, msgspec.Struct):
                return self._model(node, model)
        if origin is tuple and len(arguments) == 2 and arguments[1] is ...:
            return self._list(node, arguments[0])
        if origin is dict:
            return self._texts(node)
        return self._value(node, kind)

    def _value(self, node: yaml.Node, kind: Any) -> Any:
        before = len(self.mistakes)
        plain = self._plain(node)
        if len(self.mistakes) > before:
            return None
        from_environment = _is_scalar(node) and has_variable(node.value)
        try:
            # A variable is always text, also where a number is wanted.
            return msgspec.convert(plain, kind, strict=not from_environment, dec_hook=_build)
        except msgspec.ValidationError as error:
            # The error may quote the value, which may be a secret from the environment.
            shown = "the value from the environment does not fit" if from_environment else error
            self._add(node, str(shown))
            return None

    def _model(self, node: yaml.Node, kind: type[msgspec.Struct]) -> Any:
        if not isinstance(node, yaml.MappingNode):
            self._add(node, "a mapping is expected here")
            return None
        before = len(self.mistakes)
        fields = {each.encode_name: each for each in msgspec.structs.fields(kind)}
        values: dict[str, Any] = {}
        for key, key_node, value_node in self._entries(node):
            if key not in fields:
                hint = nearest(key, fields, listed(fields, "known keys", 40))
                self._add(key_node, f"unknown key `{_shortened(key)}`", hint)
            else:
                values[fields[key].name] = self.convert(value_node, fields[key].type)
        for name, each in fields.items():
            if each.required and each.name not in values:
                self._add(node, f"`{name}` is missing")
        if len(self.mistakes) > before:
            return None
        try:
            return kind(**values)
        except ValueError as error:
            self._add(node, str(error))
            return None

    def _list(self, node: yaml.Node, kind: Any) -> Any:
        if not isinstance(node, yaml.SequenceNode):
            self._add(node, "a list is expected here", "begin each item with `- `")
            return None
        return tuple(self.convert(each, kind) for each in node.value)

    def _texts(self, node: yaml.Node) -> Any:
        """Read a mapping to texts, such as options of a connector; scalars stay as written."""
        if not isinstance(node, yaml.MappingNode):
            self._add(node, "a mapping is expected here")
            return None
        found: dict[str, str] = {}
        for key, _, value in self._entries(node):
            if not _is_scalar(value):
                self._add(value, f"`{_shortened(key)}` is one value, not a list or a mapping")
            else:
                found[key] = self._filled(value)
        return found

    def _entries(self, node: yaml.MappingNode) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        seen: set[str] = set()
        for key_node, value_node in node.value:
            if not _is_scalar(key_node):
                self._add(key_node, "a key is a plain name")
                continue
            key = str(key_node.value)
            if key in seen:
                self._add(key_node, f"`{_shortened(key)}` stands here twice")
            else:
                seen.add(key)
                yield key, key_node, value_node

    def _plain(self, node: yaml.Node) -> Any:
        if isinstance(node, yaml.MappingNode):
            return {key: self._plain(value) for key, _, value in self._entries(node)}
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(value) for value in node.value]
        if has_variable(node.value):
            return self._filled(node)
        try:
            return self._loader.construct_object(node)
        except (yaml.YAMLError, ValueError, OverflowError):
            # For example a Python tag, the 31st of February, or a number of a million digits.
            self._add(node, "this value cannot be read", "put it in quotes if it is text")
            return None

    def _filled(self, node: yaml.Node) -> str:
        def missing(name: str) -> None:
            self._add(node, f"the environment has no {name}", f"set {name}")

        return fill(str(node.value), self._environment, missing)

    def _add(self, node: yaml.Node, problem: str, suggestion: str = "") -> None:
        where = f"{self._path}:{_line(node.start_mark)}"
        self.mistakes.append(Mistake(where, problem, suggestion))


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"


def _build(kind: type, value: Any) -> Any:
    """Build an identifier by its own class, which checks it."""
    try:
        return kind(value)
    except InvalidName as error:
        raise ValueError(str(error)) from None
