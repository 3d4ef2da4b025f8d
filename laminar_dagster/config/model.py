"""A pipeline as the engine sees it: sources, views in order, sinks.

Frozen and checked. There are no statements left; expressions stay as Spark SQL text.

A view's query is one of five shapes, nested through ``Relation``:

    Select          projection and filter of one relation
    WindowAggregate GROUP BY a window of event time (and keys), put out when the window closes
    KeyedAggregate  GROUP BY keys, put out whenever it changes; or by sessions
    Ranked          the first rows of each key, put out whenever they change
    UnionAll        the rows of several queries of equal columns
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from laminar_dagster.config.pipeline import PipelineConfig
from laminar_dagster.core.ids import OperatorId, SinkId, SourceId


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a file something is written, for errors."""

    file: str
    line: int

    def __str__(self) -> str:
        """As ``file:line``."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a source: its name, and its type as Spark SQL spells it."""

    name: str
    type: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class WatermarkSpec:
    """Event time, and how far behind the newest event it may lag."""

    column: str
    delay_micros: int


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A ``CREATE SOURCE TABLE``.

    Attributes:
        connector: Which adapter reads it, for example ``file``.
        options: Everything else of its ``WITH``; the adapter checks them.
        written: The options as written, ``${NAME}`` not filled in: to show, and to fingerprint.
        added: The names of those columns that the connector adds to the declared ones. They come
            last.
    """

    source_id: SourceId
    columns: tuple[Column, ...]
    watermark: WatermarkSpec | None
    connector: str
    options: Mapping[str, str] = field(repr=False)
    place: Place
    written: Mapping[str, str] = field(default_factory=dict, repr=False)
    added: tuple[str, ...] = ()

    @property
    def declared(self) -> tuple[Column, ...]:
        """The columns that its author wrote."""
        return self.columns[: len(self.columns) - len(self.added)]


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
        grows: It begins every ``size``, and ends every ``slide`` up to that (CUMULATE).
    """

    time: str
    size_micros: int
    slide_micros: int
    offset_micros: int = 0
    grows: bool = False


AggregateFunction = Literal[
    "count",
    "sum",
    "min",
    "max",
    "avg",
    "min_by",
    "max_by",
    "collect_list",
    "collect_set",
    "count_distinct",
]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate. ``argument`` is Spark SQL over the input; None for ``COUNT(*)``.

    Attributes:
        name: Its column in the state, ``_a0``, ``_a1``, …
        by: What decides which of the arguments is taken, for MIN_BY and MAX_BY.
    """

    name: str
    function: AggregateFunction
    argument: str | None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class WindowAggregate:
    """Aggregates by window and keys, emitted when the window closes.

    Attributes:
        where: Over the input's columns.
        keys: Columns ``_k0``, ``_k1``, … over the input's columns.
        having: Over ``_k0`` …, ``_a0`` …, ``window_start``, ``window_end``.
        columns: The output, over the same names as ``having``.
    """

    source: Relation
    window: Window
    keys: tuple[Projection, ...]
    aggregates: tuple[Aggregate, ...]
    columns: tuple[Projection, ...]
    where: str | None = None
    having: str | None = None


@dataclass(frozen=True, slots=True)
class KeyedAggregate:
    """Aggregates by keys, whose rows change as records come.

    Attributes:
        kind: A *group* has one row for each key; a *window* one for each window and key; a
            *session* one for each stretch of a key's events.
        emits: Each change, as rows of ``_weight`` -1 and +1; or each row once, when it ends.
        window: Of the kind *window*.
        time: Spark SQL of the event time; None where nothing depends on it.
        gap_micros: A group leaves the view, and a session ends, so long after its last event. None
            for groups that stay.
        weight: Spark SQL of the weight of the input's rows; None if they are never taken back.
        where: Over the input's columns.
        keys: Columns ``_k0``, ``_k1``, … over the input's columns.
        having: Over ``_k0`` …, ``_a0`` …, ``window_start``, ``window_end``.
        columns: The output, over the same names as ``having``, and ``_weight``.
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


@dataclass(frozen=True, slots=True)
class Ordering:
    """An item of ORDER BY: Spark SQL over the input."""

    sql: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Ranked:
    """The first rows of each key in some order, put out whenever they change.

    Attributes:
        keys: Columns ``_k0``, ``_k1``, … over the input's columns.
        limit: So many of each key; 0 before it is known.
        rank: The column that holds a row's place, from 1; None if nobody asks for it.
        columns: The output, over the input's columns; ``rank`` and ``_weight`` follow.
        time: As of ``KeyedAggregate``.
        gap_micros: As of ``KeyedAggregate``.
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


@dataclass(frozen=True, slots=True)
class UnionAll:
    """The rows of several queries, column by position."""

    parts: tuple[Select | Stateful, ...]


Aggregation = WindowAggregate | KeyedAggregate
Stateful = WindowAggregate | KeyedAggregate | Ranked
Relation = TableInput | Select | WindowAggregate | KeyedAggregate | Ranked | UnionAll
Query = Select | WindowAggregate | KeyedAggregate | Ranked | UnionAll


@dataclass(frozen=True, slots=True)
class View:
    """A materialised view: ``CREATE MATERIALIZED VIEW``, or a bare SELECT in ``models/``.

    Attributes:
        sql: The query as its author wrote it.
        columns: The names of its columns, in order.
        reads: The sources and views it reads, each once, in the order of the query.
    """

    name: OperatorId
    query: Query
    sql: str
    place: Place
    columns: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SinkTable:
    """A ``CREATE SINK``. ``written`` is as for a source."""

    sink_id: SinkId
    view: OperatorId
    connector: str
    options: Mapping[str, str] = field(repr=False)
    place: Place
    written: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Contract:
    """A pandera schema for a view's output, as the YAML file spells it."""

    view: OperatorId
    yaml: str
    place: Place


@dataclass(frozen=True, slots=True)
class PipelineModel:
    """A whole pipeline.

    Attributes:
        views: In an order in which each comes after those it reads.
        fingerprint: Changes when and only when what is computed may change.
        written_spark: The settings of Spark as written, ``${NAME}`` not filled in.
        warnings: What was allowed although it is doubtful, such as ``determinism: warn``.
    """

    config: PipelineConfig
    sources: tuple[SourceTable, ...]
    views: tuple[View, ...]
    sinks: tuple[SinkTable, ...]
    contracts: tuple[Contract, ...]
    fingerprint: str
    warnings: tuple[str, ...] = ()
    written_spark: Mapping[str, str] = field(default_factory=dict, repr=False)
