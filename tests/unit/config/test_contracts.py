"""What a contract may say: each key and check that would weaken the gate is refused by name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from laminar_dagster.config.contract_rules import CheckRule, ColumnRule, UniqueRule
from tests.unit.config.folders import SOURCES, load, mistakes

PLACE = "contracts/per_minute.yml"
COLUMNS = ("window_start", "window_end", "page", "n")


def wrong(folder: Path, text: str) -> list[str]:
    return mistakes(folder, {"a.sql": SOURCES, PLACE: text})


def rules(folder: Path, text: str) -> Any:
    (contract,) = load(folder, {"a.sql": SOURCES, PLACE: text}).contracts
    return contract.rules


REFUSED_KEYS = [
    ("drop_invalid_rows: true", "a broken row stops the epoch"),
    ("coerce: true", "cast in the query"),
]
REFUSED_OF_SCHEMAS = [
    *REFUSED_KEYS,
    ("add_missing_columns: true", "rows are published as the view makes them"),
    ("strict: filter", "`strict: filter` would leave columns out of what is checked"),
    ("index: [{dtype: int64}]", "rows of a stream have no index"),
    ("multiindex: {strict: true}", "rows of a stream have no index"),
    ("schema_type: series", "a contract is for the rows of a view"),
    ("api: polars", "a contract is a schema of pandera for pandas"),
    ("dataframe_library: dask", "a contract is a schema of pandera for pandas"),
    ("parsers: [x]", "a schema has no key `parsers` (rows are published as the view makes them"),
    ("head: 5", "a schema has no key `head` (every row is checked, not some of them)"),
    ("sample: 5", "a schema has no key `sample` (every row is checked, not some of them)"),
    ("lazy: false", "a schema has no key `lazy` (every rule is checked"),
    ("strct: true", "a schema has no key `strct` (did you mean `strict`?)"),
    ("strict: 'yes'", "`strict` is true or false"),
    ("strict: true", "the view has other columns: window_start, window_end, page, n"),
    ("report_duplicates: first", "`report_duplicates` is one of all, exclude_first, exclude_last"),
    ("unique: [page, nn]", "view `per_minute` has no column `nn` (did you mean `n`?)"),
    ("dtype: int63", "`int63` is not the type of a column"),
    ("checks: {one_sample_ttest: {popmean: 3}}", "a hypothesis would stop it by chance"),
    ("checks: {is_even: true}", "there is no check `is_even`"),
    ("checks: {str_length: 3}", "`str_length` is for a column, not for all of them"),
    ("checks: {gt: 1, gt: 0}", "check `gt` stands here twice"),
    ("checks: [{value: 1}]", "a check in a list is a mapping with `options`, and `check_name`"),
    ("checks: 3", "checks are a mapping from their names"),
    ("ordered: true\nordered: false", "`ordered` stands here twice"),
]
REFUSED_OF_COLUMNS = [
    *REFUSED_KEYS,
    ("default: 0", "use COALESCE in the query"),
    ("parsers: [x]", "column `n` has no key `parsers` (rows are published as the view"),
    ("nullable: 'no'", "`nullable` is true or false"),
    ("unique: [n]", "`unique` is true or false"),
    ("name: m", "column `n` has another name here"),
    ("dtype: uint8", "`uint8` is not the type of a column"),
    ("dtype: category", "`category` is not the type of a column"),
    ("dtype: BIGINT NOT NULL", "`BIGINT NOT NULL` is not the type of a column"),
    ("dtype: bigint, gt: '5'", "cannot be checked on a column of type bigint: '5' is no number"),
    ("dtype: str, gt: 5", "cannot be checked on a column of type string: 5 is not of that type"),
    ("dtype: list, eq: 5", "cannot be checked on a column of type array"),
    ("dtype: date, eq: 5", "5 is no date"),
    ("dtype: datetime, eq: soon", "cannot be checked on a column of type timestamp"),
    ("dtype: TIMESTAMP_NTZ, eq: 2024-01-01T00:00:00Z", "has a zone, and the column has none"),
    ("dtype: int64, lt: .inf", "inf is not finite"),
    ("dtype: int64, lt: 1.0e+99", "has more than 38 digits"),
    ("dtype: double, eq: .nan", "NaN equals nothing"),
    ("dtype: int64, str_length: 3", "it is for strings"),
    ("unique_values_eq: [1]", "which values an epoch happens to hold is chance"),
    ("checks: {unique_values_eq: [1]}", "which values an epoch happens to hold is chance"),
    ("checks: {two_sample_ttest: {sample1: a}}", "a hypothesis would stop it by chance"),
    ("checks: {is_monotonic: true}", "the rows of an epoch have no order"),
    ("checks: {ndim: 2}", "there is no check `ndim`"),
    ("isin: ab", "`isin`: `allowed_values` is a list"),
    ("isin: [1, null]", "`nullable` is for nulls"),
    ("in_range: 3", "`in_range`: `max_value` is missing"),
    ("in_range: {min_value: 0, max_value: 5, include_max: 1}", "`include_max` is true or false"),
    ("gt: {max_value: 3}", "`gt`: it takes no `max_value`; it takes: min_value"),
    ("gt: null", "`gt`: `min_value` is missing"),
    ("gt: [1]", "`gt`: `min_value` is one value"),
    ("str_matches: '('", "'(' is no regular expression"),
    ("str_contains: 3", "`pattern` is text"),
    ("str_length: many", "`exact_value` is a whole number"),
    ("gt: 1, gt: 0", "`gt` stands here twice"),
    ("gt: {min_value: 1, min_value: 0}", "a name stands here twice"),
]
REFUSED_OPTIONS = [
    ("raise_warning: true", "a warning would publish the rows that break the check"),
    ("ignore_na: false", "`nullable` says whether nulls may be"),
    ("groupby: page", "a group's rows may lie in several files"),
    ("groups: [a]", "a group's rows may lie in several files"),
    ("element_wise: true", "look at one value at a time"),
    ("_check_fn: x", "there is no option `_check_fn`"),
]


@pytest.mark.parametrize(("line", "expected"), REFUSED_OF_SCHEMAS)
def test_a_schema_cannot_weaken_the_gate(tmp_path: Path, line: str, expected: str) -> None:
    (found,) = wrong(tmp_path, f"\n{line}\n")
    assert found.startswith((f"{PLACE}:2: ", f"{PLACE}:3: "))
    assert expected in found


@pytest.mark.parametrize(("keys", "expected"), REFUSED_OF_COLUMNS)
def test_a_column_cannot_weaken_the_gate(tmp_path: Path, keys: str, expected: str) -> None:
    (found,) = wrong(tmp_path, f"columns:\n  n: {{{keys}}}\n")
    assert found.startswith(f"{PLACE}:2: ")
    assert expected in found


@pytest.mark.parametrize(("option", "expected"), REFUSED_OPTIONS)
def test_an_option_of_a_check_cannot_weaken_the_gate(
    tmp_path: Path, option: str, expected: str
) -> None:
    for check in (
        f"gt: {{value: 0, options: {{{option}}}}}",
        f"gt: {{value: 0, {option}}}",
        f"checks: {{gt: {{value: 0, options: {{{option}}}}}}}",
        f"checks: [{{value: 0, options: {{check_name: gt, {option}}}}}]",
    ):
        (found,) = wrong(tmp_path, f"columns:\n  n:\n    {check}\n")
        assert found.startswith(f"{PLACE}:3: ")
        assert expected in found or "it takes no `value`" in found


@pytest.mark.parametrize("required", ["true", "false"])
def test_a_column_that_is_not_there_is_never_hidden(tmp_path: Path, required: str) -> None:
    assert wrong(tmp_path, f"columns:\n  nn: {{required: {required}}}\n") == [
        f"{PLACE}:2: view `per_minute` has no column `nn` (did you mean `n`?)"
    ]
    (found,) = wrong(tmp_path, f"columns:\n  'x.*': {{regex: true, required: {required}}}\n")
    assert found.startswith(f"{PLACE}:2: no column of view `per_minute` matches `x.*`")


def test_a_column_has_one_place(tmp_path: Path) -> None:
    assert wrong(tmp_path, "columns:\n  n: {gt: 5}\n  N: {gt: 0}\n") == [
        f"{PLACE}:3: column `N` stands here twice"
    ]


def test_the_order_of_columns_is_known_before_anything_runs(tmp_path: Path) -> None:
    assert wrong(tmp_path, "columns:\n  n: {}\n  page: {}\nordered: true\n") == [
        f"{PLACE}:4: the columns of the view have another order (order: page, n)"
    ]
    assert len(rules(tmp_path, "columns:\n  page: {}\n  n: {}\nordered: true\n").columns) == 2


def test_what_changes_nothing_is_taken(tmp_path: Path) -> None:
    found = rules(
        tmp_path,
        "schema_type: dataframe\nversion: 0.35.0\napi: pandas\nname: x\ntitle: x\nindex: null\n"
        "description: x\nmetadata: {owner: me}\ncoerce: false\ndrop_invalid_rows: false\n"
        "add_missing_columns: false\nunique_column_names: true\nchecks: null\nunique: null\n"
        "columns:\n  N:\n    coerce: false\n    required: false\n    default: null\n    gt:\n"
        "      value: 0\n      options: {raise_warning: false, ignore_na: true, error: low}\n",
    )
    assert found.columns == (ColumnRule("n", "", (), nullable=False, line=16),)
    assert found.checks == (CheckRule("n", "greater_than", {"min_value": 0}, 21),)


def test_what_a_contract_says_of_all_columns_holds_for_each(tmp_path: Path) -> None:
    text = (
        "unique: [page, N]\nchecks: {ne: 7}\ncolumns:\n  'window.*': {regex: true, unique: true}\n"
    )
    found = rules(tmp_path, text)
    assert [each.column for each in found.checks] == [*COLUMNS]
    assert [each.column for each in found.columns] == ["window_start", "window_end"]
    assert found.unique == (
        UniqueRule(("window_start",), "all", 4),
        UniqueRule(("window_end",), "all", 4),
        UniqueRule(("page", "n"), "all", 1),
    )


def test_what_pandera_writes_can_be_read(tmp_path: Path) -> None:
    import pandera.pandas as pa
    from pandera.io.pandas_io import to_yaml

    schema = pa.DataFrameSchema(
        {
            "window_start": pa.Column("datetime64[ns]", nullable=True),
            "page": pa.Column(str, [pa.Check.str_length(1, 9), pa.Check.isin(["a", "b"])]),
            "n": pa.Column("int64", [pa.Check.gt(0), pa.Check.in_range(0, 9)], unique=True),
        },
        unique=["page", "n"],
        report_duplicates="exclude_first",
    )
    for minimal in (True, False):
        found = rules(tmp_path, to_yaml(schema, minimal=minimal))
        assert [(each.column, each.types, each.nullable) for each in found.columns] == [
            ("window_start", ("timestamp", "timestamp_ntz"), True),
            ("page", ("string",), False),
            ("n", ("bigint",), False),
        ]
        assert [str(each) for each in found.checks] == [
            "str_length(1, 9)",
            "isin(['a', 'b'])",
            "greater_than(0)",
            "in_range(0, 9, True, True)",
        ]
        assert [each.columns for each in found.unique] == [("n",), ("page", "n")]


def test_a_setting_of_pandera_that_is_wrong_is_told(tmp_path: Path) -> None:
    program = """
import sys, pathlib
from tests.unit.config.folders import SOURCES, write
from laminar_dagster.config.project import load_pipeline
from laminar_dagster.core.errors import InvalidConfig
text = "columns:\\n  n: {gt: 0}\\n"
root = write(pathlib.Path(sys.argv[1]), {"a.sql": SOURCES, "contracts/per_minute.yml": text})
try:
    load_pipeline(root, {})
except InvalidConfig as error:
    print(error)
"""
    told = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "PANDERA_VALIDATION_DEPTH": "nonsense"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "pandera does not take this schema: 'nonsense'" in told


def test_a_contract_loads_no_pandas_on_spark(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.unit.config.test_contracts import *;"
        f"rules(Path({str(tmp_path / 'anew')!r}), 'columns: {{n: {{gt: 0}}}}');"
        "print('pandera' in sys.modules, 'pyspark.pandas' in sys.modules);"
        "import pyspark.pandas; print(pyspark.pandas.__name__)"
    )
    (tmp_path / "anew").mkdir()
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    # The last line: a program that wants it gets it all the same.
    assert ran.stdout.split() == ["True", "False", "pyspark.pandas"], ran.stderr
