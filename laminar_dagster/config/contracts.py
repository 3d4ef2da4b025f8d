"""Contracts: pandera schemas in YAML, checked before anything runs.

Keys, checks and columns are looked at here, so that an error has a line and a nearest spelling;
then pandera itself builds the schema. No data is touched.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Final

import yaml

from laminar_dagster.config.files import read_text
from laminar_dagster.config.mistakes import Report, listed, nearest
from laminar_dagster.config.model import Contract, Place, View
from laminar_dagster.config.strict_yaml import compose
from laminar_dagster.core.errors import InvalidConfig

_SCHEMA_KEYS: Final = (
    "schema_type",
    "version",
    "name",
    "title",
    "description",
    "columns",
    "checks",
    "index",
    "dtype",
    "coerce",
    "strict",
    "ordered",
    "unique",
    "report_duplicates",
    "unique_column_names",
    "add_missing_columns",
    "drop_invalid_rows",
    "metadata",
    "api",
    "dataframe_library",
)
_COLUMN_KEYS: Final = (
    "name",
    "title",
    "description",
    "dtype",
    "nullable",
    "checks",
    "unique",
    "coerce",
    "required",
    "regex",
    "default",
    "report_duplicates",
    "drop_invalid_rows",
    "metadata",
)
_CHECKS: Final = (
    "equal_to",
    "eq",
    "not_equal_to",
    "ne",
    "greater_than",
    "gt",
    "greater_than_or_equal_to",
    "ge",
    "less_than",
    "lt",
    "less_than_or_equal_to",
    "le",
    "in_range",
    "between",
    "isin",
    "notin",
    "str_matches",
    "str_contains",
    "str_startswith",
    "str_endswith",
    "str_length",
    "unique_values_eq",
)
_CHECK_KEYS: Final = ("check_name", "value", "options")


def read_contract(
    path: Path, views: Collection[View], report: Report, *, builds: bool = True
) -> Contract | None:
    """A contract for the view that its file is named after; None if something is wrong.

    Args:
        path: Of its file.
        views: Of the pipeline.
        report: Where mistakes go.
        builds: Whether pandera has to take it as well, which takes seconds to load.
    """
    before = len(report.mistakes)
    try:
        node = compose(path)
        text = read_text(path)
    except InvalidConfig as error:
        report.add_error(error)
        return None
    by_name = {str(each.name).lower(): each for each in views}
    view = by_name.get(path.stem.lower())
    if view is None:
        names = [str(each.name) for each in views]
        hint = nearest(path.stem, names, listed(names, "views"))
        report.add(str(path), f"there is no view `{path.stem[:80]}` for this contract", hint)
    _Checker(path, report).schema(node, view)
    if view is None or len(report.mistakes) > before:
        return None
    if not builds or _builds(path, text, report):
        return Contract(view.name, text, Place(str(path), 1))
    return None


class _Checker:
    """Looks at the nodes of a schema."""

    def __init__(self, path: Path, report: Report) -> None:
        self._path = path
        self._report = report

    def schema(self, node: yaml.Node, view: View | None) -> None:
        columns = self._mapping(node, _SCHEMA_KEYS, "a schema")
        for key, value in columns:
            if key == "columns":
                self._columns(value, view)
            elif key == "checks":
                self._checks(value)

    def _columns(self, node: yaml.Node, view: View | None) -> None:
        if isinstance(node, yaml.ScalarNode) and node.value in ("", "null", "~"):
            return
        if not isinstance(node, yaml.MappingNode):
            self._add(node, "the columns are a mapping from their names")
            return
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
            details = dict(self._mapping(value, _COLUMN_KEYS, f"column `{name[:80]}`"))
            if "checks" in details:
                self._checks(details["checks"])
            is_pattern = "regex" in details and details["regex"].value == "true"
            optional = "required" in details and details["required"].value == "false"
            known = {each.lower() for each in view.columns} if view else set()
            if view and name.lower() not in known and not is_pattern and not optional:
                hint = nearest(name, view.columns, listed(view.columns, "columns"))
                self._add(key, f"view `{view.name}` has no column `{name[:80]}`", hint)

    def _checks(self, node: yaml.Node) -> None:
        """Checks come as a mapping by name, or as a list of mappings with ``check_name``."""
        if isinstance(node, yaml.SequenceNode):
            for each in node.value:
                self._listed_check(each)
        elif isinstance(node, yaml.MappingNode):
            for key, _ in node.value:
                self._check_name(key)
        elif node.value not in ("", "null", "~"):
            self._add(node, "checks are a mapping from their names")

    def _listed_check(self, node: yaml.Node) -> None:
        if not isinstance(node, yaml.MappingNode):
            self._add(node, "a check is a mapping with `options` and `check_name`")
            return
        for key, value in node.value:
            if key.value == "options" and isinstance(value, yaml.MappingNode):
                for inner, named in value.value:
                    if inner.value == "check_name":
                        self._check_name(named)
            elif key.value == "check_name":
                self._check_name(value)

    def _check_name(self, node: yaml.Node) -> None:
        name = str(node.value) if isinstance(node, yaml.ScalarNode) else ""
        if name not in (*_CHECKS, *_CHECK_KEYS):
            hint = nearest(name, _CHECKS, listed(_CHECKS, "checks", 40))
            self._add(node, f"there is no check `{name[:80]}`", hint)

    def _mapping(
        self, node: yaml.Node, known: Collection[str], what: str
    ) -> list[tuple[str, yaml.Node]]:
        if isinstance(node, yaml.ScalarNode) and node.value in ("", "null", "~"):
            return []
        if not isinstance(node, yaml.MappingNode):
            self._add(node, f"{what} is a mapping")
            return []
        found: list[tuple[str, yaml.Node]] = []
        for key_node, value in node.value:
            key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else ""
            if key not in known:
                hint = nearest(key, known, listed(known, "known keys", 40))
                self._add(key_node, f"{what} has no key `{key[:80]}`", hint)
            elif key in dict(found):
                self._add(key_node, f"`{key}` stands here twice")
            else:
                found.append((key, value))
        return found

    def _add(self, node: yaml.Node, problem: str, suggestion: str = "") -> None:
        self._report.add(f"{self._path}:{node.start_mark.line + 1}", problem, suggestion)


def _builds(path: Path, text: str, report: Report) -> bool:
    """Whether pandera takes the schema."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Imported here: it takes seconds, and only a pipeline with contracts needs it.
        from pandera.io.pandas_io import from_yaml

        try:
            from_yaml(text)  # type: ignore[no-untyped-call]
        except Exception as error:
            # pandera and what it calls raise whatever comes first on a wrong schema.
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            report.add(str(path), f"pandera does not take this schema: {reason}")
            return False
    return True
