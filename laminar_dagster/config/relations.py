"""What a view computes, as the engine sees it. Expressions stay as Spark SQL text.

A query is one of these shapes, nested through ``Relation``:

    Select          projection and filter of one relation
    WindowAggregate GROUP BY a window of event time (and keys), emitted when the window closes
    KeyedAggregate  GROUP BY keys, emitted whenever it changes; or by sessions
    Ranked          the first rows of each key, emitted whenever they change
    Join            the rows of two relations that belong together
    ReferenceJoin   the rows of a relation, each with its partners in a reference table
    ReferenceValue  the rows of a relation, each with a value of a whole reference table
    Explode         the rows of a relation, each once for every item of a list or map in it
    UnionAll        the rows of several queries of equal columns
    PythonRows      what a function in Python makes of each row
    PythonKeyed     what an operator in Python makes of the rows of each key
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from laminar_dagster.config.aggregate import Aggregate, Ordering


@dataclass(frozen=True, slots=True)
class Projection:
    """An output column: its name, and the Spark SQL expression that computes it."""

    name: str
    sql: str


@dataclass(frozen=True, slots=True)
class TableInput:
    """A source or a view, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """Projection and filter. ``where`` is Spark SQL over the columns of ``source``."""

    source: Relation
    columns: tuple[Projection, ...]
    where: str | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """A window of event time; tumbling when ``slide`` equals ``size``.

    Attributes:
        time: Spark SQL of the event time, a timestamp.
        offset_micros: By how much its edges are shifted from midnight, 1970.
        grows: CUMULATE: windows start every ``size``, and one ends every ``slide`` after that, up
            to ``size``.
    """

    time: str
    size_micros: int
    slide_micros: int
    offset_micros: int = 0
    grows: bool = False


@dataclass(frozen=True, slots=True)
class WindowAggregate:
    """Aggregates by window and keys, emitted when the window closes.

    Attributes:
        where: Over the input's columns.
        keys: Columns ``_k0``, ``_k1``, … over the input's columns.
        having: Over ``_k0`` …, ``_a0`` …, ``window_start``, ``window_end``.
        columns: The output, over the same names as ``having``.
        weight: Spark SQL of the weight of the input's rows; None if there are no retractions.
        lateness_micros: Allowed lateness: a window closes so long after the watermark has passed
            its end, and accepts late records until then.
    """

    source: Relation
    window: Window
    keys: tuple[Projection, ...]
    aggregates: tuple[Aggregate, ...]
    columns: tuple[Projection, ...]
    where: str | None = None
    having: str | None = None
    weight: str | None = None
    lateness_micros: int = 0


@dataclass(frozen=True, slots=True)
class KeyedAggregate:
    """Aggregates by keys, whose rows change as records come.

    Attributes:
        kind: A *group* has one row for each key; a *window* one for each window and key; a
            *session* one for each stretch of a key's events.
        emits: *Changes* as rows of ``_weight`` -1 and +1; or each row once, at its *close*.
        window: The window, for the kind *window*.
        time: Spark SQL of the event time; None where nothing depends on it.
        gap_micros: How long after its last event a group leaves the view, and a session ends. None
            for groups that stay.
        weight: Spark SQL of the weight of the input's rows; None if there are no retractions.
        where: Over the input's columns.
        keys: Columns ``_k0``, ``_k1``, … over the input's columns.
        having: Over ``_k0`` …, ``_a0`` …, ``window_start``, ``window_end``.
        columns: The output, over the same names as ``having``, and ``_weight``.
        lateness_micros: As of ``WindowAggregate``; for windows and sessions.
    """

    source: Relation
    kind: Literal["group", "window", "session"]
    emits: Literal["changes", "close"]
    keys: tuple[Projection, ...]
    aggregates: tuple[Aggregate, ...]
    columns: tuple[Projection, ...]
    window: Window | None = None
    time: str | None = None
    gap_micros: int | None = None
    weight: str | None = None
    where: str | None = None
    having: str | None = None
    lateness_micros: int = 0


@dataclass(frozen=True, slots=True)
class Ranked:
    """The first rows of each key in some order, emitted whenever they change.

    Attributes:
        keys: Columns ``_k0``, ``_k1``, … over the input's columns.
        limit: How many rows of each key; 0 before it is known.
        rank: The column that holds a row's rank, from 1; None if the query does not select it.
        columns: The output, over the input's columns; ``rank`` and ``_weight`` follow.
        time: As of ``KeyedAggregate``.
        gap_micros: As of ``KeyedAggregate``.
        weight: As of ``KeyedAggregate``.
    """

    source: Relation
    keys: tuple[Projection, ...]
    order: tuple[Ordering, ...]
    limit: int
    rank: str | None
    columns: tuple[Projection, ...]
    time: str | None = None
    gap_micros: int | None = None
    where: str | None = None
    weight: str | None = None


JoinKind = Literal["inner", "left", "right", "full", "semi", "anti"]
ComparisonOperator = Literal["<", "<=", ">", ">=", "<>"]


@dataclass(frozen=True, slots=True)
class JoinSide:
    """One of the two relations of a join.

    Attributes:
        columns: The columns that the join stores, over those of ``source``. The names begin with
            the side, as in ``left.id``, so those of both sides differ.
        keys: The join keys, as Spark SQL over ``columns``; each equals the other side's.
        operands: Expressions over ``columns`` that are compared with the other side; one for each
            of the join's ``comparisons``.
        where: A condition over ``columns``: only rows that meet it can have a partner.
        time: The event time, over ``columns``; None where nothing depends on it.
        lag_micros: How long after the watermark has passed its time a row may still come.
        window: The window of event time within which its rows are joined; None without one.
        weight: Spark SQL of the weight of its rows, over ``source``; None without retractions.
    """

    source: Relation
    columns: tuple[Projection, ...]
    keys: tuple[str, ...] = ()
    operands: tuple[str, ...] = ()
    where: str | None = None
    time: str | None = None
    lag_micros: int = 0
    window: Window | None = None
    weight: str | None = None


@dataclass(frozen=True, slots=True)
class Join:
    """The rows of two streams that belong together.

    Attributes:
        kind: As in SQL. A *semi* or *anti* join has rows of the left alone.
        emits: *Once*: each pair, and a row without a partner when none can come any more.
            *Changes*: every change, as rows of ``_weight`` -1 and +1. *Close*: everything when its
            window closes.
        bounds: The smallest and the largest time of the right minus the time of the left that a
            pair may have, in microseconds; None where time does not matter.
        comparisons: Operators such as ``<`` between the ``operands`` of left and right in a pair.
        condition: The rest of the join condition, as Spark SQL over the columns of both sides. Only
            inner joins have it.
    """

    left: JoinSide
    right: JoinSide
    kind: JoinKind
    emits: Literal["once", "changes", "close"]
    bounds: tuple[int, int] | None = None
    comparisons: tuple[ComparisonOperator, ...] = ()
    condition: str | None = None

    @property
    def sides(self) -> tuple[JoinSide, JoinSide]:
        """The left, and the right."""
        return self.left, self.right

    @property
    def waits(self) -> tuple[int, int]:
        """How long after the watermark has passed its time a row may still find a partner.

        For the left and for the right, in microseconds; 0 where time does not matter.
        """
        if self.bounds is None:
            return 0, 0
        (least, most), left, right = self.bounds, self.left.lag_micros, self.right.lag_micros
        return max(left, most + right), max(right, left - least)

    @property
    def is_weighed(self) -> bool:
        """Whether its rows have a ``_weight``."""
        return self.emits == "changes" or any(each.weight is not None for each in self.sides)

    @property
    def has_left_alone(self) -> bool:
        """Whether the output depends on rows of the left that have no partner."""
        return self.kind in ("left", "full", "semi", "anti")

    @property
    def has_right_alone(self) -> bool:
        """Whether rows of the right without a partner are emitted."""
        return self.kind in ("right", "full")


@dataclass(frozen=True, slots=True)
class ReferenceJoin:
    """The rows of a stream, each with its partners in a reference table. It keeps no state.

    Attributes:
        table: The reference table.
        kind: As in SQL. A *semi* or *anti* join has the columns of the stream alone.
        keys: The join keys of the stream, equal to ``matches``, as Spark SQL over ``source``.
        matches: Columns of the table, one for each of ``keys``.
        columns: Output columns from the stream, over ``source``; the names begin with ``left.``.
        found: Output columns from the table, over its columns; the names begin with ``right.``.
        where: A condition over ``source``: only rows that meet it can have a partner.
        is_weighed: Whether the rows have a ``_weight``: it is that of the stream's row.
    """

    source: Relation
    table: str
    kind: Literal["inner", "left", "semi", "anti"]
    keys: tuple[str, ...]
    matches: tuple[str, ...]
    columns: tuple[Projection, ...] = ()
    found: tuple[Projection, ...] = ()
    where: str | None = None
    is_weighed: bool = False


@dataclass(frozen=True, slots=True)
class ReferenceValue:
    """The rows of a stream, each with one value that is computed from a whole reference table.

    Attributes:
        table: The reference table.
        value: Aggregates, as Spark SQL over the table's columns.
        where: A condition that selects rows of the table.
        name: The column that holds it, beside all those of ``source``.
    """

    source: Relation
    table: str
    value: str
    where: str | None
    name: str


ExplodeKind = Literal["explode", "posexplode", "inline", "unnest"]


@dataclass(frozen=True, slots=True)
class Explode:
    """The rows of a stream, each once for every item of a list or map. It keeps no state.

    Attributes:
        items: The list or map, as Spark SQL over ``source``.
        kind: Which columns an item becomes: itself, or the key and value of a map (*explode*); the
            same after its position (*posexplode*); its fields (*inline*); itself if ``names`` has
            one name, and its fields otherwise (*unnest*).
        names: The names of these columns, in order.
        keeps_empty: A row without items stays, with nulls in their place (OUTER).
        columns: Output columns from the row, over ``source``.
        found: Output columns from the item, over ``names``.
        is_weighed: Whether the rows have a ``_weight``: it is that of the row they come from.
    """

    source: Relation
    items: str
    kind: ExplodeKind
    names: tuple[str, ...]
    keeps_empty: bool
    columns: tuple[Projection, ...] = ()
    found: tuple[Projection, ...] = ()
    is_weighed: bool = False


@dataclass(frozen=True, slots=True)
class UnionAll:
    """The rows of several queries, whose columns match by position."""

    parts: tuple[Select | Stateful, ...]


@dataclass(frozen=True, slots=True)
class PythonFile:
    """A file of ``models/`` that declares a model in Python.

    Attributes:
        fingerprint: Of its code.
    """

    file: str
    text: str = field(repr=False)
    fingerprint: str


@dataclass(frozen=True, slots=True)
class PythonRows:
    """Rows that a function makes of each row by itself."""

    source: TableInput
    python: PythonFile
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PythonKeyed:
    """Rows that a stateful operator in Python emits as event time goes on.

    Attributes:
        keys: Columns ``_k0``, ``_k1``, … over the input's columns.
        time: Spark SQL of the event time.
        takes: The other columns that it reads.
        state: The columns of its state for each key, with types as Arrow spells them.
        ttl_micros: How long after its last row a key without a timer is deleted; None for never.
        version: The version of the state, which its author changes with the state's meaning.
        lateness_micros: How long after the watermark has passed its time a row may come, because it
            waited in an upstream join or window; rows are processed so much later.
    """

    source: TableInput
    python: PythonFile
    keys: tuple[Projection, ...]
    time: str
    takes: tuple[str, ...]
    state: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    ttl_micros: int | None
    version: str
    lateness_micros: int = 0


Aggregation = WindowAggregate | KeyedAggregate
Stateful = WindowAggregate | KeyedAggregate | Ranked
Keeper = Stateful | Join | PythonKeyed
Python = PythonRows | PythonKeyed
Relation = (
    TableInput
    | Select
    | Stateful
    | Join
    | ReferenceJoin
    | ReferenceValue
    | Explode
    | UnionAll
    | Python
)
Query = Select | Stateful | UnionAll
