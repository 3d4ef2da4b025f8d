"""Calls an author's code: checks what it returns, and reports what it raises with file and line.

Whether a function treats each row by itself cannot be seen from its code. So a few rows of each
task are passed to it a second time, cut into other tables: if the result differs, the epoch fails
instead of publishing output that depends on how the stream was cut into batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.core.errors import ModelFailed
from laminar_dagster.models.code import line_in
from laminar_dagster.models.columns import TIMESTAMP, fitted
from laminar_dagster.models.declarations import Handler, KeyedOperator, RowModel
from laminar_dagster.models.frames import columns_of, given_as
from laminar_dagster.models.ordering import Whole, one_array
from laminar_dagster.models.step import Step

# Stands for a timer that is not set: the last microsecond of the year 9999, still a valid date.
NEVER: Final = 253_402_300_799_999_999
SAMPLED: Final = 64

# Errors that are the author's. SystemExit too: it would end a Spark worker without a message.
_MISTAKES: Final = (Exception, SystemExit)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class CheckedStep:
    """A ``Step`` that fits what its operator declares; None where it leaves things as they are.

    Attributes:
        timer: In microseconds, ``NEVER`` for none.
        emits: Which of the rows are emitted.
    """

    state: pa.Table | None
    timer: Whole | None
    rows: pa.Table | None
    emits: npt.NDArray[np.bool_] | None


@dataclass
class Caller:
    """Calls the code of one view.

    Attributes:
        view: Its name.
        file: Where its code is.
    """

    view: str
    file: str
    _sampled: set[str] = field(default_factory=set)

    def rows(self, model: RowModel, given: pa.Table) -> pa.Table:
        """Call a model on some rows, at least one, and check its output.

        Raises:
            ModelFailed: It raised an error, or returned something else than it declares.
        """

        def call(begin: int, end: int) -> pa.Table:
            mine = given.slice(begin, end - begin)
            return _checked_rows(model, mine, model(given_as(model.frame, mine)))

        found = self._called(call, given, model.event_time)
        self._sample("the function", call, given.num_rows, _shown)
        return found

    def step(
        self, operator: KeyedOperator, handler: Handler, given: pa.Table, state: pa.Table
    ) -> CheckedStep:
        """Call an operator on one row, or timer, for each of some keys, and check its ``Step``.

        Raises:
            ModelFailed: As for ``rows``.
        """

        def call(begin: int, end: int) -> CheckedStep:
            count = end - begin
            step = handler(given.slice(begin, count), state.slice(begin, count))
            return _checked_step(operator, step, count)

        found = self._called(call, given, operator.event_time)
        name = getattr(handler, "__name__", "the handler")
        self._sample(f"`{name}`", call, given.num_rows, _shown_step)
        return found

    def failed(self, reason: str, where: str | None = None) -> ModelFailed:
        """Make an error that names this view."""
        return ModelFailed(self.view, where or self.file, reason)

    def _called(self, call: Callable[[int, int], _T], given: pa.Table, time: str | None) -> _T:
        try:
            return call(0, given.num_rows)
        except _MISTAKES as error:
            place = _first_failing(call, given.num_rows)
            line = line_in(self.file, error)
            where = self.file if line is None else f"{self.file}:{line}"
            reason = str(error) or type(error).__name__
            if not isinstance(error, _Unfit):
                reason = f"{type(error).__name__}: {reason}"
            if time is not None and time in given.column_names:
                reason += f" (at the row of {given.column(time)[place].as_py()})"
            raise self.failed(reason, where) from error

    def _sample(
        self,
        what: str,
        call: Callable[[int, int], _T],
        count: int,
        shown: Callable[[Sequence[_T]], str],
    ) -> None:
        if what in self._sampled or count < 2:
            return
        self._sampled.add(what)
        count = min(count, SAMPLED)
        middle = 1 + (count - 1) // 2
        cuts = [(0, 1), (1, middle), (middle, count)]
        try:
            whole = shown([call(0, count)])
            parts = shown([call(begin, end) for begin, end in cuts if begin < end])
        except _MISTAKES as error:
            raise self.failed(f"{what} failed on a part of what it was given: {error}") from error
        if whole != parts:
            reason = f"{what} gives other rows when it is given the same rows in several tables"
            raise self.failed(f"{reason}: it has to treat each row by itself")


class _Unfit(ValueError):
    """A model's return value does not fit what it declares."""


def _checked_rows(model: RowModel, given: pa.Table, found: Any) -> pa.Table:
    try:
        rows = fitted(columns_of(model.frame, found), model.columns)
    except ValueError as error:
        raise _Unfit(str(error)) from None
    time = model.event_time
    if time is not None and rows.num_rows:
        # With a changed event time a row could belong to a window that is already closed.
        known = pc.is_in(rows.column(time), value_set=one_array(given.column(time)))
        if rows.column(time).null_count or not pc.all(known).as_py():
            raise _Unfit(
                f"it changed `{time}`, which is declared to be the event time it was given"
            )
    return rows


def _checked_step(operator: KeyedOperator, step: Any, count: int) -> CheckedStep:
    if not isinstance(step, Step):
        raise _Unfit(f"it gave a {type(step).__name__} in place of a Step")
    try:
        return CheckedStep(
            None if step.state is None else _aligned("state", step.state, operator.state, count),
            None if step.timer is None else _timers(step.timer, count),
            None if step.rows is None else _aligned("rows", step.rows, operator.columns, count),
            None if step.emits is None else _mask(step.emits, count),
        )
    except ValueError as error:
        raise _Unfit(str(error)) from None


def _aligned(what: str, found: Any, wanted: pa.Schema, count: int) -> pa.Table:
    try:
        table = fitted(found, wanted)
    except ValueError as error:
        raise ValueError(f"`{what}` of its Step: {error}") from None
    if table.num_rows != count:
        raise ValueError(f"`{what}` of its Step has {table.num_rows} rows for {count} keys")
    return table


def _timers(found: Any, count: int) -> Whole:
    table = _aligned("timer", {"timer": found}, pa.schema([("timer", TIMESTAMP)]), count)
    timers = pc.fill_null(table.column("timer").cast(pa.int64()), NEVER).to_numpy()
    if (timers > NEVER).any():
        raise ValueError("a timer lies after the year 9999")
    return np.asarray(timers, np.int64)


def _mask(found: Any, count: int) -> npt.NDArray[np.bool_]:
    table = _aligned("emits", {"emits": found}, pa.schema([("emits", pa.bool_())]), count)
    mask: npt.NDArray[np.bool_] = pc.fill_null(table.column("emits"), False).to_numpy()
    return mask


def _first_failing(call: Callable[[int, int], object], count: int) -> int:
    """Find a row that fails by bisection: rows are independent, so one half fails too."""
    begin, end = 0, count
    while end - begin > 1:
        middle = (begin + end) // 2
        try:
            call(begin, middle)
        except _MISTAKES:
            end = middle
        else:
            begin = middle
    return begin


def _shown(parts: Sequence[pa.Table]) -> str:
    # As text, because NaN is not equal to itself.
    return repr([row for part in parts for row in part.to_pylist()])


def _shown_step(parts: Sequence[CheckedStep]) -> str:
    shown: list[object] = []
    for each in parts:
        count = _count(each)
        emits = np.ones(count, np.bool_) if each.emits is None else each.emits
        state = each.state.to_pylist() if each.state is not None else [None] * count
        rows = each.rows.to_pylist() if each.rows is not None else [None] * count
        timer = each.timer.tolist() if each.timer is not None else [None] * count
        told = [row if emitted else None for row, emitted in zip(rows, emits, strict=True)]
        shown += zip(state, timer, told, strict=True)
    return repr(shown)


def _count(step: CheckedStep) -> int:
    sizes = [each.num_rows for each in (step.state, step.rows) if each is not None]
    sizes += [len(each) for each in (step.timer, step.emits) if each is not None]
    return sizes[0] if sizes else 0
