"""Contracts: pandera schemas in YAML, read into rules before anything runs.

Every key and every check is read here, so that an error has a line and a nearest spelling. Options
by which pandera would silently ignore, coerce or drop rows are refused: contracts gate publishing.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from laminar_dagster.config.contract_checks import CHECKS, REFUSED, read_arguments
from laminar_dagster.config.contract_rules import CheckRule, ColumnRule, ContractRules, UniqueRule
from laminar_dagster.config.contract_types import read_dtype
from laminar_dagster.config.files import read_text
from laminar_dagster.config.mistakes import Report, listed, nearest
from laminar_dagster.config.model import Contract, Place, View
from laminar_dagster.config.sql.changelog import WEIGHT
from laminar_dagster.config.strict_yaml import compose
from laminar_dagster.core.errors import InvalidConfig

_REPORTS: Final = ("all", "exclude_first", "exclude_last")
_TEXTS: Final = ("name", "title", "description", "metadata", "version")
_SCHEMA_KEYS: Final = (
    *("schema_type", "columns", "checks", "dtype", "strict", "ordered", "unique"),
    *(
        "report_duplicates",
        "unique_column_names",
        "api",
        "dataframe_library",
        "index",
        "multiindex",
    ),
    *("coerce", "add_missing_columns", "drop_invalid_rows"),
    *_TEXTS,
)
_COLUMN_KEYS: Final = (
    *("dtype", "nullable", "checks", "unique", "report_duplicates", "required", "regex"),
    *("coerce", "default", "drop_invalid_rows"),
    *_TEXTS,
)
# Options that would weaken the contract, or mean nothing here: the only value allowed, and why.
_ONLY: Final[Mapping[str, tuple[Any, str]]] = {
    "drop_invalid_rows": (False, "a broken row stops the epoch, and is not left out of it"),
    "coerce": (False, "rows are published as the view makes them; cast in the query"),
    "add_missing_columns": (False, "rows are published as the view makes them"),
    "default": (None, "rows are published as the view makes them; use COALESCE in the query"),
    "index": (None, "rows of a stream have no index"),
    "multiindex": (None, "rows of a stream have no index"),
    "schema_type": ("dataframe", "a contract is for the rows of a view"),
    "api": ("pandas", "a contract is a schema of pandera for pandas"),
    "dataframe_library": ("pandas", "a contract is a schema of pandera for pandas"),
}
_UNKNOWN: Final[Mapping[str, str]] = {
    "parsers": "rows are published as the view makes them; change them in the query",
    "head": "every row is checked, not some of them",
    "tail": "every row is checked, not some of them",
    "sample": "every row is checked, not some of them",
    "random_state": "every row is checked, not some of them",
    "lazy": "every rule is checked, and all that are broken are told",
    "inplace": "rows are published as the view makes them",
}


def read_contract(
    path: Path, views: Collection[View], report: Report, *, builds: bool = True
) -> Contract | None:
    """A contract for the view that its file is named after; None if something is wrong.

    Args:
        path: The contract's file.
        views: The views of the pipeline.
        report: Where mistakes go.
        builds: Whether to let pandera read it too; importing pandera takes seconds.
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
    reader = _Reader(path, report, view)
    reader.schema(node)
    if view is None or len(report.mistakes) > before:
        return None
    if not builds or _builds(path, reader.plain(node), report):
        return Contract(view.name, text, Place(str(path), 1), reader.rules())
    return None


class _Reader:
    """Walks over the nodes of a schema, and collects its rules and mistakes."""

    def __init__(self, path: Path, report: Report, view: View | None) -> None:
        self._path = path
        self._report = report
        self._view = view
        self._loader = yaml.SafeLoader("")
        self._columns: list[ColumnRule] = []
        self._checks: list[CheckRule] = []
        self._unique: list[UniqueRule] = []

    def rules(self) -> ContractRules:
        """The rules that were read; complete only if no mistake was reported."""
        return ContractRules(tuple(self._columns), tuple(self._checks), tuple(self._unique))

    def schema(self, node: yaml.Node) -> None:
        """Read a whole schema."""
        found = self._mapping(node, _SCHEMA_KEYS, "a schema")
        columns = self._view.columns if self._view else ()
        # Rules for all columns leave out `_weight`, which marks retractions; one may name it.
        everywhere = [column for column in columns if column.lower() != WEIGHT]
        named = self._named_columns(found.get("columns"))
        dtype = found.get("dtype")
        types = self._dtype(dtype) if dtype is not None else ()
        if types and dtype is not None:
            written, line = str(dtype.value), _line(dtype)
            self._columns += [ColumnRule(each, written, types, True, line) for each in everywhere]
        if "checks" in found:
            self._read_checks(found["checks"], everywhere, of_all=True)
        if "unique" in found:
            self._unique_columns(found["unique"], self._choice(found, "report_duplicates"))
        self._choice(found, "report_duplicates")
        self._flag(found, "unique_column_names")
        self._shape(found, named, columns)

    def plain(self, node: yaml.Node) -> Any:
        """The values of a node."""
        if isinstance(node, yaml.MappingNode):
            values = {str(key.value): self.plain(value) for key, value in node.value}
            if len(values) < len(node.value):
                self._add(node, "a name stands here twice")
            return values
        if isinstance(node, yaml.SequenceNode):
            return [self.plain(each) for each in node.value]
        try:
            return self._loader.construct_object(node)
        except (yaml.YAMLError, ValueError, OverflowError):
            # For example a Python tag, or the 31st of February.
            self._add(node, "this value cannot be read", "put it in quotes if it is text")
            return None

    # --- columns --------------------------------------------------------------------------------

    def _named_columns(self, node: yaml.Node | None) -> list[str]:
        """Read the columns; returns their names in the view, in the order of the contract."""
        if node is None or _is_null(node):
            return []
        if not isinstance(node, yaml.MappingNode):
            self._add(node, "the columns are a mapping from their names")
            return []
        named: list[str] = []
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
            if name.lower() in seen:
                self._add(key, f"column `{name[:80]}` stands here twice")
                continue
            seen.add(name.lower())
            named += self._column(key, name, value)
        return list(dict.fromkeys(named))

    def _column(self, key: yaml.Node, name: str, node: yaml.Node) -> list[str]:
        what = f"column `{name[:80]}`"
        found = self._mapping(node, (*_COLUMN_KEYS, *CHECKS), what)
        columns = self._matching(key, name, is_pattern=self._flag(found, "regex"))
        nullable = self._flag(found, "nullable")
        dtype = found.get("dtype")
        types = self._dtype(dtype) if dtype is not None else ()
        written = str(dtype.value) if types and dtype is not None else ""
        before = len(self._checks)
        if "checks" in found:
            self._read_checks(found["checks"], columns)
        for check in (each for each in found if each in CHECKS):
            self._check(found[check], check, found[check], columns)
        self._fit(self._checks[before:], types)
        if "name" in found and self.plain(found["name"]) not in (None, name):
            self._add(found["name"], f"{what} has another name here")
        # `required: false` means nothing: a view has all its columns in every epoch.
        self._flag(found, "required", default=True)
        report = self._choice(found, "report_duplicates")
        if self._flag(found, "unique"):
            line = _line(found["unique"])
            self._unique += [UniqueRule((each,), report, line) for each in columns]
        line = _line(key)
        self._columns += [ColumnRule(each, written, types, nullable, line) for each in columns]
        return columns

    def _matching(self, key: yaml.Node, name: str, *, is_pattern: bool) -> list[str]:
        """The columns of the view that a name or a pattern means."""
        if self._view is None:
            return []
        known = self._view.columns
        if not is_pattern:
            columns = [each for each in known if each.lower() == name.lower()]
            problem = f"view `{self._view.name}` has no column `{name[:80]}`"
        else:
            try:
                columns = [each for each in known if re.match(name, each)]
            except re.error as error:
                self._add(key, f"`{name[:80]}` is no regular expression: {error}")
                return []
            problem = f"no column of view `{self._view.name}` matches `{name[:80]}`"
        if not columns:
            self._add(key, problem, nearest(name, known, listed(known, "columns")))
        return columns

    def _dtype(self, node: yaml.Node) -> tuple[str, ...]:
        if _is_null(node):
            return ()
        text = str(node.value) if isinstance(node, yaml.ScalarNode) else ""
        types = read_dtype(text)
        if not types:
            hint = "write the type as in SQL, such as BIGINT, or as pandas does, such as int64"
            self._add(node, f"`{text[:80]}` is not the type of a column", hint)
        return types

    def _unique_columns(self, node: yaml.Node, report: str) -> None:
        """Columns that are unique together."""
        if _is_null(node):
            return
        items = node.value if isinstance(node, yaml.SequenceNode) else [node]
        named: list[str] = []
        for item in items:
            name = str(item.value) if isinstance(item, yaml.ScalarNode) else ""
            named += self._matching(item, name, is_pattern=False)
        if named:
            self._unique.append(UniqueRule(tuple(dict.fromkeys(named)), report, _line(node)))

    def _shape(
        self, found: Mapping[str, yaml.Node], named: list[str], columns: tuple[str, ...]
    ) -> None:
        """Check ``strict`` and ``ordered`` now: a view's columns are known before it runs."""
        if "strict" in found and self.plain(found["strict"]) == "filter":
            problem = "`strict: filter` would leave columns out of what is checked"
            self._add(found["strict"], problem, "rows are published as the view makes them")
        elif self._flag(found, "strict"):
            others = [column for column in columns if column not in (*named, WEIGHT)]
            if others:
                self._add(found["strict"], listed(others, "the view has other columns"))
        if self._flag(found, "ordered"):
            order = [column for column in columns if column in named]
            if order != named:
                problem = "the columns of the view have another order"
                self._add(found["ordered"], problem, listed(order, "order"))

    # --- checks ---------------------------------------------------------------------------------

    def _read_checks(self, node: yaml.Node, columns: list[str], *, of_all: bool = False) -> None:
        """Read checks: a mapping by name, or a list of mappings with ``check_name``."""
        if isinstance(node, yaml.SequenceNode):
            for item in node.value:
                named = self._listed_name(item)
                if named is not None:
                    self._check(named, str(named.value), item, columns, of_all=of_all)
        elif isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
                if name in seen:
                    self._add(key, f"check `{name[:80]}` stands here twice")
                seen.add(name)
                self._check(key, name, value, columns, of_all=of_all)
        elif not _is_null(node):
            self._add(node, "checks are a mapping from their names")

    def _listed_name(self, node: yaml.Node) -> yaml.ScalarNode | None:
        entries = node.value if isinstance(node, yaml.MappingNode) else []
        nested = [
            entry
            for key, value in entries
            if key.value == "options" and isinstance(value, yaml.MappingNode)
            for entry in value.value
        ]
        for key, value in (*entries, *nested):
            if key.value == "check_name" and isinstance(value, yaml.ScalarNode):
                return value
        self._add(node, "a check in a list is a mapping with `options`, and `check_name` in them")
        return None

    def _check(
        self,
        where: yaml.Node,
        name: str,
        value: yaml.Node,
        columns: list[str],
        *,
        of_all: bool = False,
    ) -> None:
        if name not in CHECKS:
            hint = REFUSED.get(name) or nearest(name, CHECKS, listed(CHECKS, "checks", 40))
            self._add(where, f"there is no check `{name[:80]}`", hint)
            return
        if of_all and name.startswith("str_"):
            self._add(where, f"`{name}` is for a column, not for all of them")
            return
        try:
            check, arguments = read_arguments(name, self.plain(value))
        except ValueError as error:
            self._add(value, f"`{name}`: {error}")
            return
        line = _line(where)
        self._checks += [CheckRule(column, check, arguments, line) for column in columns]

    def _fit(self, checks: list[CheckRule], types: tuple[str, ...]) -> None:
        """Report checks that fit none of the types that the contract gives the column."""
        for check in checks if types else ():
            problems = [check.misfit(each) for each in types]
            if all(problems):
                self._report.add(f"{self._path}:{check.line}", problems[0])

    # --- keys -----------------------------------------------------------------------------------

    def _flag(self, found: Mapping[str, yaml.Node], key: str, *, default: bool = False) -> bool:
        if key not in found:
            return default
        value = self.plain(found[key])
        if isinstance(value, bool):
            return value
        if value is not None:
            self._add(found[key], f"`{key}` is true or false")
        return default

    def _choice(self, found: Mapping[str, yaml.Node], key: str) -> str:
        value = self.plain(found[key]) if key in found else _REPORTS[0]
        if value not in _REPORTS:
            self._add(found[key], f"`{key}` is one of {', '.join(_REPORTS)}")
        return str(value)

    def _mapping(self, node: yaml.Node, known: Collection[str], what: str) -> dict[str, yaml.Node]:
        if _is_null(node):
            return {}
        if not isinstance(node, yaml.MappingNode):
            self._add(node, f"{what} is a mapping")
            return {}
        found: dict[str, yaml.Node] = {}
        for key_node, value in node.value:
            key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else ""
            if key in found:
                self._add(key_node, f"`{key}` stands here twice")
            elif key in known:
                found[key] = value
                self._only(key_node, key, value)
            else:
                hint = nearest(key, known, listed(known, "known keys", 40))
                hint = _UNKNOWN.get(key) or REFUSED.get(key) or hint
                self._add(key_node, f"{what} has no key `{key[:80]}`", hint)
        return found

    def _only(self, where: yaml.Node, key: str, node: yaml.Node) -> None:
        if key not in _ONLY:
            return
        allowed, reason = _ONLY[key]
        value = self.plain(node)
        if value is not None and value != allowed:
            self._add(where, f"`{key}` is not possible here: {reason}", "leave it out")

    def _add(self, node: yaml.Node, problem: str, suggestion: str = "") -> None:
        self._report.add(f"{self._path}:{_line(node)}", problem, suggestion)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.value in ("", "null", "~")


def _builds(path: Path, schema: Any, report: Report) -> bool:
    """Whether pandera accepts the schema, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # Imported here: it takes half a second, and only a pipeline with contracts needs it.
            with _not_importing("pyspark.pandas"):
                from pandera.io.pandas_io import deserialize_schema

                deserialize_schema(_without_types(schema))  # type: ignore[no-untyped-call]
        except Exception as error:
            # On a wrong schema pandera and its libraries raise errors of any type.
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            report.add(str(path), f"pandera does not take this schema: {reason}")
            return False
    return True


@contextmanager
def _not_importing(module: str) -> Iterator[None]:
    """Keep pandera from importing a module that it can do without: all of pandas on Spark."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]  # so an import raises ImportError
    try:
        yield
    finally:
        del sys.modules[module]


def _without_types(schema: Any) -> Any:
    """The schema without dtypes, which are read already: pandera does not know SQL types."""
    if not isinstance(schema, dict):
        return schema
    columns = schema.get("columns")
    if isinstance(columns, dict):
        columns = {name: _without_type(column or {}) for name, column in columns.items()}
    return {**_without_type(schema), "columns": columns}


def _without_type(part: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if key != "dtype"}
