"""``@model`` and ``@keyed_operator``: the decorators that declare a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from laminar_dagster.models.columns import TIMESTAMP, Columns, unknown_type
from laminar_dagster.models.frames import Frame, frame_of
from laminar_dagster.models.step import Step

if TYPE_CHECKING:
    import pandas as pd

UNBOUNDED: Final = "unbounded"
# The column beside the state's own that holds the key's timer: the time of its next call.
TIMER: Final = "timer"

_DECLARED: Final = "__laminar_operator__"

Schema: TypeAlias = pa.Schema | Mapping[str, pa.DataType]
RowFunction: TypeAlias = "Callable[[pa.Table], Columns] | Callable[[pd.DataFrame], pd.DataFrame]"
Handler = Callable[[pa.Table, pa.Table], Step]


class InvalidModel(ValueError):
    """A model's declaration is invalid."""


class Operator(Protocol):
    """The methods that an operator's class must have. ``on_timers`` is optional."""

    def on_rows(self, rows: pa.Table, state: pa.Table) -> Step:
        """Process one row for each of some keys, with their state in the same order."""
        ...


OperatorT = TypeVar("OperatorT", bound=type[Operator])


@dataclass(frozen=True)
class RowModel:
    """A view that is a function of rows, of each row by itself, however they are batched.

    Attributes:
        reads: The source or view whose rows it takes.
        columns: The columns that it returns.
        event_time: The column that holds the event time of its input, under the same name; None
            if nothing that reads the view needs one.
        version: Changed by the author when something outside the file changes the output.
        frame: The table type that the function takes and returns.
    """

    reads: str
    columns: pa.Schema
    event_time: str | None
    version: str
    function: RowFunction = field(repr=False)
    frame: Frame = "arrow"

    def __call__(self, rows: Any) -> Any:
        """Call the function, as if it were not a model."""
        return self.function(rows)


@dataclass(frozen=True)
class KeyedOperator:
    """A view that keeps state for each key, and emits rows as event time advances.

    Attributes:
        reads: The source or view whose rows it takes.
        keys: The columns of the key.
        event_time: The column of event time, in its input and its output.
        takes: The other columns that it reads; None for all of them.
        state: The columns of the state of each key.
        columns: The output columns after the keys and the event time.
        ttl_micros: Time to live: how long after its last row the state of a key without a timer is
            removed; None for never.
        version: Changing it starts with an empty state.
    """

    reads: str
    keys: tuple[str, ...]
    event_time: str
    takes: tuple[str, ...] | None
    state: pa.Schema
    columns: pa.Schema
    ttl_micros: int | None
    version: str
    on_rows: Handler = field(repr=False)
    on_timers: Handler | None = field(repr=False)

    @property
    def output_columns(self) -> tuple[str, ...]:
        """The columns of the view."""
        return (*self.keys, self.event_time, *self.columns.names)


Declared = RowModel | KeyedOperator


def model(
    *, reads: str, columns: Schema, event_time: str | None = None, version: str = ""
) -> Callable[[RowFunction], RowModel]:
    """Make a view of a function from table to table that treats each row by itself.

    Tables are Arrow tables, or pandas data frames if the function's argument is annotated so. It
    may change, drop and multiply rows. Its output for a row must not depend on other rows: how the
    stream is cut into tables differs from run to run.

    Args:
        reads: The source or view whose rows it takes.
        columns: The names and Arrow types of the columns that it returns.
        event_time: As in ``RowModel``.
        version: As in ``RowModel``.
    """
    wanted = _schema("columns", columns)
    _name("reads", reads)
    if event_time is not None:
        _event_time(event_time, wanted)

    def declare(function: RowFunction) -> RowModel:
        if isinstance(function, type):
            raise InvalidModel("@model stands before a function")
        return RowModel(reads, wanted, event_time, version, function, _frame(function))

    return declare


def keyed_operator(
    *,
    reads: str,
    keys: Sequence[str],
    event_time: str,
    state: Schema,
    columns: Schema,
    ttl: timedelta | Literal["unbounded"],
    takes: Sequence[str] | None = None,
    version: str = "",
) -> Callable[[OperatorT], OperatorT]:
    """Make a view of a class with ``on_rows(rows, state)`` and, for timers, ``on_timers``.

    A key's rows are processed one by one in event-time order, once the watermark has passed them;
    its timer fires between them. A call gets the next row of many keys at once, with their state in
    the same order (all null for a new key), and returns a ``Step``. The class itself is not
    changed; ``operator_of`` returns its declaration.

    Args:
        reads: The source or view whose rows it takes.
        keys: The columns of the key.
        event_time: The column of event time; output rows have it too.
        state: The names and Arrow types of the state columns of each key.
        columns: The names and Arrow types of the output columns after keys and event time.
        ttl: Time to live: how long after its last row the state of a key without a timer is
            removed; or ``"unbounded"``.
        takes: The other columns that it reads; all of them by default.
        version: Changing it starts with an empty state.
    """
    kept, wanted = _schema("state", state), _schema("columns", columns)
    _name("reads", reads)
    names = _names("keys", keys)
    taken = None if takes is None else _names("takes", takes, may_be_empty=True)
    if TIMER in kept.names:
        raise InvalidModel(f"a column of the state cannot be called `{TIMER}`")
    own = [*names, event_time]
    for name in wanted.names:
        if name in own:
            raise InvalidModel(f"`{name}` is put out by itself: leave it out of `columns`")
    if event_time in names:
        raise InvalidModel("event time cannot be a key")
    if taken is not None:
        taken = tuple(name for name in taken if name not in own)

    def declare(declared: OperatorT) -> OperatorT:
        if not isinstance(declared, type):
            raise InvalidModel("@keyed_operator stands before a class")
        made = declared()
        on_rows = getattr(made, "on_rows", None)
        if not callable(on_rows):
            raise InvalidModel("the class has no `on_rows(self, rows, state)`")
        if _frame(on_rows) != "arrow":
            raise InvalidModel("an operator takes pyarrow.Table; a function may take a DataFrame")
        found = KeyedOperator(
            reads=reads,
            keys=names,
            event_time=event_time,
            takes=taken,
            state=kept,
            columns=wanted,
            ttl_micros=_ttl(ttl),
            version=version,
            on_rows=on_rows,
            on_timers=getattr(made, "on_timers", None),
        )
        setattr(declared, _DECLARED, found)
        return declared

    return declare


def operator_of(declared: object) -> KeyedOperator | None:
    """The declaration of a class decorated with ``@keyed_operator``; None for anything else."""
    found = vars(declared).get(_DECLARED) if isinstance(declared, type) else None
    return found if isinstance(found, KeyedOperator) else None


def _frame(function: Callable[..., Any]) -> Frame:
    try:
        return frame_of(function)
    except ValueError as error:
        raise InvalidModel(str(error)) from None


def _schema(what: str, given: Schema) -> pa.Schema:
    try:
        wanted = given if isinstance(given, pa.Schema) else pa.schema(list(given.items()))
    except (AttributeError, TypeError, ValueError):
        problem = f"`{what}` has to be a schema, or names with Arrow types"
        raise InvalidModel(problem) from None
    if not wanted.names:
        raise InvalidModel(f"`{what}` names no column")
    for each in wanted:
        bad = unknown_type(each.type)
        if bad:
            raise InvalidModel(f"`{each.name}` of `{what}` is of the type {bad}")
    _names(what, wanted.names)
    return pa.schema([pa.field(each.name, each.type) for each in wanted])


def _names(what: str, given: Any, *, may_be_empty: bool = False) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidModel(f"`{what}` has to be a list of names")
    if not given and not may_be_empty:
        raise InvalidModel(f"`{what}` names no column")
    seen: set[str] = set()
    for name in given:
        _name(what, name)
        if name.lower() in seen:
            raise InvalidModel(f"`{what}` names `{name}` twice")
        seen.add(name.lower())
    return tuple(given)


def _name(what: str, given: Any) -> None:
    if not isinstance(given, str) or not given or len(given) > 200 or not given.isprintable():
        raise InvalidModel(f"`{what}` has to be a name, and is {given!r:.80}")


def _event_time(name: str, columns: pa.Schema) -> None:
    if name not in columns.names:
        raise InvalidModel(f"the event time `{name}` is not among `columns`")
    if columns.field(name).type != TIMESTAMP:
        raise InvalidModel(f"the event time `{name}` has to be of the type TIMESTAMP")


def _ttl(given: Any) -> int | None:
    if given == UNBOUNDED:
        return None
    if not isinstance(given, timedelta) or given <= timedelta(0):
        raise InvalidModel(f"`ttl` has to be a timedelta, or {UNBOUNDED!r}")
    return given // timedelta(microseconds=1)
