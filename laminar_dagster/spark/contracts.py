"""Checks a view's contract: most rules in the tasks, uniqueness across files on the driver.

Columns keep their SQL types here, with or without nulls, and numbers are compared exactly. pandera
is not used: a worker would take seconds to load it, environment variables can switch its checks
off, and it turns integer columns with nulls into floats.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.config.contract_rules import (
    INTEGERS,
    CheckRule,
    ContractRules,
    UniqueRule,
    base,
)
from laminar_dagster.spark.arrow_files import file_bytes, file_table
from laminar_dagster.spark.keyed_rows import WEIGHT

_SAMPLES: Final = 3
_MAX_SHOWN: Final = 200
_KEYS_A_REPORT: Final = 100_000
# Wide enough for every 64-bit integer and every DECIMAL.
_EXACT: Final = pa.decimal256(76, 38)
_LONG: Final = range(-(2**63), 2**63)
_ROW: Final = "_row"
_COUNT: Final = "_count"

_COMPARISONS: Final[Mapping[str, Callable[..., Any]]] = {
    "equal_to": pc.equal,
    "not_equal_to": pc.not_equal,
    "greater_than": pc.greater,
    "greater_than_or_equal_to": pc.greater_equal,
    "less_than": pc.less,
    "less_than_or_equal_to": pc.less_equal,
}


def broken_rules(rules: ContractRules, rows: pa.Table) -> list[str]:
    """The rules that rows break, one line per rule with a few of the values; empty if none.

    Args:
        rules: The contract's rules.
        rows: The rows of one file. Retractions are not checked: the row was checked when it was
            published, and a row that is wrong must be retractable.
    """
    if rules == ContractRules():
        return []
    judged = rows
    if WEIGHT in rows.column_names:
        judged = rows.filter(pc.greater(rows.column(WEIGHT), 0))
    kinds = {field.name: sql_type(field.type) for field in judged.schema}
    broken = [f"{problem} (line {line})" for line, problem in rules.misfits(kinds)]
    named = {rule.column for rule in rules.columns} | {rule.column for rule in rules.checks}
    columns = {name: _nulls_for_nan(judged.column(name)) for name in named & kinds.keys()}
    for rule in rules.columns:
        if not rule.nullable and rule.column in columns and columns[rule.column].null_count:
            count = columns[rule.column].null_count
            broken.append(f"{rule.column}: not_nullable (line {rule.line}; {count} times)")
    for check in rules.checks:
        if check.column not in columns or check.misfit(kinds[check.column]):
            continue
        values = columns[check.column].drop_null()
        wrong = values.filter(pc.invert(_holds(check, values, kinds[check.column])))
        if len(wrong):
            broken.append(_line(f"{check.column}: {check}", check.line, len(wrong), wrong))
    return broken


def sql_type(kind: pa.DataType) -> str:
    """The SQL type of an Arrow type, spelled as Spark's ``simpleString``."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_map(kind):
        return f"map<{sql_type(kind.key_type)},{sql_type(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{sql_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{each.name}:{sql_type(each.type)}' for each in kind)}>"
    return _SIMPLE.get(kind, str(kind))


_SIMPLE: Final[Mapping[pa.DataType, str]] = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
}


def _nulls_for_nan(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floats with NaN as null, as in pandera, and -0.0 as 0.0."""
    if not pa.types.is_floating(values.type):
        return values
    null = pa.scalar(None, values.type)
    positive = pc.add(values, pa.scalar(0.0, values.type))
    return pc.if_else(pc.is_nan(positive), null, positive)


# --- one value at a time ------------------------------------------------------------------------


def _holds(check: CheckRule, values: pa.ChunkedArray, kind: str) -> pa.ChunkedArray:
    """A mask of the values that pass a check."""
    bounds = check.bounds(kind)
    if check.check.startswith("str_"):
        return _holds_of_text(check.check, bounds, values)
    values, scalar_type = _exactly(values, bounds, kind)
    if check.check in _COMPARISONS:
        (bound,) = bounds.values()
        return _COMPARISONS[check.check](values, pa.scalar(bound, scalar_type))
    if check.check == "in_range":
        above = pc.greater_equal if bounds.get("include_min", True) else pc.greater
        below = pc.less_equal if bounds.get("include_max", True) else pc.less
        return pc.and_(
            above(values, pa.scalar(bounds["min_value"], scalar_type)),
            below(values, pa.scalar(bounds["max_value"], scalar_type)),
        )
    (members,) = bounds.values()
    is_in = pc.is_in(values, value_set=pa.array(members, scalar_type))
    return is_in if check.check == "isin" else pc.invert(is_in)


def _exactly(
    values: pa.ChunkedArray, bounds: dict[str, Any], kind: str
) -> tuple[pa.ChunkedArray, pa.DataType]:
    """Cast values to a type in which they compare exactly with the bounds; also return the type.

    Bounds of a FLOAT column are FLOATs too: so the FLOAT 0.7 is at least 0.7.
    """
    name = base(kind)
    if name not in INTEGERS and name != "decimal":
        return values, values.type
    numbers = [
        each
        for bound in bounds.values()
        for each in (bound if isinstance(bound, list) else [bound])
        if not isinstance(each, bool)
    ]
    if name in INTEGERS and all(each == int(each) and int(each) in _LONG for each in numbers):
        for argument, bound in bounds.items():
            if not isinstance(bound, bool):
                whole = [int(each) for each in bound] if isinstance(bound, list) else int(bound)
                bounds[argument] = whole
        return values.cast(pa.int64()), pa.int64()
    return values.cast(_EXACT), _EXACT


def _holds_of_text(
    check: str, arguments: Mapping[str, Any], texts: pa.ChunkedArray
) -> pa.ChunkedArray:
    if check == "str_length":
        exact = arguments.get("exact_value")
        least = arguments.get("min_value", 0) if exact is None else exact
        most = arguments.get("max_value", 2**31 - 1) if exact is None else exact
        lengths = pc.utf8_length(texts)
        return pc.and_(pc.greater_equal(lengths, least), pc.less_equal(lengths, most))
    (wanted,) = arguments.values()
    if check == "str_startswith":
        return pc.starts_with(texts, wanted)
    if check == "str_endswith":
        return pc.ends_with(texts, wanted)
    # Python's regular expressions, as in pandera: Arrow's know neither `(?=…)` nor `\1`.
    pattern = re.compile(wanted)
    find = pattern.match if check == "str_matches" else pattern.search
    coded = texts.combine_chunks().dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    of_each = pa.array(
        [find(text) is not None for text in coded.dictionary.to_pylist()], pa.bool_()
    )
    return pa.chunked_array([of_each.take(coded.indices)])


# --- uniqueness over all rows of an epoch -------------------------------------------------------


def key_reports(rules: ContractRules, view: str, place: str, rows: pa.Table) -> Iterator[str]:
    """Reports of the unique keys in a file, for the driver: equal keys may be in different files.

    Args:
        rules: The contract's rules.
        view: The view of the rows.
        place: The file's place, which makes its reports distinct: equal reports count once.
        rows: The rows of the file.
    """
    for unique in rules.unique:
        missing = set(unique.columns) - set(rows.column_names)
        if missing or not rows.num_rows:
            continue
        keys = pa.table({name: _nulls_for_nan(rows.column(name)) for name in unique.columns})
        if any(pa.types.is_nested(each.type) for each in keys.schema):
            continue  # ``misfits`` reports it
        if WEIGHT in rows.column_names:
            whole = rows.drop_columns([WEIGHT]).to_pylist()
            digests = [hashlib.blake2b(repr(row).encode(), digest_size=16) for row in whole]
            keys = keys.append_column(_ROW, pa.array([each.digest() for each in digests]))
            keys = keys.append_column(WEIGHT, rows.column(WEIGHT))
        for begin in range(0, keys.num_rows, _KEYS_A_REPORT):
            data = file_bytes(keys.slice(begin, _KEYS_A_REPORT))
            report = {
                "keys": view,
                "columns": unique.columns,
                "duplicates": unique.report,
                "line": unique.line,
                "place": f"{place} {begin}",
                "rows": base64.b64encode(data).decode(),
            }
            yield json.dumps(report)


def repeated_keys(reports: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield views with a line for each unique rule of their contract that rows break.

    Args:
        reports: All reports of an epoch from ``key_reports``.
    """
    parts: dict[tuple[str, UniqueRule], list[pa.Table]] = {}
    for report in reports:
        rule = UniqueRule(tuple(report["columns"]), report["duplicates"], report["line"])
        table = file_table(base64.b64decode(report["rows"]))
        parts.setdefault((report["keys"], rule), []).append(table)
    for (view, rule), tables in parts.items():
        counts = _counted(pa.concat_tables(tables), list(rule.columns))
        repeated = counts.filter(pc.greater(counts.column(_COUNT), 1))
        if repeated.num_rows:
            times = pc.sum(repeated.column(_COUNT)).as_py()
            if rule.report != "all":
                times -= repeated.num_rows
            keys = repeated.select(list(rule.columns))
            values = keys.column(0) if len(rule.columns) == 1 else keys.to_struct_array()
            yield view, _line(f"{', '.join(rule.columns)}: unique", rule.line, times, values)


def _counted(keys: pa.Table, columns: list[str]) -> pa.Table:
    """The number of rows with each key at the end of the epoch.

    A row that is inserted and retracted within the epoch is not counted.
    """
    if WEIGHT not in keys.column_names:
        counted = keys.group_by(columns).aggregate([([], "count_all")])
        return counted.rename_columns([*columns, _COUNT])
    rows = keys.group_by([*columns, _ROW]).aggregate([(WEIGHT, "sum")])
    rows = rows.rename_columns([*columns, _ROW, _COUNT])
    left = rows.filter(pc.greater(rows.column(_COUNT), 0))
    counted = left.group_by(columns).aggregate([(_COUNT, "sum")])
    return counted.rename_columns([*columns, _COUNT])


def _line(rule: str, line: int, times: int, values: Any) -> str:
    few = ", ".join(repr(each) for each in values.slice(0, _SAMPLES).to_pylist())[:_MAX_SHOWN]
    return f"{rule} (line {line}; {times} times, for example {few})"
