"""The SQL types that a ``dtype`` of a contract means, spelled as in pandas, pandera or SQL.

Types are compared with the view's columns, not with those of a pandas frame, whose type changes
with the nulls of an epoch. So ``Int64`` and ``int64`` mean the same: nullability is no part of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from laminar_dagster.config.mistakes import Report
from laminar_dagster.config.sql.reader import read_column_type
from laminar_dagster.config.sql.text import SqlText

_TIMES: Final = ("timestamp", "timestamp_ntz")
# The types that pandas shows as `object`, and that contracts written for pandas call so.
_OBJECTS: Final = ("string", "decimal", "date", "binary", "array", "map", "struct", "variant")

_SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "bool": ("boolean",),
    "boolean": ("boolean",),
    "int8": ("tinyint",),
    "int16": ("smallint",),
    "int32": ("int",),
    "int64": ("bigint",),
    # In Python and pandas an integer of 64 bits, in SQL one of 32.
    "int": ("int", "bigint"),
    "float32": ("float",),
    "float64": ("double",),
    "double": ("double",),
    # In Python and pandas double precision, in SQL single.
    "float": ("float", "double"),
    "str": ("string",),
    "string": ("string",),
    "object": _OBJECTS,
    "decimal": ("decimal",),
    "date": ("date",),
    "datetime": _TIMES,
    "datetime64": _TIMES,
    "timestamp": _TIMES,
    "bytes": ("binary",),
    "list": ("array",),
    "array": ("array",),
    "dict": ("map", "struct"),
    "map": ("map",),
    "struct": ("struct",),
    "variant": ("variant", "struct"),
    # Arrow's types as pandas names them: `date32[day][pyarrow]`.
    "date32[day]": ("date",),
}
_STORAGE: Final = re.compile(r"(string)\[(?:python|pyarrow|pyarrow_numpy)\]|(.+)\[pyarrow\]")
_TIME: Final = re.compile(r"(?:datetime64|timestamp)\[\s*(?:s|ms|us|ns)\s*(,[^\]]+)?\]")
_DECIMAL: Final = re.compile(r"(?:decimal|decimal128)\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")


def read_dtype(dtype: str) -> tuple[str, ...]:
    """The types that a dtype means; none if it means none."""
    text = dtype.strip().lower()
    if storage := _STORAGE.fullmatch(text):
        text = storage[1] or storage[2]
    if text in _SPELLINGS:
        return _SPELLINGS[text]
    if time := _TIME.fullmatch(text):
        # With a zone it is an instant, whichever zone it is; without, it may be either type.
        return ("timestamp",) if time[1] else _TIMES
    if number := _DECIMAL.fullmatch(text):
        return (f"decimal({number[1]},{number[2] or 0})",)
    return _sql_type(dtype)


def _sql_type(text: str) -> tuple[str, ...]:
    report = Report()
    found = read_column_type(SqlText("a dtype", text), report)
    if found is None or not found[1] or report.mistakes:
        return ()
    return (found[0].replace("`", "").replace(" ", "").lower(),)
