"""Parse the options of a ``CREATE SINK … WITH (…)``, and report all mistakes at once."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from laminar_dagster.config.model import Place, SinkTable
from laminar_dagster.config.units import parse_duration, parse_size
from laminar_dagster.core.errors import InvalidConfig, InvalidName
from laminar_dagster.sinks.changes import Mode

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

L = TypeVar("L", bound="DataclassInstance")


class SinkOptions:
    """Consumes a sink's options one by one; ``finish`` reports unknown and invalid ones."""

    def __init__(self, table: SinkTable) -> None:
        """Begin with all of a sink's options."""
        self._where = str(table.place)
        self._left = dict(table.options)
        self._known: list[str] = []
        self._problems: list[tuple[str, str]] = []

    def text(self, name: str, default: str | None = None) -> str:
        """A text option, not empty; required unless it has a default."""
        value = self._take(name)
        if value is None:
            if default is None:
                self._add(f"option `{name}` is missing")
            return default or ""
        if not value.strip():
            self._add(f"option `{name}` is empty")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """A boolean option: ``true`` or ``false``."""
        return {"true": True, "false": False}[
            self.choice(name, ("true", "false"), str(default).lower())
        ]

    def seconds(self, name: str, default: float) -> float:
        """A duration such as ``30s``."""
        value = self._take(name)
        if value is None:
            return default
        try:
            return parse_duration(value).total_seconds()
        except ValueError as error:
            self._add(f"option `{name}`: {error}")
            return default

    def limit(self, name: str, default: float) -> float:
        """A duration greater than zero."""
        found = self.seconds(name, default)
        if not found > 0:
            # For a server, 0 means no limit: a writer that hangs would block others for ever.
            self._add(f"`{name}` must be more than nothing")
        return found

    def limits(self, defaults: L) -> L:
        """A dataclass of limits, with each field ``NAME`` from the option ``NAME_timeout``."""
        found: dict[str, Any] = {
            each.name: self.limit(f"{each.name}_timeout", getattr(defaults, each.name))
            for each in fields(defaults)
        }
        return type(defaults)(**found)

    def table_name(self, table: SinkTable, instead: str) -> str:
        """The option ``table``, by default the sink's name, without a schema or database.

        Args:
            table: The sink's declaration.
            instead: What to suggest in place of a qualified name.
        """
        name = self.text("table", str(table.sink_id))
        if "." in name:
            self._add("`table` holds a dot", instead)
        return name

    def renamed(self) -> dict[str, str]:
        """The table's column names by those of the view, from the options ``column.NAME``."""
        found = self.prefixed("column.")
        for column, target in found.items():
            if not column or not target:
                self._add(f"`column.{column}` is empty", "write 'column.of_view' = 'of_table'")
        return found

    def choice(self, name: str, choices: Iterable[str], default: str) -> str:
        """An option with a fixed set of values, case-insensitive."""
        value = self._take(name)
        if value is None:
            return default
        known = [*choices]
        found = next((each for each in known if each == value.lower()), None)
        if found is None:
            near = difflib.get_close_matches(value.lower(), known, n=1, cutoff=0.5)
            hint = f"did you mean `{near[0]}`?" if near else ""
            self._add(f"option `{name}` must be one of: {', '.join(known)}", hint)
        return found or default

    def count(self, name: str, default: int, least: int = 1) -> int:
        """An integer option of at least ``least``."""
        value = self._take(name)
        if value is None:
            return default
        if not re.fullmatch(r"[0-9]{1,15}", value.strip()) or int(value) < least:
            self._add(f"option `{name}` must be a whole number from {least} on")
            return default
        return int(value)

    def size(self, name: str, default: int) -> int:
        """A size in bytes, such as ``16MiB``."""
        value = self._take(name)
        if value is None:
            return default
        try:
            return parse_size(value)
        except ValueError as error:
            self._add(f"option `{name}`: {error}")
            return default

    def names(self, name: str) -> tuple[str, ...]:
        """A list of distinct names, separated by commas."""
        value = self._take(name)
        found = tuple(part.strip() for part in value.split(",")) if value is not None else ()
        if not all(found) or len({each.casefold() for each in found}) != len(found):
            self._add(f"`{name}` names a column twice, or none between two commas")
        return found

    def mode_and_key(self) -> tuple[Mode, tuple[str, ...]]:
        """``mode`` and, when it is upsert, the columns of ``key`` separated by commas."""
        modes: tuple[Mode, ...] = get_args(Mode)
        chosen = self.choice("mode", modes, "append")
        mode = next(each for each in modes if each == chosen)
        value = self._take("key")
        key = tuple(part.strip() for part in value.split(",")) if value is not None else ()
        if problem := problem_with_key(mode, key):
            self._add(*problem)
        return mode, key

    def prefixed(self, prefix: str) -> dict[str, str]:
        """All options with a prefix, by their names without it."""
        self._known.append(f"{prefix}…")
        found = [name for name in self._left if name.startswith(prefix)]
        return {name.removeprefix(prefix): self._left.pop(name) for name in found}

    def refuse(self, problem: str, suggestion: str = "") -> None:
        """Record a mistake, which ``finish`` reports."""
        self._add(problem, suggestion)

    def finish(self) -> None:
        """Report unknown options and all recorded mistakes.

        Raises:
            InvalidConfig: Lists them. No value is shown, since it may be a secret.
        """
        for name in self._left:
            near = difflib.get_close_matches(name, self._known, n=1)
            known = f"known options: {', '.join(self._known)}"
            self._add(f"unknown option `{name}`", f"did you mean `{near[0]}`?" if near else known)
        if self._problems:
            (first, suggestion), *others = self._problems
            rest = [f"{text} ({hint})" if hint else text for text, hint in others]
            raise InvalidConfig(self._where, "; ".join([first, *rest]), suggestion)

    def _take(self, name: str) -> str | None:
        self._known.append(name)
        return self._left.pop(name, None)

    def _add(self, problem: str, suggestion: str = "") -> None:
        self._problems.append((problem, suggestion))


def write_mode(table: SinkTable) -> tuple[Mode, tuple[str, ...]]:
    """The mode and key columns of a sink of any connector; no key columns in append mode.

    Checks nothing: the sink has checked its options already.
    """
    is_upsert = table.options.get("mode", "append").lower() == "upsert"
    return "upsert" if is_upsert else "append", table.key


@contextmanager
def told_at(place: Place) -> Iterator[None]:
    """Add the place of a sink's ``CREATE SINK`` to errors in its configuration.

    Raises:
        InvalidConfig: The original problem, at that place.
    """
    try:
        yield
    except (InvalidConfig, InvalidName) as error:
        problem = error.problem if isinstance(error, InvalidConfig) else str(error)
        raise InvalidConfig(str(place), problem, error.advice()) from None


def problem_with_key(mode: Mode, key: tuple[str, ...]) -> tuple[str, str] | None:
    """The problem with a mode and its key, and what to do about it; None if there is none."""
    if mode == "upsert" and not key:
        return "mode `upsert` needs a key", "name its columns: key = 'a, b'"
    if mode == "append" and key:
        return "mode `append` takes no key", "remove `key`, or set mode = 'upsert'"
    if not all(key) or len({name.casefold() for name in key}) != len(key):
        return "`key` names a column twice, or none between two commas", ""
    return None
