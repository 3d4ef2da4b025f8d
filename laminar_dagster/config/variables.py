"""``${NAME}`` and ``${NAME:-default}``: values from the environment, in YAML and in SQL options.

A value may be a secret. It is never shown in an error, and whatever is derived from what an author
wrote (a fingerprint, ``DESCRIBE``) uses the text with the variable still in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_SECRET: Final = re.compile(
    r"passw|secret|token|credential|jaas|private|api[._-]?key|access[._-]?key|sasl\.username"
    r"|account[._-]?key|connection[._-]?string|dsn$",
    re.IGNORECASE,
)
_USER_INFO: Final = re.compile(r"(?<=://)[^/@\s]+@")

_READ_BY_CLIENTS: Final = ("AWS_", "AZURE_", "GOOGLE_", "PGPASSWORD")

HIDDEN: Final = "***"


def has_variable(text: str) -> bool:
    """Whether a text takes something from the environment."""
    return _VARIABLE.search(text) is not None


def fill(text: str, environment: Mapping[str, str], missing: Callable[[str], None]) -> str:
    """Replace each variable by its value; calls ``missing`` with each name that is not set."""

    def value(found: re.Match[str]) -> str:
        filled: str | None = environment.get(found[1], found.group(2))
        if filled is None:
            missing(found[1])
            return ""
        return filled

    return _VARIABLE.sub(value, text)


def missing_variables(text: str, environment: Mapping[str, str]) -> list[str]:
    """The variables of a text that are neither set nor have a default."""
    found = (each for each in _VARIABLE.finditer(text) if each.group(2) is None)
    return [each[1] for each in found if each[1] not in environment]


def empty_variables(text: str, environment: Mapping[str, str]) -> list[str]:
    """The variables of a text that are set to nothing but spaces."""
    names = [found[1] for found in _VARIABLE.finditer(text)]
    return [name for name in names if name in environment and not environment[name].strip()]


def secret_names(written: Mapping[str, str]) -> frozenset[str]:
    """The settings whose values are, or may hold, secrets."""
    return frozenset(
        name for name, text in written.items() if looks_secret(name, text) or has_variable(text)
    )


def secret_variables(options: Iterable[Mapping[str, str]]) -> frozenset[str]:
    """The environment variables that secrets are taken from, and that no process of Spark reads.

    Without those that clients of clouds read by themselves, such as ``AWS_…``, wherever they run.

    Args:
        options: The options of all tables and the settings of Spark, as written.
    """
    return frozenset(
        found[1]
        for written in options
        for name, text in written.items()
        if looks_secret(name, text)
        for found in _VARIABLE.finditer(text)
        if not found[1].startswith(_READ_BY_CLIENTS)
    )


def looks_secret(option: str, written: str) -> bool:
    """Whether an option's name, or user info in its URL, says that its value is a secret."""
    return _SECRET.search(option) is not None or _USER_INFO.search(written) is not None


def secret_java_option(written: str) -> str | None:
    """The first option of a JVM, such as ``-Dstore.password=…``, whose value is a secret."""
    for option in written.split():
        name, _, value = option.removeprefix("-D").partition("=")
        if value and looks_secret(name, value):
            return name
    return None


def shown(option: str, written: str) -> str:
    """An option's value as it may be shown: as written, a literal secret hidden."""
    if has_variable(written) or not looks_secret(option, written):
        return written
    if _SECRET.search(option):
        return HIDDEN
    return _USER_INFO.sub(f"{HIDDEN}@", written)
