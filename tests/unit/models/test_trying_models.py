"""What a newcomer does wrong with ``laminar_dagster.testing.models``, and is told."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from laminar_dagster.models import TIMESTAMP, KeyedOperator, RowModel, Step, keyed_operator, model
from laminar_dagster.models.declarations import operator_of
from laminar_dagster.testing.models import (
    assert_same_under_any_cut,
    load_model,
    run_model,
    run_operator,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


@model(reads="lines", columns={"text": pa.string(), "at": TIMESTAMP}, event_time="at")
def same(lines: pa.Table) -> pa.Table:
    return lines.select(["text", "at"])


@keyed_operator(
    reads="lines",
    keys=["text"],
    event_time="at",
    takes=["n"],
    state={"seen": pa.int64()},
    columns={"n": pa.int64()},
    ttl=timedelta(days=1),
)
class Told:
    def on_rows(self, rows: pa.Table, state: pa.Table) -> Step:
        del state
        return Step(rows={"n": rows["n"]})


def lines(*seconds: int | None) -> pa.Table:
    at = [None if each is None else START + timedelta(seconds=each) for each in seconds]
    texts = pa.array(["a"] * len(at), pa.string())
    numbers = pa.array(range(len(at)), pa.int64())
    return pa.table({"text": texts, "n": numbers, "at": pa.array(at, TIMESTAMP)})


def operator() -> KeyedOperator:
    found = operator_of(Told)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("wrong", "kind", "told"),
    [
        (lambda: run_model(operator(), lines(1)), TypeError, "an operator: use run_operator"),
        (lambda: run_operator(same, lines(1)), TypeError, "a function of rows: use run_model"),
        (
            lambda: run_model(same, lines(1).to_pandas()),
            TypeError,
            r"`DataFrame` is no pyarrow.Table: pa.Table.from_pandas\(…\) makes one",
        ),
        (
            lambda: run_model(same, lines(1).to_pylist()),
            TypeError,
            r"`dict` is no pyarrow.Table: pa.Table.from_pylist\(…\) makes one of a list of them",
        ),
        (lambda: run_operator(Told, [1]), TypeError, "`int` is no pyarrow.Table"),
        (
            lambda: run_operator(Told, lines(1).drop_columns(["n", "at"])),
            ValueError,
            "the rows have no column `at`, `n`, which the operator takes; they have `text`",
        ),
        (lambda: run_operator(Told, lines(1, None)), ValueError, "a row has no `at`"),
        (
            lambda: run_operator(Told, lines(1), until=START.replace(tzinfo=None)),
            ValueError,
            "`until` has no time zone: use datetime",
        ),
    ],
)
def test_what_cannot_be_run_is_told(
    wrong: Callable[[], object], kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=told):
        wrong()


def test_rows_that_come_too_late_are_there_to_be_seen() -> None:
    run = run_operator(Told, [lines(9, 3), lines(8, 9)], until=START + timedelta(minutes=1))
    assert run.rows["n"].to_pylist() == [0, 1]
    assert run.late["at"].to_pylist() == [START + timedelta(seconds=each) for each in (3, 8)]
    assert run.late.column_names == ["text", "at", "n"]
    patient = run_operator(Told, lines(9, 3), delay=timedelta(seconds=6))
    assert patient.late.num_rows == 0


def test_no_rows_and_one_row_can_be_cut_too() -> None:
    for rows in (lines(), lines(1)):
        assert_same_under_any_cut(same, rows)
        assert_same_under_any_cut(Told, rows)


def test_a_file_is_run_as_it_is_loaded_and_named_where_it_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "same.py"
    path.write_text(
        "import pyarrow as pa\n"
        "from laminar_dagster.models import TIMESTAMP, model\n\n"
        '@model(reads="lines", columns={"text": pa.string(), "at": TIMESTAMP}, event_time="at")\n'
        "def same(lines):\n"
        '    return lines.select(["text", "at"])\n'
    )
    loaded = load_model(path)
    assert isinstance(loaded, RowModel)
    assert run_model(loaded, lines(1)).num_rows == 1
    path.write_text("x = (\n")
    with pytest.raises(SyntaxError) as caught:
        load_model(path)
    assert (caught.value.filename, caught.value.lineno) == (str(path), 1)
    path.write_text("import time\ny = hash('a')\n")
    with pytest.raises(AssertionError) as refused:
        load_model(path)
    assert str(refused.value).splitlines()[1:] == [
        f"{path}:1:1: `import time` (wall_clock)",
        f"{path}:2:5: `hash` (random): use zlib.crc32 or hashlib",
    ]
