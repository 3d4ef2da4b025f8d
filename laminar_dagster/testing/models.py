"""Runs Python models without Spark, for unit tests by the models' authors.

``load_model`` reads a file of ``models/`` as a pipeline does. ``run_model`` and ``run_operator``
return the output for some batches. ``assert_same_under_any_cut`` splits the same rows into batches
in many ways, and fails if the output depends on the split.

Models are called, and their state is kept, by the same code as in the engine.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.models.calls import NEVER, Caller
from laminar_dagster.models.code import ModelCode, declared
from laminar_dagster.models.columns import TIMESTAMP
from laminar_dagster.models.declarations import (
    TIMER,
    Declared,
    KeyedOperator,
    Operator,
    RowModel,
    operator_of,
)
from laminar_dagster.models.folding import KeyedState, fold, no_state
from laminar_dagster.models.purity import impurities

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class OperatorRun:
    """The output and the final state of an operator after a run.

    Attributes:
        rows: All output rows: keys, event time, and the operator's columns.
        state: The keys that still have state, with their state and ``timer``.
        waiting: Rows that the watermark has not passed yet.
        late: Rows that were dropped because the watermark had passed them when they came.
    """

    rows: pa.Table
    state: pa.Table
    waiting: pa.Table
    late: pa.Table


def load_model(path: Path | str) -> Declared:
    """The model that a file declares.

    Raises:
        AssertionError: The model calls something non-deterministic; the message names the lines.
    """
    text = Path(path).read_text(encoding="utf-8")
    found = [
        f"{path}:{each.line}:{each.column}: `{each.call}` ({each.kind})"
        + (f": {each.instead}" if each.instead else "")
        for each in impurities(text, str(path))
    ]
    assert not found, "the model is not deterministic:\n" + "\n".join(found)
    return declared(ModelCode(str(path), text))


def run_model(model: Declared, batches: pa.Table | Iterable[pa.Table]) -> pa.Table:
    """The output of a model for some batches, called once per batch.

    Args:
        model: A function decorated with ``@model``, or the result of ``load_model``.
        batches: Arrow tables, also for a function that takes data frames.
    """
    if not isinstance(model, RowModel):
        raise TypeError("this is an operator: use run_operator")
    caller = Caller(model.function.__name__, _file_of(model))
    given = _tables(batches)
    made = [caller.rows(model, each) for each in given if each.num_rows]
    return pa.concat_tables([model.columns.empty_table(), *made]).combine_chunks()


def run_operator(
    operator: Declared | type[Operator],
    batches: pa.Table | Sequence[pa.Table],
    *,
    delay: timedelta = timedelta(0),
    until: datetime | None = None,
) -> OperatorRun:
    """Run an operator over some batches, with one epoch per batch.

    Late rows are dropped, as a source drops them; ``late`` of the result has them.

    Args:
        operator: A class decorated with ``@keyed_operator``, or the result of ``load_model``.
        batches: Each with the keys, the event time and the other columns that the operator takes.
        delay: How far the watermark stays behind the newest row, as in ``WATERMARK FOR``.
        until: A final watermark after all batches, to flush waiting rows and fire timers.
    """
    operator = _operator(operator)
    given = _tables(batches)
    if not given:
        raise ValueError("there is no batch: give one without rows, if there are none")
    if until is not None and until.tzinfo is None:
        raise ValueError("`until` has no time zone: use datetime(…, tzinfo=UTC)")
    columns = _taken(operator, given[0])
    caller = Caller(operator.on_rows.__qualname__, _file_of(operator))
    state = no_state(operator, given[0].select(list(operator.keys)).schema)
    waiting = given[0].select(columns).slice(0, 0)
    told, late = list[pa.Table](), [waiting]
    mark: int | None = None
    marks = [*([None] * len(given)), *([_micros(until)] if until is not None else [])]
    for batch, last in zip([*given, waiting][: len(marks)], marks, strict=True):
        batch = batch.select(columns)
        is_late, mark = _lateness(batch, operator.event_time, mark, delay)
        late.append(batch.filter(is_late))
        mark = last if last is not None and (mark is None or last > mark) else mark
        rows = pa.concat_tables([waiting, batch.filter(pc.invert(is_late))])
        folded = fold(operator, caller, state, rows, mark)
        state = folded.state.chosen(~folded.state.is_blank)
        if mark is not None:
            state = state.chosen(state.ends(operator.ttl_micros) > mark)
        waiting = folded.waiting
        told.append(folded.rows)
    rows, left_out = (pa.concat_tables(each).combine_chunks() for each in (told, late))
    return OperatorRun(rows, _shown(state), waiting, left_out)


def assert_same_under_any_cut(
    declared: Declared | type[Operator],
    rows: pa.Table,
    *,
    delay: timedelta = timedelta(0),
    until: datetime | None = None,
    cuts: int = 25,
    seed: int = 0,
) -> None:
    """Check that rows in one batch and rows split at random places give the same output.

    Args:
        declared: The model or operator.
        rows: The input rows, in order of arrival.
        delay: See ``run_operator``.
        until: See ``run_operator``.
        cuts: How many random splits to try.
        seed: Seeds the random splits.

    Raises:
        AssertionError: An output differs; the message says for which split.
    """
    declared = declared if isinstance(declared, RowModel) else _operator(declared)
    chance = random.Random(seed)
    expected = _answer(declared, [rows], delay, until)
    for _ in range(cuts):
        # Log-uniform, so that splits into few batches are tried as often as into many.
        count = int(rows.num_rows ** chance.random())
        inside = sorted(
            chance.sample(range(1, max(2, rows.num_rows)), max(0, min(count, rows.num_rows - 1)))
        )
        edges = [0, *inside, rows.num_rows]
        parts = [rows.slice(begin, end - begin) for begin, end in pairwise(edges)]
        found = _answer(declared, parts, delay, until)
        assert found == expected, f"cut at {inside}: {_difference(found, expected)}"


def _tables(batches: pa.Table | Iterable[pa.Table]) -> list[pa.Table]:
    # A data frame counts as one batch: iterating over it would yield its column names.
    is_one = isinstance(batches, pa.Table) or hasattr(batches, "columns")
    given = [batches] if is_one else list(batches)
    for each in given:
        if not isinstance(each, pa.Table):
            kind = type(each).__name__
            how = {
                "DataFrame": ": pa.Table.from_pandas(…) makes one",
                "dict": ": pa.Table.from_pylist(…) makes one of a list of them",
            }
            raise TypeError(f"`{kind}` is no pyarrow.Table{how.get(kind, '')}")
    return given


def _operator(given: Declared | type[Operator]) -> KeyedOperator:
    if isinstance(given, RowModel):
        raise TypeError("this is a function of rows: use run_model")
    found = given if isinstance(given, KeyedOperator) else operator_of(given)
    if found is None:
        raise TypeError(f"@keyed_operator does not stand before {given!r}")
    return found


def _answer(
    declared: Declared, batches: list[pa.Table], delay: timedelta, until: datetime | None
) -> list[str]:
    # Compared as text, because NaN is not equal to itself.
    if isinstance(declared, RowModel):
        return [repr(row) for row in run_model(declared, batches).to_pylist()]
    run = run_operator(declared, batches, delay=delay, until=until)
    keys = [(name, "ascending") for name in declared.keys]
    # The order of output rows counts within a key only; the sort is stable.
    lines = [repr(row) for row in run.rows.sort_by(keys).to_pylist()]
    return [*lines, *(f"state {row!r}" for row in run.state.to_pylist())]


def _difference(found: list[str], expected: list[str]) -> str:
    place = next(
        (
            number
            for number, pair in enumerate(zip(found, expected, strict=False))
            if len({*pair}) > 1
        ),
        min(len(found), len(expected)),
    )
    one = found[place] if place < len(found) else "nothing"
    other = expected[place] if place < len(expected) else "nothing"
    return f"{one} in place of {other}"


def _taken(operator: KeyedOperator, batch: pa.Table) -> list[str]:
    own = [*operator.keys, operator.event_time]
    others = batch.column_names if operator.takes is None else operator.takes
    taken = [*own, *(name for name in others if name not in own)]
    missing = [name for name in taken if name not in batch.column_names]
    if missing:
        known = ", ".join(f"`{name}`" for name in batch.column_names)
        lacking = ", ".join(f"`{name}`" for name in missing)
        problem = f"the rows have no column {lacking}, which the operator takes"
        raise ValueError(f"{problem}; they have {known}")
    return taken


def _lateness(
    rows: pa.Table, time: str, mark: int | None, delay: timedelta
) -> tuple[pa.Array, int | None]:
    """A mask of the rows that are late when they come, and the watermark after the batch."""
    if rows.column(time).null_count:
        raise ValueError(f"a row has no `{time}`, its event time")
    times = rows.column(time).cast(TIMESTAMP).cast(pa.int64()).to_numpy()
    if not len(times):
        return pa.array([], pa.bool_()), mark
    before = np.iinfo(np.int64).min if mark is None else mark
    marks = np.maximum.accumulate([before, *(times - delay // timedelta(microseconds=1))])
    return pa.array(times < marks[:-1]), int(marks[-1])


def _shown(state: KeyedState) -> pa.Table:
    rows = state.keys
    for name in state.values.column_names:
        rows = rows.append_column(name, state.values.column(name))
    timers = pa.array(state.timer, mask=state.timer == NEVER).cast(TIMESTAMP)
    return rows.append_column(TIMER, timers)


def _micros(moment: datetime) -> int:
    return (moment - _BEGINNING) // timedelta(microseconds=1)


def _file_of(declared: Declared) -> str:
    function = declared.function if isinstance(declared, RowModel) else declared.on_rows
    code = getattr(function, "__code__", None)
    return str(code.co_filename) if code else "the model"
