"""``@model`` and ``@keyed_operator``: what an author declares of a model."""

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
# The column of a state that says when its key wants to be called again.
TIMER: Final = "timer"

_DECLARED: Final = "__laminar_operator__"

Schema: TypeAlias = pa.Schema | Mapping[str, pa.DataType]
RowFunction: TypeAlias = "Callable[[pa.Table], Columns] | Callable[[pd.DataFrame], pd.DataFrame]"
Handler = Callable[[pa.Table, pa.Table], Step]


class InvalidModel(ValueError):
    """A model is declared in a way that cannot be."""


class Operator(Protocol):
    """What a class has to have. ``on_timers`` may be left out."""

    def on_rows(self, rows: pa.Table, state: pa.Table) -> Step:
        """Take one row for each of some keys, with their state in the same order."""
        ...


OperatorT = TypeVar("OperatorT", bound=type[Operator])


@dataclass(frozen=True)
class RowModel:
    """A view that is a function of rows: of each by itself, whichever come together.

    Attributes:
        reads: The source or view whose rows it takes.
        columns: What it gives.
        event_time: Which of these holds the event time of what it reads, under the same name; None
            if nothing that reads it needs one.
        version: Changed by its author when something outside the file changes what it gives.
        frame: In which frames the function takes and gives its rows.
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
    """A view that keeps state for each key, and puts out rows as event time goes on.

    Attributes:
        reads: The source or view whose rows it takes.
        keys: The columns by which rows belong together.
        event_time: The column of event time, in what it reads and in what it puts out.
        takes: Which other columns it wants to see; None for all of them.
        state: What it keeps for each key.
        columns: What it puts out, after the keys and the event time.
        ttl_micros: A key without a timer is forgotten so long after its last row; None for never.
        version: Another one begins with an empty state.
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

    Tables are Arrow's; where the function's argument is annotated so, they are pandas' data frames.
    It may change, drop and multiply rows. What it makes of a row must not depend on the others: how
    the stream is cut into tables differs from run to run.

    Args:
        reads: The source or view whose rows it takes.
        columns: The names and Arrow types of what it gives.
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

    A key's rows come one after the other in the order of event time, when the watermark has passed
    them; its timer comes between them. A call takes the next row of many keys at once, with their
    state in the same order, all null for a key that is new, and gives a ``Step``. The class stays
    as it is; ``operator_of`` gives what was declared of it.

    Args:
        reads: The source or view whose rows it takes.
        keys: The columns by which rows belong together.
        event_time: The column of event time; rows that are put out have it too.
        state: The names and Arrow types of what it keeps for each key.
        columns: Those of what it puts out, after the keys and the event time.
        ttl: A key without a timer is forgotten so long after its last row; or ``"unbounded"``.
        takes: Which other columns it wants to see; all of them if it does not say.
        version: Another one begins with an empty state.
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
    """What ``@keyed_operator`` says of a class; None if it does not stand before it."""
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
