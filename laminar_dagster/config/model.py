"""A pipeline as the engine sees it: sources, views in order, sinks.

Frozen and checked. Nothing of SQL's statements is left; a view's query is one of ``relations``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from laminar_dagster.config.contract_rules import ContractRules
from laminar_dagster.config.max_ahead import DEFAULT_MAX_AHEAD
from laminar_dagster.config.pipeline import PipelineConfig
from laminar_dagster.config.relations import Python, PythonKeyed, PythonRows, Query
from laminar_dagster.config.variables import secret_variables
from laminar_dagster.core.definition import OnAdded
from laminar_dagster.core.ids import OperatorId, ReferenceId, SinkId, SourceId


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
    """Event time, and how far behind the newest event it may lag.

    Attributes:
        max_ahead_micros: How far the event time of a record may be ahead of the epoch's clock;
            None is no bound.
    """

    column: str
    delay_micros: int
    max_ahead_micros: int | None = DEFAULT_MAX_AHEAD


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A ``CREATE SOURCE TABLE``.

    Attributes:
        connector: Which adapter reads it, for example ``file``.
        options: The other options of its ``WITH``; the adapter checks them.
        written: The options as written, ``${NAME}`` not filled in: to show, and to fingerprint.
        added: The names of the columns that the connector adds. They come last in ``columns``.
        key: The columns of its PRIMARY KEY, as they are declared; empty if it has none.
    """

    source_id: SourceId
    columns: tuple[Column, ...]
    watermark: WatermarkSpec | None
    connector: str
    options: Mapping[str, str] = field(repr=False)
    place: Place
    written: Mapping[str, str] = field(default_factory=dict, repr=False)
    added: tuple[str, ...] = ()
    key: tuple[str, ...] = ()

    @property
    def declared(self) -> tuple[Column, ...]:
        """The columns that its author wrote."""
        return self.columns[: len(self.columns) - len(self.added)]


@dataclass(frozen=True, slots=True)
class ReferenceTable:
    """A ``CREATE REFERENCE TABLE``: streams join the snapshot of it that an epoch's plan pins.

    Attributes:
        key: The columns of its PRIMARY KEY, as they are declared; empty if it has none. They are
            not nullable.
        connector: As in ``SourceTable``, like ``options`` and ``written``.
    """

    reference_id: ReferenceId
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    connector: str
    options: Mapping[str, str] = field(repr=False)
    place: Place
    written: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class View:
    """A materialised view: ``CREATE MATERIALIZED VIEW``, or a file of SQL or Python in ``models/``.

    Attributes:
        sql: The query as its author wrote it, or the Python.
        columns: The names of its columns, in order.
        reads: The sources and views it reads, each once, in the order of the query.
        on_added: What existing rows show for an aggregate that is added to the query later; None
            to refuse such a change.
    """

    name: OperatorId
    query: Query | Python
    sql: str
    place: Place
    columns: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    on_added: OnAdded | None = None

    @property
    def language(self) -> Literal["sql", "python"]:
        """The language it is written in."""
        return "python" if isinstance(self.query, PythonRows | PythonKeyed) else "sql"


@dataclass(frozen=True, slots=True)
class SinkTable:
    """A ``CREATE SINK``.

    Attributes:
        written: As for a source.
        counts_rows: The query does not prove that the sink's key identifies its rows, so every
            epoch counts rows by key.
    """

    sink_id: SinkId
    view: OperatorId
    connector: str
    options: Mapping[str, str] = field(repr=False)
    place: Place
    written: Mapping[str, str] = field(default_factory=dict, repr=False)
    counts_rows: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row, as its author wrote them; none if it appends."""
        if self.options.get("mode", "append").lower() != "upsert":
            return ()
        # For a Kafka sink the key is that of its messages.
        written = self.options.get("key") or self.options.get("key.columns") or ""
        return tuple(part.strip() for part in written.split(",") if part.strip())


@dataclass(frozen=True, slots=True)
class Contract:
    """A pandera schema for a view's output.

    Attributes:
        yaml: The text of the file.
        rules: The rules that rows must satisfy.
    """

    view: OperatorId
    yaml: str
    place: Place
    rules: ContractRules


@dataclass(frozen=True, slots=True)
class PipelineModel:
    """A whole pipeline.

    Attributes:
        views: In an order in which each comes after those it reads.
        fingerprint: Changes when and only when what is computed may change.
        written_spark: The settings of Spark as written, ``${NAME}`` not filled in.
        warnings: What was allowed although it is doubtful, such as ``determinism: warn``.
        references: The tables that streams are joined with.
    """

    config: PipelineConfig
    sources: tuple[SourceTable, ...]
    views: tuple[View, ...]
    sinks: tuple[SinkTable, ...]
    contracts: tuple[Contract, ...]
    fingerprint: str
    warnings: tuple[str, ...] = ()
    written_spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    references: tuple[ReferenceTable, ...] = ()

    @property
    def secret_variables(self) -> frozenset[str]:
        """The environment variables with secrets, which Spark's processes do not need."""
        options = [self.written_spark, *(each.written for each in self.sources)]
        options += [each.written for each in self.references]
        options += [each.written for each in self.sinks]
        return secret_variables(options)
