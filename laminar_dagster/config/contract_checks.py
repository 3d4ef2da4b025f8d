"""Which checks of pandera a contract may hold, and their arguments.

Only checks of one value at a time are allowed: the result must not depend on how the rows of an
epoch are spread over files and executors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from laminar_dagster.config.mistakes import listed

_ALIASES: Final[Mapping[str, str]] = {
    "eq": "equal_to",
    "ne": "not_equal_to",
    "gt": "greater_than",
    "ge": "greater_than_or_equal_to",
    "lt": "less_than",
    "le": "less_than_or_equal_to",
    "between": "in_range",
}
# The arguments of each check, by pandera's names: the required ones, then the optional ones.
_ARGUMENTS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "equal_to": (("value",), ()),
    "not_equal_to": (("value",), ()),
    "greater_than": (("min_value",), ()),
    "greater_than_or_equal_to": (("min_value",), ()),
    "less_than": (("max_value",), ()),
    "less_than_or_equal_to": (("max_value",), ()),
    "in_range": (("min_value", "max_value"), ("include_min", "include_max")),
    "isin": (("allowed_values",), ()),
    "notin": (("forbidden_values",), ()),
    "str_matches": (("pattern",), ()),
    "str_contains": (("pattern",), ()),
    "str_startswith": (("string",), ()),
    "str_endswith": (("string",), ()),
    "str_length": ((), ("exact_value", "min_value", "max_value")),
}
CHECKS: Final = (*_ARGUMENTS, *_ALIASES)
REFUSED: Final[Mapping[str, str]] = {
    "unique_values_eq": "which values an epoch happens to hold is chance; `isin` says which may be",
    "one_sample_ttest": "an epoch is no sample: a hypothesis would stop it by chance",
    "two_sample_ttest": "an epoch is no sample: a hypothesis would stop it by chance",
    "is_monotonic": "the rows of an epoch have no order",
}
# The keys of a check's `options` that do not change what is checked.
_HARMLESS: Final = frozenset(
    {"check_name", "error", "name", "title", "description", "metadata", "n_failure_cases"}
)
_OPTIONS: Final[Mapping[str, tuple[Any, str]]] = {
    "raise_warning": (False, "a warning would publish the rows that break the check"),
    "ignore_na": (True, "`nullable` says whether nulls may be; a check looks at what is not null"),
    "groupby": (None, "a group's rows may lie in several files; group in the query"),
    "groups": (None, "a group's rows may lie in several files; group in the query"),
    "element_wise": (False, "the checks that there are look at one value at a time"),
}
_OPTION_KEYS: Final = frozenset({"options", *_HARMLESS, *_OPTIONS})


def read_arguments(name: str, value: Any) -> tuple[str, dict[str, Any]]:
    """The check that a name means, and its arguments.

    Raises:
        ValueError: The check does not take these arguments.
    """
    check = _ALIASES.get(name, name)
    needed, optional = _ARGUMENTS[check]
    names = (*needed, *optional)
    if not isinstance(value, dict):
        given = {names[0]: value}
    else:
        given = {key: each for key, each in value.items() if key not in _OPTION_KEYS}
        options = value.get("options") or {}
        if not isinstance(options, dict):
            raise ValueError("its options are a mapping")
        inline = {key: each for key, each in value.items() if key in _OPTION_KEYS - {"options"}}
        _refuse_options({**inline, **options})
        if set(given) == {"value"}:
            given = {names[0]: given["value"]}
    for each in given:
        if each not in names:
            raise ValueError(f"it takes no `{each[:80]}`; {listed(names, 'it takes')}")
    arguments = {each: given[each] for each in names if given.get(each) is not None}
    missing = [each for each in needed if each not in arguments]
    if missing or not arguments:
        raise ValueError(f"`{(missing or names)[0]}` is missing")
    for argument, given_value in arguments.items():
        _refuse_argument(check, argument, given_value)
    return check, arguments


def _refuse_options(options: Mapping[str, Any]) -> None:
    for option, value in options.items():
        if option in _OPTIONS:
            allowed, reason = _OPTIONS[option]
            if value is not None and value is not allowed:
                raise ValueError(f"`{option}` is not possible here: {reason}")
        elif option not in _HARMLESS:
            raise ValueError(f"there is no option `{option[:80]}`")


def _refuse_argument(check: str, argument: str, value: Any) -> None:
    if argument in ("allowed_values", "forbidden_values"):
        if not isinstance(value, list):
            raise ValueError(f"`{argument}` is a list")
        if any(each is None or isinstance(each, list | dict) for each in value):
            raise ValueError("a value is text, a number or a time; `nullable` is for nulls")
    elif argument in ("include_min", "include_max"):
        if not isinstance(value, bool):
            raise ValueError(f"`{argument}` is true or false")
    elif check == "str_length":
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"`{argument}` is a whole number")
    elif isinstance(value, list | dict):
        raise ValueError(f"`{argument}` is one value")
    elif argument in ("pattern", "string"):
        if not isinstance(value, str):
            raise ValueError(f"`{argument}` is text")
        try:
            re.compile(value if argument == "pattern" else "")
        except re.error as error:
            raise ValueError(f"{value[:80]!r} is no regular expression: {error}") from None
