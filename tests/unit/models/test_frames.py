"""Functions from data frame to data frame: rows are those of Arrow's tables, and so are checks."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest

from laminar_dagster.core.errors import ModelFailed
from laminar_dagster.models import TIMESTAMP, InvalidModel, RowModel, Step, keyed_operator, model
from laminar_dagster.testing.models import assert_same_under_any_cut, load_model, run_model

if TYPE_CHECKING:
    from somewhere import LazyFrame  # type: ignore[import-not-found]

START = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = {"word": pa.string(), "at": TIMESTAMP}
# Of each type that a column may have.
EVERY = pa.schema(
    [
        ("flag", pa.bool_()),
        ("small", pa.int8()),
        ("large", pa.int64()),
        ("real", pa.float64()),
        ("half", pa.float32()),
        ("money", pa.decimal128(20, 4)),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("moment", TIMESTAMP),
        ("local", pa.timestamp("us")),
        ("items", pa.list_(pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))]))),
        ("by_name", pa.map_(pa.string(), pa.decimal128(5, 2))),
        ("both", pa.struct([("a", TIMESTAMP), ("b", pa.int32())])),
    ]
)
# What pandas' own types would change: long numbers beside nulls, NaN, years far away.
FULL = {
    "flag": True,
    "small": -128,
    "large": 2**62 + 1,
    "real": float("nan"),
    "half": 1.5,
    "money": Decimal("1234567890123456.7891"),
    "text": "",
    "raw": b"\x00\xff",
    "day": date(1, 1, 1),
    "moment": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    "local": datetime(1500, 1, 1, 1, 1, 1, 1, tzinfo=UTC).replace(tzinfo=None),
    "items": [{"x": 1, "y": ["a", None]}, None, {"x": None, "y": []}],
    "by_name": [("k", Decimal("1.50")), ("z", None)],
    "both": {"a": datetime(1600, 1, 1, tzinfo=UTC), "b": None},
}
EMPTY: dict[str, Any] = {
    **dict.fromkeys(FULL),
    "real": 0.0,
    "items": [],
    "by_name": [],
    "both": {"a": None},
}
WORDS = """
import pandas as pd
import pyarrow as pa
from laminar_dagster.models import TIMESTAMP, model

@model(reads="lines", columns={"word": pa.string(), "at": TIMESTAMP}, event_time="at")
def words(lines: pd.DataFrame) -> pd.DataFrame:
    split = lines.assign(word=[text.split(" ") for text in lines["text"]])
    found = split.explode("word")[["word", "at"]]
    return found[found["word"] != ""]
"""


def lines(*texts: str) -> pa.Table:
    at = [START + timedelta(seconds=place) for place in range(len(texts))]
    return pa.table({"text": pa.array(texts), "at": pa.array(at, TIMESTAMP)})


def of(function: Any) -> RowModel:
    return model(reads="lines", columns=COLUMNS, event_time="at")(function)


def test_nothing_is_lost_on_the_way_there_and_back() -> None:
    seen: list[pd.DataFrame] = []

    @model(reads="rows", columns=EVERY)
    def same(rows: pd.DataFrame) -> pd.DataFrame:
        seen.append(rows)
        return rows.copy()

    rows = pa.Table.from_pylist([FULL, dict.fromkeys(FULL), EMPTY, FULL], schema=EVERY)
    found = run_model(same, pa.concat_tables([rows.slice(1, 2), rows]))
    assert found.schema == EVERY
    # As text, because NaN is not equal to itself.
    assert repr(found.to_pylist()) == repr([*rows.slice(1, 2).to_pylist(), *rows.to_pylist()])
    assert all(isinstance(kind, pd.ArrowDtype) for kind in seen[0].dtypes)
    assert seen[0]["large"].isna().sum() == 4
    assert_same_under_any_cut(same, rows)


def test_rows_are_changed_dropped_and_multiplied(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text(WORDS)
    words = load_model(tmp_path / "words.py")
    assert isinstance(words, RowModel)
    assert words.frame == "pandas"
    rows = lines("a b", "", "c", "d e f")
    found = run_model(words, rows)
    assert found["word"].to_pylist() == list("abcdef")
    assert found["at"].to_pylist()[-1] == START + timedelta(seconds=3)
    assert_same_under_any_cut(words, rows)
    # As if it were no model.
    assert list(words(pd.DataFrame({"text": ["x y"], "at": [START]}))["word"]) == ["x", "y"]


def test_columns_that_are_pandas_own_fit_too() -> None:
    kinds = {"n": pa.int64(), "real": pa.float64(), "at": TIMESTAMP, "money": pa.decimal128(9, 2)}
    kinds |= {"kind": pa.string(), "nothing": pa.int32(), "items": pa.list_(pa.int64())}

    @model(reads="lines", columns=kinds, event_time="at")
    def own(rows: pd.DataFrame) -> pd.DataFrame:
        at = rows["at"].astype("datetime64[us, UTC]")
        real = at.dt.second.astype("float64").where(at.dt.second > 0)
        return pd.DataFrame(
            {
                "n": at.dt.second.to_numpy(),
                "real": real.to_numpy(),
                "at": at,
                "money": [Decimal("1.5")] * len(rows),
                "kind": pd.Categorical(rows["text"].to_numpy()),
                "nothing": [None] * len(rows),
                "items": [[1, 2]] * len(rows),
            }
        ).set_index(rows["text"].astype(str))

    found = run_model(own, lines("a", "b")).to_pylist()
    assert [(row["n"], row["real"], row["kind"]) for row in found] == [
        (0, None, "a"),
        (1, 1.0, "b"),
    ]
    assert [row["money"] for row in found] == [Decimal("1.50")] * 2
    assert found[1]["at"] == START + timedelta(seconds=1)
    assert found[0]["items"] == [1, 2] and found[0]["nothing"] is None


def renamed(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.rename(columns={"text": "word"})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda rows: rows.drop(columns="word"), "it gave no column `word`"),
        (lambda rows: rows.assign(more=1), "a column `more`, which it does not declare"),
        (lambda rows: rows.assign(word=1), "`word` is int64, and is declared as string"),
        (lambda rows: rows.to_dict(), "it gave a dict in place of a DataFrame"),
        (lambda rows: rows.set_axis(["word", "word"], axis=1), "or two have the same"),
        (lambda rows: rows.assign(word=[{1}, 2]), "`word` is object, which Arrow cannot take"),
        (lambda rows: rows.assign(at=rows["at"] + pd.Timedelta(days=1)), "it changed `at`"),
        (lambda rows: rows.iloc[::-1], "it has to treat each row by itself"),
        (
            lambda rows: rows.assign(word=[f"{each}" for each in rows.index]),
            "it has to treat each row by itself",
        ),
    ],
)
def test_what_a_model_does_wrong_is_told(change: Any, problem: str) -> None:
    def wrong(rows: pd.DataFrame) -> pd.DataFrame:
        return change(renamed(rows))

    with pytest.raises(ModelFailed) as caught:
        run_model(of(wrong), lines("a", "b"))
    assert problem in str(caught.value)
    assert __file__ in caught.value.where


def test_an_error_names_the_line_and_the_row(tmp_path: Path) -> None:
    path = tmp_path / "words.py"
    path.write_text(WORDS.replace("    found =", "    split['text'].astype(int)\n    found ="))
    words = load_model(path)
    assert isinstance(words, RowModel)
    with pytest.raises(ModelFailed) as caught:
        run_model(words, lines("1", "2", "three", "4"))
    assert caught.value.where == f"{path}:9"
    assert "00:00:02" in caught.value.reason


def test_a_model_that_looks_at_other_rows_is_found_by_cutting() -> None:
    # Only from 65 rows on, which is more than the sample of the caller.
    def late(rows: pd.DataFrame) -> pd.DataFrame:
        return renamed(rows).head(65)

    with pytest.raises(AssertionError, match="cut at"):
        assert_same_under_any_cut(of(late), lines(*"x" * 100))


def test_frames_that_are_not_there_are_refused() -> None:
    def half(rows: pa.Table) -> pd.DataFrame: ...

    def other_half(rows: pd.DataFrame) -> pa.Table: ...

    def lazy(rows: LazyFrame) -> LazyFrame: ...

    DataFrame = type("DataFrame", (), {"__module__": "polars.dataframe.frame"})

    def polars(rows: Any) -> Any: ...

    polars.__annotations__["rows"] = DataFrame
    for function, problem in (
        (half, "gives a pandas.DataFrame, and has to take one"),
        (other_half, "takes a pandas.DataFrame, and has to give one"),
        (lazy, "`LazyFrame` is not there when the file runs"),
        (polars, "no frames of polars here: a model takes and gives pyarrow.Table, or pandas"),
    ):
        with pytest.raises(InvalidModel, match=problem):
            of(function)

    class Operator:
        def on_rows(self, rows: pd.DataFrame, state: pd.DataFrame) -> Step:
            raise NotImplementedError

    declare = keyed_operator(
        reads="clicks",
        keys=["user"],
        event_time="at",
        state={"n": pa.int64()},
        columns={"n": pa.int64()},
        ttl="unbounded",
    )
    with pytest.raises(InvalidModel, match=r"an operator takes pyarrow\.Table"):
        declare(Operator)


def test_a_function_without_annotations_takes_tables() -> None:
    assert of(lambda rows: rows).frame == "arrow"

    def table(rows: pa.Table) -> pa.Table: ...

    assert of(table).frame == "arrow"
