"""The options of a ``CREATE SINK … WITH (…)``: known names only, every mistake at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import get_args

from laminar_dagster.config.model import SinkTable
from laminar_dagster.config.units import parse_duration
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.sinks.changes import Mode


class SinkOptions:
    """Takes options out one by one; ``finish`` refuses what is left or was wrong."""

    def __init__(self, table: SinkTable) -> None:
        """Begin with all of a sink's options."""
        self._where = str(table.place)
        self._left = dict(table.options)
        self._known: list[str] = []
        self._problems: list[tuple[str, str]] = []

    def text(self, name: str, default: str | None = None) -> str:
        """An option that must not be empty, and must be there unless it has a default."""
        value = self._take(name)
        if value is None:
            if default is None:
                self._add(f"option `{name}` is missing")
            return default or ""
        if not value:
            self._add(f"option `{name}` is empty")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        return {"true": True, "false": False}[
            self._choice(name, ("true", "false"), str(default).lower())
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

    def mode_and_key(self) -> tuple[Mode, tuple[str, ...]]:
        """``mode`` and, when it is upsert, the columns of ``key`` separated by commas."""
        modes: tuple[Mode, ...] = get_args(Mode)
        chosen = self._choice("mode", modes, "append")
        mode = next(each for each in modes if each == chosen)
        value = self._take("key")
        key = tuple(part.strip() for part in value.split(",")) if value is not None else ()
        if problem := problem_with_key(mode, key):
            self._add(*problem)
        return mode, key

    def prefixed(self, prefix: str) -> dict[str, str]:
        """Every option whose name begins with a prefix, without it."""
        self._known.append(f"{prefix}…")
        found = [name for name in self._left if name.startswith(prefix)]
        return {name.removeprefix(prefix): self._left.pop(name) for name in found}

    def refuse(self, problem: str, suggestion: str = "") -> None:
        """Add a mistake that the sink itself has found."""
        self._add(problem, suggestion)

    def finish(self) -> None:
        """Refuse unknown options, and report every mistake there was.

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

    def _choice(self, name: str, choices: Iterable[str], default: str) -> str:
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

    def _take(self, name: str) -> str | None:
        self._known.append(name)
        return self._left.pop(name, None)

    def _add(self, problem: str, suggestion: str = "") -> None:
        self._problems.append((problem, suggestion))


def problem_with_key(mode: Mode, key: tuple[str, ...]) -> tuple[str, str] | None:
    """What is wrong with a mode and its key, and what to do; None when nothing is."""
    if mode == "upsert" and not key:
        return "mode `upsert` needs a key", "name its columns: key = 'a, b'"
    if mode == "append" and key:
        return "mode `append` takes no key", "remove `key`, or set mode = 'upsert'"
    if not all(key) or len({name.casefold() for name in key}) != len(key):
        return "`key` names a column twice, or none between two commas", ""
    return None
