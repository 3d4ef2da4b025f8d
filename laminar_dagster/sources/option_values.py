"""Reads the options of a ``WITH``: each has a name, an attribute and a parser of its text."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar, get_args

from laminar_dagster.config.units import parse_duration, parse_size
from laminar_dagster.core.errors import InvalidConfig

_ValueT = TypeVar("_ValueT")

# By option name: the attribute that it sets, and its parser, which raises ``ValueError``.
Known = Mapping[str, tuple[str, Callable[[str], Any]]]


@dataclass
class Mistakes:
    """The mistakes in the options of one source, each with a remedy."""

    where: str
    found: list[tuple[str, str]] = field(default_factory=list)

    def add(self, problem: str, hint: str = "") -> None:
        """Add a mistake."""
        self.found.append((problem, hint))

    def raise_if_any(self) -> None:
        """Refuse the options if there are mistakes.

        Raises:
            InvalidConfig: Lists every mistake.
        """
        if not self.found:
            return
        first, *others = self.found
        rest = [f"{problem} ({hint})" if hint else problem for problem, hint in others]
        raise InvalidConfig(self.where, "; ".join([first[0], *rest]), first[1])


def read_values(
    options: Mapping[str, str], known: Known, mistakes: Mistakes, elsewhere: Sequence[str] = ()
) -> dict[str, Any]:
    """The parsed options by attribute; collects unknown options and invalid values.

    Args:
        options: All options of the ``WITH``.
        known: The options to read.
        mistakes: Collects the mistakes.
        elsewhere: Options that are read elsewhere.
    """
    values: dict[str, Any] = {}
    for name, text in options.items():
        if name in elsewhere:
            continue
        if name not in known:
            mistakes.add(f"unknown option `{name}`", _nearest(name, (*elsewhere, *known)))
            continue
        attribute, read = known[name]
        try:
            values[attribute] = read(text)
        except ValueError as error:
            mistakes.add(f"`{name}` {error}")
    return values


def _nearest(name: str, names: Iterable[str]) -> str:
    names = list(names)
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean `{near[0]}`?" if near else f"known options: {', '.join(names)}"


def one_of(choices: Any) -> Callable[[str], str]:
    """A parser of one of the texts of a ``Literal``."""
    allowed = get_args(choices)

    def read(text: str) -> str:
        if text not in allowed:
            near = difflib.get_close_matches(text, allowed, n=1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"must be one of {', '.join(allowed)}, not {text!r}{hint}")
        return text

    return read


def flag(text: str) -> bool:
    """True or false."""
    if text.lower() not in ("true", "false"):
        raise ValueError(f"must be true or false, not {text!r}")
    return text.lower() == "true"


def size(text: str) -> int:
    """Bytes, such as ``16MiB``."""
    try:
        return parse_size(text)
    except ValueError:
        raise ValueError(f"must be a size such as 4096 or 16MiB, not {text!r}") from None


def count(text: str) -> int:
    """A whole number."""
    if not re.fullmatch(r"[0-9]{1,9}", text.strip()):
        raise ValueError(f"must be a whole number, not {text!r}")
    return int(text)


def fraction(text: str) -> float:
    """A number from 0 to 1."""
    if not re.fullmatch(r"[01]|[01]?\.[0-9]{1,9}", text.strip()) or float(text) > 1:
        raise ValueError(f"must be a number from 0 to 1 such as 0.8, not {text!r}")
    return float(text)


def milliseconds(text: str) -> timedelta:
    """A whole number of milliseconds."""
    return timedelta(milliseconds=count(text))


def duration(text: str) -> timedelta:
    """A duration such as ``30s``."""
    try:
        return parse_duration(text)
    except (ValueError, OverflowError):
        raise ValueError(f"must be a duration such as 30s or 5m, not {text!r}") from None


def or_never(read: Callable[[str], _ValueT], never: str) -> Callable[[str], _ValueT | None]:
    """A parser that also accepts a word for None."""
    return lambda text: None if text == never else read(text)


def delimiter(text: str) -> str:
    r"""A character; ``\t`` is the tab."""
    return "\t" if text == r"\t" else text


def problem_with_delimiter(text: str) -> str:
    """Why a character cannot separate the fields of CSV; empty if it can."""
    if len(text) != 1 or not (text == "\t" or " " <= text <= "~"):
        return "must be one ASCII character"
    return "must not be the quote" if text == '"' else ""


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas, each only once."""
    found = tuple(part.strip() for part in text.split(","))
    if not all(found):
        raise ValueError(f"must be names with commas between them, not {text!r}")
    if len(set(found)) != len(found):
        raise ValueError(f"names something twice: {text!r}")
    return found
