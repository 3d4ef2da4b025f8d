"""The gate: every type of SQL and every check, with nulls and without, over one file or several."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from laminar_dagster.spark.contracts import sql_type
from tests.unit.spark.staged_contracts import broken, read_rules

MICROS = pa.timestamp("us")
INSTANT = pa.timestamp("us", tz="UTC")
LIST, MAP = pa.list_(pa.string()), pa.map_(pa.string(), pa.int64())
STRUCT = pa.struct([("a", pa.int32()), ("b", pa.string())])

# Of each type of SQL: what Spark writes, how a dtype may spell it, a check (none for what nothing
# is compared with), and a value that is as the check says and one that is not.
TYPES: dict[str, tuple[pa.DataType, tuple[str, ...], str, Any, Any]] = {
    "BOOLEAN": (pa.bool_(), ("bool", "boolean", "bool[pyarrow]"), "eq: true", True, False),
    "TINYINT": (pa.int8(), ("int8", "Int8"), "gt: 0", 1, 0),
    "SMALLINT": (pa.int16(), ("int16", "Int16"), "ge: 1", 1, 0),
    "INT": (pa.int32(), ("int32", "Int32", "int", "INTEGER"), "lt: 5", 4, 5),
    "BIGINT": (pa.int64(), ("int64", "Int64", "int", "int64[pyarrow]"), "gt: 0.5", 2**60, 0),
    "FLOAT": (pa.float32(), ("float32", "Float32", "float", "REAL"), "ge: 0.7", 0.7, 0.5),
    "DOUBLE": (pa.float64(), ("float64", "Float64", "float", "double"), "le: 0.1", 0.1, 0.2),
    "DECIMAL(10, 2)": (
        pa.decimal128(10, 2),
        ("Decimal(10, 2)", "decimal", "object"),
        "ge: 0.1",
        Decimal("0.10"),
        Decimal("0.09"),
    ),
    "DATE": (
        pa.date32(),
        ("date", "object", "date32[day][pyarrow]"),
        "gt: 2024-02-28",
        date(2024, 2, 29),
        date(2024, 2, 28),
    ),
    "TIMESTAMP": (
        INSTANT,
        (
            "datetime64[ns]",
            "datetime64[us]",
            "datetime64[us, UTC]",
            "datetime64[ns, UTC]",
            "datetime",
            "timestamp",
        ),
        "ge: 2024-01-01T01:00:00+01:00",
        datetime(2024, 1, 1, tzinfo=UTC),
        datetime(2023, 12, 31, 23, 59, tzinfo=UTC),
    ),
    "TIMESTAMP_NTZ": (
        MICROS,
        ("datetime64[ns]", "datetime64[us]", "datetime"),
        "lt: '2024-01-01 00:00:00'",
        datetime(2023, 12, 31, tzinfo=UTC).replace(tzinfo=None),
        datetime(2024, 1, 1, tzinfo=UTC).replace(tzinfo=None),
    ),
    "STRING": (pa.string(), ("str", "string", "object", "string[python]"), "gt: b", "ba", "b"),
    "BINARY": (pa.binary(), ("bytes", "object"), "eq: !!binary AAE=", b"\0\1", b"\0"),
    "ARRAY<STRING>": (LIST, ("list", "array", "object", "array<string>"), "", ["a"], None),
    "MAP<STRING, BIGINT>": (MAP, ("dict", "map", "object"), "", [("a", 1)], None),
    "STRUCT<a: INT, `b`: STRING>": (STRUCT, ("dict", "struct", "object"), "", {"a": 1}, None),
}
SPELLED = [(sql, spelling) for sql, row in TYPES.items() for spelling in (sql, *row[1])]


def contract(dtype: str, check: str, *, nullable: bool) -> str:
    line = "" if not check else f"    checks: {{{check}}}\n"
    return f"columns:\n  v:\n    dtype: '{dtype}'\n    nullable: {str(nullable).lower()}\n{line}"


@pytest.mark.parametrize(("sql", "spelling"), SPELLED)
def test_a_type_is_right_with_and_without_nulls(tmp_path: Path, sql: str, spelling: str) -> None:
    kind, _, check, good, bad = TYPES[sql]
    full, holed, empty = ([good, good], [good, None], [None, None])
    nullable = read_rules(tmp_path, contract(spelling, check, nullable=True), ["v"])
    for values in (full, holed, empty):
        assert broken(nullable, [{"v": pa.array(values, kind)}]) == []
    strict = read_rules(tmp_path, contract(spelling, check, nullable=False), ["v"])
    assert broken(strict, [{"v": pa.array(full, kind)}]) == []
    assert broken(strict, [{"v": pa.array(holed, kind)}]) == ["v: not_nullable (line 2; 1 times)"]
    if check:
        for rules in (nullable, strict):
            (problem,) = broken(rules, [{"v": pa.array([good, bad], kind)}])
            assert "(line 5; 1 times, for example " in problem
        (problem,) = broken(nullable, [{"v": pa.array([bad, None], kind)}])
        assert "1 times" in problem


@pytest.mark.parametrize(("sql", "spelling"), SPELLED)
def test_another_type_breaks_the_contract(tmp_path: Path, sql: str, spelling: str) -> None:
    rules = read_rules(tmp_path, contract(spelling, "", nullable=True), ["v"])
    for other, row in TYPES.items():
        found = broken(rules, [{"v": pa.array([row[3], None], row[0])}])
        if not rules.columns[0].allows(sql_type(row[0])):
            assert found == [f"v: dtype('{spelling}'), and it is {sql_type(row[0])} (line 2)"]
        else:
            # A spelling may mean two types; each type is meant by the names of its own row.
            assert other == sql or spelling in TYPES[other][1] or spelling in AMBIGUOUS
            assert found == []


AMBIGUOUS = {"dict", "float", "int", "INT", "FLOAT", "datetime", "timestamp", "TIMESTAMP"}


# Checks, what they hold of, and what they do not.
CHECKS: list[tuple[str, str, list[Any], list[Any]]] = [
    ("equal_to: 3", "BIGINT", [3], [2, 4]),
    ("not_equal_to: 3", "BIGINT", [2, 4], [3]),
    ("greater_than: 3", "BIGINT", [4], [3, 2]),
    ("greater_than_or_equal_to: 3", "BIGINT", [4, 3], [2]),
    ("less_than: 3", "BIGINT", [2], [3, 4]),
    ("less_than_or_equal_to: 3", "BIGINT", [2, 3], [4]),
    ("in_range: {min_value: 1, max_value: 3}", "BIGINT", [1, 2, 3], [0, 4]),
    (
        "between: {min_value: 1, max_value: 3, include_min: false, include_max: false}",
        *("BIGINT", [2], [1, 3]),
    ),
    ("in_range: {min_value: 0.5, max_value: 1.5}", "BIGINT", [1], [0, 2]),
    ("isin: [1, 3]", "BIGINT", [1, 3], [2]),
    ("notin: [1, 3]", "BIGINT", [2], [1, 3]),
    ("isin: []", "BIGINT", [], [2]),
    ("isin: [a, b]", "STRING", ["a", "b"], ["c", "ab"]),
    ("notin: [a, b]", "STRING", ["c", "ab"], ["a"]),
    ("isin: [0.1, 2]", "DECIMAL(10, 2)", [Decimal("0.1"), Decimal(2)], [Decimal("0.11")]),
    ("isin: [2024-01-01]", "DATE", [date(2024, 1, 1)], [date(2024, 1, 2)]),
    ("isin: [0.0]", "DOUBLE", [0.0, -0.0], [0.5]),
    ("in_range: {min_value: 0, max_value: .inf}", "DOUBLE", [float("inf"), 0.0], [-0.5]),
    ("str_matches: 'ab?$'", "STRING", ["a", "ab"], ["ba", "abb", ""]),
    ("str_contains: 'b(?=b)'", "STRING", ["abb", "bb"], ["ab", "b"]),
    ("str_startswith: a.", "STRING", ["a.b"], ["ab", "a"]),
    ("str_endswith: .b", "STRING", ["a.b"], ["ab", ".bc"]),
    ("str_length: {min_value: 1, max_value: 2}", "STRING", ["ä", "äö"], ["", "äöü"]),
    ("str_length: {exact_value: 2}", "STRING", ["ab"], ["a", "abc"]),
    ("str_length: 2", "STRING", ["ab"], ["a", "abc"]),
]


@pytest.mark.parametrize(("check", "sql", "good", "bad"), CHECKS)
def test_a_check_finds_what_breaks_it(
    tmp_path: Path, check: str, sql: str, good: list[Any], bad: list[Any]
) -> None:
    kind = TYPES[sql][0]
    name, _, value = check.partition(": ")
    short = value if value.startswith("{") else f"{{value: {value}}}"
    forms = [
        f"columns:\n  v: {{nullable: true, checks: {{{check}}}}}\n",
        f"columns:\n  v: {{nullable: true, {check}}}\n",
        "columns:\n  v:\n    nullable: true\n    checks:\n"
        f"    - {{{short[1:-1]}, options: {{check_name: {name}}}}}\n",
    ]
    if not name.startswith("str_"):
        forms.append(f"checks: {{{check}}}\n")
    for form in forms:
        rules = read_rules(tmp_path, form, ["v"])
        assert broken(rules, [{"v": pa.array([*good, None], kind)}]) == []
        (problem,) = broken(rules, [{"v": pa.array([*good, *bad, None], kind)}])
        assert f"{len(bad)} times, for example {bad[0]!r}" in problem
        assert len(broken(rules, [{"v": pa.array([each], kind)} for each in bad])) == len(bad)


def test_pandera_judges_the_same(tmp_path: Path) -> None:
    import pandera.errors
    from pandera.io.pandas_io import from_yaml

    judged = 0
    for check, sql, good, bad in CHECKS:
        if "0.1" in check:
            continue  # a DECIMAL beside a float, which pandera compares in binary
        text = f"columns:\n  v: {{checks: {{{check}}}}}\n"
        rules = read_rules(tmp_path, text, ["v"])
        schema = from_yaml(text)  # type: ignore[no-untyped-call]
        for value in (*good, *bad):
            values = pa.array([value], TYPES[sql][0])
            try:
                schema.validate(pa.table({"v": values}).to_pandas())
            except pandera.errors.SchemaError:
                assert broken(rules, [{"v": values}]), (check, value)
            else:
                assert not broken(rules, [{"v": values}]), (check, value)
            judged += 1
    assert judged > 60


def test_large_numbers_are_compared_exactly(tmp_path: Path) -> None:
    rules = read_rules(tmp_path, f"columns:\n  v: {{nullable: true, ne: {2**53 + 1}}}\n", ["v"])
    assert broken(rules, [{"v": pa.array([2**53, None])}]) == []
    assert broken(rules, [{"v": pa.array([2**53 + 1, None])}])


def test_not_a_number_is_no_value(tmp_path: Path) -> None:
    values = {"v": pa.array([1.0, float("nan")])}
    assert broken(read_rules(tmp_path, "columns:\n  v: {nullable: true}\n", ["v"]), [values]) == []
    (problem,) = broken(read_rules(tmp_path, "columns:\n  v: {}\n", ["v"]), [values])
    assert problem == "v: not_nullable (line 2; 1 times)"


def test_every_rule_that_is_broken_is_told(tmp_path: Path) -> None:
    text = "columns:\n  a: {dtype: str, gt: 5}\n  b: {gt: 5}\ndtype: int64\nchecks: {lt: 0}\n"
    with pytest.raises(AssertionError, match="cannot be checked on a column of type string"):
        read_rules(tmp_path, text, ["a", "b"])
    rules = read_rules(tmp_path, text.replace("str", "int64"), ["a", "b"])
    found = broken(rules, [{"a": pa.array(["x", None]), "b": pa.array([1, 9])}])
    assert found == [
        "a: dtype('int64'), and it is string (line 2)",
        "a: dtype('int64'), and it is string (line 4)",
        "a: greater_than(5) cannot be checked on a column of type string: 5 is not of that type "
        "(line 2)",
        "a: less_than(0) cannot be checked on a column of type string: 0 is not of that type "
        "(line 5)",
        "a: not_nullable (line 2; 1 times)",
        "b: greater_than(5) (line 3; 1 times, for example 1)",
        "b: less_than(0) (line 5; 2 times, for example 1, 9)",
    ]


def test_a_column_that_is_not_there_is_told(tmp_path: Path) -> None:
    rules = read_rules(tmp_path, "columns:\n  a: {gt: 5, unique: true}\n", ["a"])
    found = broken(rules, [{"b": pa.array([1])}])
    assert found == ["a: the view has no such column (line 2)"]


# --- unique -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("duplicates", "times"), [("all", 3), ("exclude_first", 2), ("exclude_last", 2)]
)
def test_unique_holds_across_files(tmp_path: Path, duplicates: str, times: int) -> None:
    text = f"columns:\n  v: {{unique: true, report_duplicates: {duplicates}}}\n"
    rules = read_rules(tmp_path, text, ["v"])
    files = [{"v": pa.array(values)} for values in ([7, 1], [2, 7], [7])]
    assert broken(rules, files) == [f"v: unique (line 2; {times} times, for example 7)"]
    assert broken(rules, [{"v": pa.array([1, 2])}, {"v": pa.array([3])}]) == []


UNIQUE_KINDS = [sql for sql in TYPES if "<" not in sql]


@pytest.mark.parametrize("sql", UNIQUE_KINDS)
@pytest.mark.parametrize("apart", [True, False], ids=["two files", "one file"])
def test_unique_of_every_type_with_and_without_nulls(
    tmp_path: Path, sql: str, *, apart: bool
) -> None:
    kind, _, _, one, other = TYPES[sql]
    rules = read_rules(tmp_path, "columns:\n  v: {nullable: true, unique: true}\n", ["v"])

    def files(*values: Any) -> list[dict[str, pa.Array]]:
        parts = [[each] for each in values] if apart else [[*values]]
        return [{"v": pa.array(part, kind)} for part in parts]

    assert broken(rules, files(one, other)) == []
    assert broken(rules, files(one, None)) == []
    assert len(broken(rules, files(one, one))) == 1
    # As for pandera, one null is as good as another.
    assert broken(rules, files(None, None)) == ["v: unique (line 2; 2 times, for example None)"]


def test_unique_is_as_pandera_has_it(tmp_path: Path) -> None:
    import pandera.errors
    from pandera.io.pandas_io import from_yaml

    column = "columns:\n  v: {nullable: true, unique: true}\n"
    pair = "columns:\n  v: {nullable: true}\nunique: [v, w]\n"
    for text in (column, pair):
        rules = read_rules(tmp_path, text, ["v", "w"])
        schema = from_yaml(text)  # type: ignore[no-untyped-call]
        for v, w in [
            ([1.0, 1.0], [1, 2]),
            ([1.0, 1.0], [1, 1]),
            ([None, None], [1, 1]),
            ([None, None], [1, 2]),
            ([None, float("nan")], [1, 1]),
            ([0.0, -0.0], [1, 1]),
            ([1.0, None], [1, 1]),
        ]:
            rows = {"v": pa.array(v, pa.float64()), "w": pa.array(w)}
            try:
                schema.validate(pa.table(rows).to_pandas(), lazy=True)
                is_unique = True
            except pandera.errors.SchemaErrors:
                is_unique = False
            files = [{name: values.slice(at, 1) for name, values in rows.items()} for at in (0, 1)]
            assert (broken(rules, files) == []) == is_unique, (text, v, w)


def test_several_columns_are_unique_together(tmp_path: Path) -> None:
    rules = read_rules(tmp_path, "unique: [a, b]\nreport_duplicates: exclude_first\n", ["a", "b"])
    files = [
        {"a": pa.array(a), "b": pa.array(b)}
        for a, b in (([1, 1], ["x", "y"]), ([2, 1], ["x", "y"]))
    ]
    (problem,) = broken(rules, files)
    assert problem == "a, b: unique (line 1; 1 times, for example {'a': 1, 'b': 'y'})"
    assert broken(rules, [files[0], files[0]])
    assert broken(rules, [files[0]]) == []


def test_equal_files_are_two_files(tmp_path: Path) -> None:
    # Reports of the same text count once, since one can arrive along two ways.
    rules = read_rules(tmp_path, "columns:\n  v: {unique: true}\n", ["v"])
    assert broken(rules, [{"v": pa.array([7])}] * 2)


def test_more_keys_than_a_report_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laminar_dagster.spark.contracts._KEYS_A_REPORT", 3)
    rules = read_rules(tmp_path, "columns:\n  v: {unique: true}\n", ["v"])
    assert broken(rules, [{"v": pa.array(range(10))}]) == []
    assert broken(rules, [{"v": pa.array([*range(10), 0])}])


def test_lists_cannot_be_unique(tmp_path: Path) -> None:
    rules = read_rules(tmp_path, "columns:\n  v: {unique: true}\n", ["v"])
    (problem,) = broken(rules, [{"v": pa.array([["a"], ["b"]])}])
    assert problem == "v: unique cannot be checked on array<string> (line 2)"


# --- rows that are taken back -------------------------------------------------------------------


def test_rows_that_are_taken_back_are_not_judged(tmp_path: Path) -> None:
    text = "columns:\n  v: {dtype: int64, gt: 0}\nstrict: true\nordered: true\n"
    rules = read_rules(tmp_path, text, ["v"])
    for takes_back_first in (True, False):
        rows = [{"v": pa.array([-5, None, 3])}]
        assert broken(rules, rows, [[-1, -1, 1]], takes_back_first=takes_back_first) == []
        (problem,) = broken(rules, rows, [[1, -1, 1]], takes_back_first=takes_back_first)
        assert problem == "v: greater_than(0) (line 2; 1 times, for example -5)"


def test_the_weight_is_a_column_if_a_view_selects_it(tmp_path: Path) -> None:
    for named in ("", "  _weight: {dtype: TINYINT, eq: 1}\n"):
        text = "strict: true\nchecks: {gt: 2}\ndtype: int64\ncolumns:\n  v: {unique: true}\n"
        rules = read_rules(tmp_path, text + named, ["v", "_weight"])
        assert broken(rules, [{"v": pa.array([3, 3, 3])}], [[1, -1, 1]]) == []
        assert len(broken(rules, [{"v": pa.array([1])}], [[1]])) == 1


@pytest.mark.parametrize(
    ("ids", "values", "weights", "is_unique"),
    [
        pytest.param([[1], [1]], [["old"], ["new"]], [[-1], [1]], True, id="replaced"),
        pytest.param([[1, 1, 1]], [["a", "a", "b"]], [[1, -1, 1]], True, id="twice in an epoch"),
        pytest.param([[1, 1], [1]], [["a", "b"], ["a"]], [[1, 1], [-1]], True, id="apart"),
        pytest.param([[1, 1, 1]], [["old", "a", "b"]], [[-1, 1, 1]], False, id="one for two"),
        pytest.param([[1], [1]], [["a"], ["a"]], [[1], [1]], False, id="the same row twice"),
        pytest.param([[1], [1]], [["a"], ["b"]], [[-1], [-1]], True, id="nothing is left"),
    ],
)
def test_what_is_there_when_the_epoch_ends_is_unique(
    tmp_path: Path,
    ids: list[list[int]],
    values: list[list[str]],
    weights: list[list[int]],
    *,
    is_unique: bool,
) -> None:
    rules = read_rules(tmp_path, "columns:\n  id: {unique: true}\n", ["id", "value"])
    files = [
        {"id": pa.array(of_file), "value": pa.array(value)}
        for of_file, value in zip(ids, values, strict=True)
    ]
    for takes_back_first in (True, False):
        found = broken(rules, files, weights, takes_back_first=takes_back_first)
        assert (found == []) == is_unique


# --- what could switch the gate off -------------------------------------------------------------


@pytest.mark.parametrize(
    "setting", ["PANDERA_VALIDATION_ENABLED=False", "PANDERA_VALIDATION_DEPTH=SCHEMA_ONLY"]
)
def test_no_setting_of_pandera_switches_the_gate_off(tmp_path: Path, setting: str) -> None:
    program = """
import sys, pathlib, pyarrow as pa
from tests.unit.spark.staged_contracts import broken, read_rules
text = "columns:\\n  v: {dtype: int64, gt: 0, unique: true}\\n"
rules = read_rules(pathlib.Path(sys.argv[1]), text, ["v"])
print(len(broken(rules, [{"v": pa.array([-5, None])}, {"v": pa.array([-5])}])))
print("pandera" in sys.modules)
"""
    name, _, value = setting.partition("=")
    told = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, name: value},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    # A check in each file, a null, and two equal values; and no worker loads pandera for it.
    assert told.splitlines() == ["4", "False"]
