"""Reads the options that name a source's server, for the client that connects to it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from laminar_dagster.config.units import parse_duration
from laminar_dagster.sources.option_values import Mistakes


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Implements the clients' ``OptionReader``. Errors never show a value: it may be a secret."""

    options: Mapping[str, str]
    mistakes: Mistakes

    def text(self, name: str, default: str | None = None) -> str:
        """An option that must not be empty, and is required unless it has a default."""
        value = self.options.get(name)
        if value == "":
            self.mistakes.add(f"option `{name}` is empty")
        elif value is None and default is None:
            self.mistakes.add(f"option `{name}` is missing")
        return value or default or ""

    def choice(self, name: str, choices: Iterable[str], default: str) -> str:
        """An option that must be one of ``choices``; its case is ignored."""
        value = self.options.get(name)
        if value is None:
            return default
        known = [*choices]
        if value.lower() in known:
            return value.lower()
        near = difflib.get_close_matches(value.lower(), known, n=1, cutoff=0.5)
        hint = f"did you mean `{near[0]}`?" if near else ""
        self.mistakes.add(f"option `{name}` must be one of: {', '.join(known)}", hint)
        return default

    def seconds(self, name: str, default: float) -> float:
        """A duration such as ``30s``."""
        value = self.options.get(name)
        if value is None:
            return default
        try:
            return parse_duration(value).total_seconds()
        except ValueError:
            self.mistakes.add(f"`{name}` must be a duration such as 30s")
            return default

    def limit(self, name: str, default: float) -> float:
        """A duration greater than zero."""
        found = self.seconds(name, default)
        if not found > 0:
            self.mistakes.add(f"`{name}` must be more than nothing")
        return found

    def refuse(self, problem: str, suggestion: str = "") -> None:
        """Add a mistake."""
        self.mistakes.add(problem, suggestion)
