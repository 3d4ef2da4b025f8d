"""Advances a keyed operator from one watermark to the next, deterministically for a given stream.

Each key has one order of events: its rows by event time (ties by all of their columns), and its
timer before the first row that is not earlier. A row is due when the watermark has passed its time,
since no earlier row can arrive any more; a timer, when the watermark has reached it. So the events
processed up to a watermark are a prefix of those up to a later one, however the stream is cut into
epochs. See ADR 36.

Keys are independent: each round of calls processes the next event of every key that has one. There
are as many rounds as the busiest key has events; a key without due events leaves the rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_dagster.models.calls import NEVER, Caller, CheckedStep
from laminar_dagster.models.columns import TIMESTAMP
from laminar_dagster.models.declarations import TIMER, KeyedOperator
from laminar_dagster.models.ordering import Whole, in_order, key_numbers

# The clock of a key that has had no event.
BEFORE_ALL = np.iinfo(np.int64).min

_Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class KeyedState:
    """The state of some keys, one row for each.

    Attributes:
        keys: The key columns.
        clock: The time of each key's last event, in microseconds; ``BEFORE_ALL`` without any.
        timer: Each key's timer, in microseconds; ``NEVER`` if it is not set.
        values: The state columns that the operator declares.
    """

    keys: pa.Table
    clock: Whole
    timer: Whole
    values: pa.Table

    @property
    def is_blank(self) -> _Booleans:
        """A mask of the keys without any state: no timer, and all values null."""
        blank: _Booleans = self.timer == NEVER
        for column in self.values.itercolumns():
            blank &= column.is_null().to_numpy()
        return blank

    def ends(self, ttl_micros: int | None) -> Whole:
        """Each key's timer or, without one, the end of its time to live; ``NEVER`` without both."""
        if ttl_micros is None:
            return self.timer
        return np.where(self.timer == NEVER, np.minimum(self.clock + ttl_micros, NEVER), self.timer)

    def forgotten(self, which: _Booleans) -> KeyedState:
        """The state with the values of some keys removed; keys with a timer keep theirs."""
        which = which & (self.timer == NEVER)
        if not which.any():
            return self
        values = self.values.take(pa.array(np.arange(len(which)), mask=which))
        return KeyedState(self.keys, self.clock, self.timer, values)

    def chosen(self, which: _Booleans | Whole) -> KeyedState:
        """The state of the selected keys."""
        places = np.flatnonzero(which) if which.dtype == np.bool_ else which
        taken = pa.array(places)
        return KeyedState(
            self.keys.take(taken), self.clock[places], self.timer[places], self.values.take(taken)
        )


@dataclass(frozen=True, slots=True)
class Folded:
    """The result of a fold.

    Attributes:
        state: The state of every key that was given, sorted by key.
        waiting: Pending rows: those that are not due yet, in order.
        rows: Emitted rows: keys, event time and the operator's columns, by key and in order.
    """

    state: KeyedState
    waiting: pa.Table
    rows: pa.Table


def no_state(operator: KeyedOperator, key_types: pa.Schema) -> KeyedState:
    """An empty state."""
    nothing = np.empty(0, np.int64)
    return KeyedState(key_types.empty_table(), nothing, nothing, operator.state.empty_table())


def fold(
    operator: KeyedOperator,
    caller: Caller,
    state: KeyedState,
    rows: pa.Table,
    watermark: int | None,
) -> Folded:
    """Process all rows and timers that are due.

    Args:
        operator: The operator.
        caller: Calls its code.
        state: The stored state; each key once, and keys without due events too.
        rows: New and pending rows, in any order: keys, event time, other columns.
        watermark: The watermark, in microseconds; None before the first event.

    Raises:
        ModelFailed: The operator raised an error, or returned something that does not fit.
    """
    folding = _Folding(operator, caller, rows.select(list(operator.keys)).schema, watermark)
    return folding.run(state, rows)


@dataclass
class _Live:
    """Keys that may still have due events.

    Attributes:
        number: The number of each key.
        place: The index of its next row.
        end: The index after its last row that is due.
    """

    number: Whole
    place: Whole
    end: Whole
    state: KeyedState

    def chosen(self, which: _Booleans) -> _Live:
        if which.all():
            return self
        return _Live(
            self.number[which], self.place[which], self.end[which], self.state.chosen(which)
        )


@dataclass
class _Folding:
    operator: KeyedOperator
    caller: Caller
    key_types: pa.Schema
    watermark: int | None

    def run(self, state: KeyedState, rows: pa.Table) -> Folded:
        names = list(self.operator.keys)
        keys = pa.concat_tables([state.keys.cast(self.key_types), rows.select(names)])
        numbers = key_numbers(keys)
        known = len(state.clock)
        count = int(numbers.max(initial=-1)) + 1
        every = _all_keys(state, keys, numbers, known, count)
        times = rows.column(self.operator.event_time).cast(pa.int64())
        if times.null_count:
            raise self.caller.failed(f"a row has no `{self.operator.event_time}`")
        order = in_order(numbers[known:], times.to_numpy(), rows)
        rows, times_in_order = rows.take(pa.array(order)), times.to_numpy()[order]
        owner = numbers[known:][order]
        mark = self.watermark
        due = times_in_order < mark if mark is not None else np.zeros(len(owner), np.bool_)
        begin = np.searchsorted(owner, np.arange(count))
        end = begin + np.bincount(owner[due], minlength=count)
        live = _Live(np.arange(count), begin, end, every)
        done, told = self._rounds(live, rows, times_in_order)
        return Folded(done, rows.filter(pa.array(~due)), self._told(told))

    def _rounds(
        self, live: _Live, rows: pa.Table, times: Whole
    ) -> tuple[KeyedState, list[tuple[Whole, pa.Table]]]:
        mark = BEFORE_ALL if self.watermark is None else self.watermark
        finished: list[_Live] = []
        told: list[tuple[Whole, pa.Table]] = []
        while len(live.number):
            has_row = live.place < live.end
            upcoming = np.full(len(live.number), NEVER)
            upcoming[has_row] = times[live.place[has_row]]
            timer = live.state.timer
            fires = (timer <= upcoming) & (timer <= mark)
            takes = has_row & ~fires
            is_done = ~(fires | takes)
            if is_done.any():
                finished.append(live.chosen(is_done))
            parts = []
            if fires.any():
                parts.append(self._fire(live.chosen(fires), told))
            if takes.any():
                parts.append(self._take(live.chosen(takes), rows, upcoming[takes], told))
            if not parts:
                break
            live = _joined(parts)
        done = _joined(finished) if finished else live
        return done.state.chosen(np.argsort(done.number)), told

    def _fire(self, live: _Live, told: list[tuple[Whole, pa.Table]]) -> _Live:
        handler = self.operator.on_timers
        if handler is None:
            raise self.caller.failed("it sets timers, and has no `on_timers(self, timers, state)`")
        now = np.maximum(live.state.timer, live.state.clock)
        given = live.state.keys.append_column(self.operator.event_time, _moments(now))
        step = self.caller.step(self.operator, handler, given, _seen(live.state))
        timer = np.full(len(now), NEVER) if step.timer is None else step.timer
        if (timer <= now).any():
            reason = "`on_timers` set a timer that is not later than the one that fired"
            raise self.caller.failed(f"{reason}: it would fire for ever")
        self._tell(live, now, step, told)
        return _Live(live.number, live.place, live.end, _after(live.state, step, now, timer))

    def _take(
        self, live: _Live, rows: pa.Table, now: Whole, told: list[tuple[Whole, pa.Table]]
    ) -> _Live:
        state = live.state
        if self.operator.ttl_micros is not None:
            state = state.forgotten(state.ends(self.operator.ttl_micros) <= now)
        given = rows.take(pa.array(live.place))
        step = self.caller.step(self.operator, self.operator.on_rows, given, _seen(state))
        timer = state.timer if step.timer is None else step.timer
        self._tell(live, now, step, told)
        return _Live(live.number, live.place + 1, live.end, _after(state, step, now, timer))

    def _tell(
        self, live: _Live, now: Whole, step: CheckedStep, told: list[tuple[Whole, pa.Table]]
    ) -> None:
        if step.rows is None:
            return
        rows = live.state.keys.append_column(self.operator.event_time, _moments(now))
        for name in self.operator.columns.names:
            rows = rows.append_column(name, step.rows.column(name))
        number = live.number
        if step.emits is not None:
            rows, number = rows.filter(pa.array(step.emits)), number[step.emits]
        told.append((number, rows))

    def _told(self, told: list[tuple[Whole, pa.Table]]) -> pa.Table:
        """The emitted rows by key; rows of one key in the order of the rounds."""
        time = pa.field(self.operator.event_time, TIMESTAMP)
        empty = pa.schema([*self.key_types, time, *self.operator.columns]).empty_table()
        number = np.concatenate([np.empty(0, np.int64), *(each for each, _ in told)])
        rows = pa.concat_tables([empty, *(each for _, each in told)])
        return rows.take(pa.array(np.argsort(number, kind="stable"))).combine_chunks()


def _all_keys(
    state: KeyedState, keys: pa.Table, numbers: Whole, known: int, count: int
) -> KeyedState:
    """The state of every key, indexed by its number; blank for new keys."""
    place = np.full(count, -1, np.int64)
    place[numbers[:known]] = np.arange(known)
    firsts = np.unique(numbers, return_index=True)[1]
    taken = pa.array(place, mask=place < 0)
    clock, timer = np.full(count, BEFORE_ALL), np.full(count, NEVER)
    is_known = place >= 0
    clock[is_known], timer[is_known] = state.clock[place[is_known]], state.timer[place[is_known]]
    return KeyedState(keys.take(pa.array(firsts)), clock, timer, state.values.take(taken))


def _seen(state: KeyedState) -> pa.Table:
    """The state as an operator gets it: its values, and the timer as a column."""
    timers = pa.array(state.timer, mask=state.timer == NEVER).cast(TIMESTAMP)
    return state.values.append_column(TIMER, timers)


def _after(state: KeyedState, step: CheckedStep, now: Whole, timer: Whole) -> KeyedState:
    return KeyedState(state.keys, now, timer, state.values if step.state is None else step.state)


def _joined(parts: list[_Live]) -> _Live:
    if len(parts) == 1:
        return parts[0]
    states = [each.state for each in parts]
    return _Live(
        np.concatenate([each.number for each in parts]),
        np.concatenate([each.place for each in parts]),
        np.concatenate([each.end for each in parts]),
        KeyedState(
            pa.concat_tables([each.keys for each in states]),
            np.concatenate([each.clock for each in states]),
            np.concatenate([each.timer for each in states]),
            pa.concat_tables([each.values for each in states]),
        ),
    )


def _moments(times: Whole) -> pa.Array:
    return pa.array(times).cast(TIMESTAMP)
