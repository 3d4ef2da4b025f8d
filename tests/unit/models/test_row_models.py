"""Functions from table to table: what they may do, and what is found out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from laminar_dagster.core.errors import ModelFailed
from laminar_dagster.models import TIMESTAMP, InvalidModel, RowModel, keyed_operator, model
from laminar_dagster.models.code import ModelCode, declared
from laminar_dagster.testing.models import assert_same_under_any_cut, load_model, run_model

START = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = {"word": pa.string(), "at": TIMESTAMP}
TEXT = '''
"""What it does."""
import pyarrow as pa
import pyarrow.compute as pc
from laminar_dagster.models import TIMESTAMP, model

@model(reads="lines", columns={"word": pa.string(), "at": TIMESTAMP}, event_time="at")
def words(lines: pa.Table) -> pa.Table:
    """A row for each word."""
    split = pc.split_pattern(lines["text"], " ").combine_chunks()
    at = lines["at"].take(pc.list_parent_indices(split))
    found = pa.table({"word": pc.list_flatten(split), "at": at})
    return found.filter(pc.not_equal(found["word"], ""))
'''


def lines(*texts: str) -> pa.Table:
    at = [START + timedelta(seconds=place) for place in range(len(texts))]
    return pa.table({"text": pa.array(texts), "at": pa.array(at, TIMESTAMP)})


def of(function: Any) -> RowModel:
    return model(reads="lines", columns=COLUMNS, event_time="at")(function)


def test_rows_are_changed_dropped_and_multiplied(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text(TEXT)
    words = load_model(tmp_path / "words.py")
    assert isinstance(words, RowModel)
    rows = lines("a b", "", "c", "d e f")
    found = run_model(words, rows)
    assert found["word"].to_pylist() == list("abcdef")
    assert_same_under_any_cut(words, rows)
    assert run_model(words, []).num_rows == 0


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda rows: rows, "it gave no column `word`"),
        (lambda rows: rows.append_column("word", rows["text"]), "a column `text`, which it does"),
        (
            lambda rows: {"word": rows["at"], "at": rows["at"]},
            "`word` is timestamp[us, tz=UTC], and is declared as string",
        ),
        (lambda rows: {"word": rows["text"], "at": rows["at"][:1]}, "have 1 and 2 rows"),
        (lambda rows: {"word": ["a"], "at": rows["at"]}, "is a list in place of an Arrow array"),
        (lambda rows: None, "it gave a NoneType in place of a table"),
        (
            lambda rows: {"word": rows["text"], "at": pc.add(rows["at"], pa.scalar(timedelta(1)))},
            "it changed `at`",
        ),
        (
            lambda rows: {"word": rows["text"][::-1], "at": rows["at"][::-1]},
            "it has to treat each row by itself",
        ),
    ],
)
def test_what_a_model_does_wrong_is_told(function: Any, problem: str) -> None:
    with pytest.raises(ModelFailed) as caught:
        run_model(of(function), lines("a", "b"))
    assert problem in str(caught.value)
    assert __file__ in caught.value.where


def test_an_error_names_the_line_and_the_row(tmp_path: Path) -> None:
    path = tmp_path / "numbers.py"
    path.write_text(
        TEXT.replace('    """A row for each word."""', '    pc.cast(lines["text"], pa.int64())')
    )
    numbers = load_model(path)
    assert isinstance(numbers, RowModel)
    with pytest.raises(ModelFailed) as caught:
        run_model(numbers, lines("1", "2", "three", "4"))
    assert caught.value.where == f"{path}:9"
    assert "ArrowInvalid" in caught.value.reason
    assert "00:00:02" in caught.value.reason


def test_a_model_that_looks_at_other_rows_is_found_by_cutting() -> None:
    # Only from 65 rows on, which is more than the sample of the caller.
    def late(rows: pa.Table) -> Any:
        count = min(rows.num_rows, 65)
        return {"word": rows["text"][:count], "at": rows["at"][:count]}

    with pytest.raises(AssertionError, match="cut at"):
        assert_same_under_any_cut(of(late), lines(*"x" * 100))


def test_the_fingerprint_is_that_of_the_code() -> None:
    same = TEXT.replace('"""What it does."""', "# What it does.").replace(", model", ",  model")
    assert ModelCode("a.py", TEXT).fingerprint == ModelCode("b.py", same).fingerprint
    other = TEXT.replace('""))', '"x"))').replace('" ")', '"  ")')
    assert ModelCode("a.py", TEXT).fingerprint != ModelCode("a.py", other).fingerprint


def test_a_file_is_one_model() -> None:
    with pytest.raises(InvalidModel, match="no model"):
        declared(ModelCode("a.py", "x = 1"))
    with pytest.raises(InvalidModel, match="2 models"):
        declared(ModelCode("a.py", TEXT + TEXT.replace("def words", "def others")))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"columns": {}}, "`columns` names no column"),
        ({"columns": {"x": int}}, "has to be a schema"),
        ({"columns": {"x": pa.uint8()}}, "Spark has no such type"),
        ({"columns": {"x": pa.list_(pa.timestamp("ns"))}}, "it has to be timestamp('us'"),
        ({"columns": {"x": pa.int8(), "X": pa.int8()}}, "names `X` twice"),
        ({"event_time": "when"}, "is not among `columns`"),
        ({"event_time": "word"}, "has to be of the type TIMESTAMP"),
        ({"reads": ""}, "`reads` has to be a name"),
    ],
)
def test_what_a_declaration_does_wrong_is_told(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidModel) as caught:
        model(**{"reads": "lines", "columns": COLUMNS, **change})
    assert problem in str(caught.value)


class Operator:
    def on_rows(self, rows: pa.Table, state: pa.Table) -> Any: ...


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"keys": "user"}, "`keys` has to be a list of names"),
        ({"keys": []}, "`keys` names no column"),
        ({"state": {"timer": pa.int8()}}, "cannot be called `timer`"),
        ({"columns": {"user": pa.int8()}}, "`user` is put out by itself"),
        ({"keys": ["at"]}, "event time cannot be a key"),
        ({"ttl": 5}, "`ttl` has to be a timedelta"),
        ({"ttl": timedelta(0)}, "`ttl` has to be a timedelta"),
    ],
)
def test_what_an_operator_declares_wrong_is_told(change: dict[str, Any], problem: str) -> None:
    right: dict[str, Any] = {
        "reads": "clicks",
        "keys": ["user"],
        "event_time": "at",
        "state": {"n": pa.int64()},
        "columns": {"n": pa.int64()},
        "ttl": "unbounded",
    }
    with pytest.raises(InvalidModel) as caught:
        keyed_operator(**{**right, **change})(Operator)
    assert problem in str(caught.value)
    with pytest.raises(InvalidModel, match="stands before a class"):
        keyed_operator(**right)(lambda: None)  # type: ignore[type-var]
    with pytest.raises(InvalidModel, match="no `on_rows"):
        keyed_operator(**right)(int)  # type: ignore[type-var]
    with pytest.raises(InvalidModel, match="stands before a function"):
        model(reads="lines", columns=COLUMNS)(Operator)  # type: ignore[arg-type]


def test_a_file_that_would_end_the_process_is_an_error_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text(TEXT + "raise SystemExit(3)\n")
    with pytest.raises(InvalidModel, match=r"would end the process that loads it: SystemExit\(3\)"):
        load_model(tmp_path / "words.py")


def test_a_function_that_would_end_the_process_is_an_error_of_the_view() -> None:
    def ends(rows: pa.Table) -> pa.Table:
        if "b" in rows["text"].to_pylist():
            raise SystemExit(3)
        return pa.table({"word": rows["text"], "at": rows["at"]})

    with pytest.raises(ModelFailed) as caught:
        run_model(of(ends), lines("a", "b"))
    assert "SystemExit: 3 (at the row of 2026-01-01 00:00:01" in str(caught.value)
    assert f"{__file__}:" in str(caught.value)


def test_a_function_that_is_stopped_is_stopped() -> None:
    def stopped(_: pa.Table) -> pa.Table:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_model(of(stopped), lines("a"))
