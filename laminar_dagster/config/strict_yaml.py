"""YAML into frozen models: every mistake at once, each with its file, line and nearest spelling.

Safe on hostile files: plain data only, no aliases (which make bombs), a size limit. A value such
as ``${NAME}`` or ``${NAME:-default}`` is taken from the environment, and never shown in an error.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import yaml

from laminar_dagster.core.errors import InvalidConfig, InvalidName

MAX_FILE_BYTES: Final = 1024 * 1024

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")

ModelT = TypeVar("ModelT", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong in a file."""

    where: str
    problem: str
    suggestion: str = ""

    def __str__(self) -> str:
        """As a line for people."""
        return f"{self.where}: {self.problem}" + (
            f" ({self.suggestion})" if self.suggestion else ""
        )


def read_model(
    path: Path, kind: type[ModelT], environment: Mapping[str, str] = os.environ
) -> ModelT:
    """Read a file as a model.

    Raises:
        InvalidConfig: Lists every mistake.
    """
    reader = _Reader(path, environment)
    node = _parse(path)
    value = reader.convert(node, kind)
    if reader.mistakes:
        first, *others = reader.mistakes
        problem = "; ".join([first.problem, *map(str, others)])
        raise InvalidConfig(first.where, problem, first.suggestion)
    model: ModelT = value
    return model


def _parse(path: Path) -> yaml.Node:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InvalidConfig(str(path), f"it is larger than {MAX_FILE_BYTES} bytes")
        text = path.read_text(encoding="utf-8")
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                where = f"{path}:{_line(event.start_mark)}"
                raise InvalidConfig(where, "aliases are not allowed", "write it out")
        node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except OSError as error:
        raise InvalidConfig(str(path), f"it cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidConfig(str(path), "it is not UTF-8") from None
    except RecursionError:
        raise InvalidConfig(str(path), "it is nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        where = f"{path}:{_line(error.problem_mark)}"
        raise InvalidConfig(where, error.problem or "it is not YAML") from None
    except yaml.YAMLError as error:
        raise InvalidConfig(str(path), f"it is not YAML: {error}") from None
    if node is None:
        raise InvalidConfig(str(path), "it is empty")
    return node


def _line(mark: Any) -> int:
    return mark.line + 1 if mark else 1


class _Reader:
    """Walks a file's nodes along a model's fields, and collects mistakes."""

    def __init__(self, path: Path, environment: Mapping[str, str]) -> None:
        self._path = path
        self._environment = environment
        self.mistakes: list[Mistake] = []

    def convert(self, node: yaml.Node, kind: Any) -> Any:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self._model(node, kind)
        before = len(self.mistakes)
        plain = self._plain(node)
        if len(self.mistakes) > before:
            return None
        from_environment = isinstance(node, yaml.ScalarNode) and _VARIABLE.search(node.value)
        try:
            # A variable is always text, also where a number is wanted.
            return msgspec.convert(plain, kind, strict=not from_environment, dec_hook=_build)
        except msgspec.ValidationError as error:
            # What comes from the environment may be a secret, and an error may quote it.
            shown = "the value from the environment does not fit" if from_environment else error
            self._add(node, str(shown))
            return None

    def _model(self, node: yaml.Node, kind: type[msgspec.Struct]) -> Any:
        if not isinstance(node, yaml.MappingNode):
            self._add(node, "a mapping is expected here")
            return None
        fields = {each.encode_name: each for each in msgspec.structs.fields(kind)}
        values: dict[str, Any] = {}
        seen: set[str] = set()
        for key_node, value_node in node.value:
            key = str(key_node.value)
            if key in seen:
                self._add(key_node, f"`{key}` stands here twice")
            elif key not in fields:
                near = difflib.get_close_matches(key, fields, n=1)
                hint = f"did you mean `{near[0]}`?" if near else f"known keys: {', '.join(fields)}"
                self._add(key_node, f"unknown key `{key}`", hint)
            else:
                values[fields[key].name] = self.convert(value_node, fields[key].type)
            seen.add(key)
        for name, each in fields.items():
            if each.required and name not in seen:
                self._add(node, f"`{name}` is missing")
        if self.mistakes:
            return None
        try:
            return kind(**values)
        except ValueError as error:
            self._add(node, str(error))
            return None

    def _plain(self, node: yaml.Node) -> Any:
        if isinstance(node, yaml.MappingNode):
            return {str(key.value): self._plain(value) for key, value in node.value}
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(value) for value in node.value]
        if _VARIABLE.search(node.value):
            return _VARIABLE.sub(lambda found: self._variable(node, found), node.value)
        return yaml.SafeLoader("").construct_object(node)

    def _variable(self, node: yaml.Node, found: re.Match[str]) -> str:
        name, default = found[1], found.group(2)
        value: str | None = self._environment.get(name, default)
        if value is None:
            self._add(node, f"the environment has no {name}", f"set {name}")
            return ""
        return value

    def _add(self, node: yaml.Node, problem: str, suggestion: str = "") -> None:
        where = f"{self._path}:{_line(node.start_mark)}"
        self.mistakes.append(Mistake(where, problem, suggestion))


def _build(kind: type, value: Any) -> Any:
    """Identifiers are built by their own class, which checks them."""
    try:
        return kind(value)
    except InvalidName as error:
        raise ValueError(str(error)) from None
