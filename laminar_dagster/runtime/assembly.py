"""From the model of a pipeline to one that runs: adapters, store and engine put together.

``check_models`` finds mistakes that a model's files alone do not show; everything that opens a
pipeline calls it. It starts no Spark, and creates no store, folder or database.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from laminar_dagster.config.connectors import Connectors, Kind, SourceTraits
from laminar_dagster.config.definition import define
from laminar_dagster.config.mistakes import Report
from laminar_dagster.config.model import (
    PipelineModel,
    Place,
    ReferenceTable,
    SinkTable,
    SourceTable,
)
from laminar_dagster.config.pipeline import PipelineConfig, config_file, find_pipelines
from laminar_dagster.config.project import read_sinks
from laminar_dagster.core.errors import InvalidConfig, InvalidName, InvalidState
from laminar_dagster.core.ids import CheckpointId, PipelineName, SinkId, SourceId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.ports import (
    Engine,
    EpochOutput,
    Examination,
    ObjectStore,
    Reference,
    Sink,
    Source,
)
from laminar_dagster.plugins.declarations import (
    ReferenceConnector,
    ReferenceContext,
    SinkConnector,
    SinkContext,
    SourceConnector,
    SourceContext,
    TableConnector,
)
from laminar_dagster.plugins.registry import find, known_names, missing_extras, use
from laminar_dagster.runtime.branches.published import branch_sinks
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.collector import Retention
from laminar_dagster.runtime.pipeline import CountedKey, Pipeline
from laminar_dagster.runtime.snapshots import StoredSnapshots
from laminar_dagster.stores.url import local_folder, open_store

if TYPE_CHECKING:
    from laminar_dagster.spark.session import SessionFactory

BuiltT = TypeVar("BuiltT")
_KINDS: Final[Mapping[Kind, type[TableConnector]]] = {
    "source": SourceConnector,
    "sink": SinkConnector,
    "reference table": ReferenceConnector,
}


@dataclass(frozen=True, slots=True)
class Adapters:
    """What a pipeline reads from and writes to."""

    sources: tuple[Source, ...]
    sinks: tuple[Sink, ...]
    references: tuple[Reference, ...] = ()


def known_connectors() -> Connectors:
    """All connectors, any option allowed: each adapter checks its own options."""
    sources = known_names(SourceConnector)
    return Connectors(
        sources=dict.fromkeys(sources, ("*",)),
        sinks=dict.fromkeys(known_names(SinkConnector), ("*",)),
        references=dict.fromkeys(known_names(ReferenceConnector), ("*",)),
        traits={name: partial(_traits, name) for name in sources},
        mistakes=_mistakes,
        doubts=_doubts,
    )


def _traits(name: str, options: Mapping[str, str]) -> SourceTraits:
    try:
        # Not `use`: without a missing extra the traits are still known, and the queries checked.
        return find(SourceConnector, name, "").traits(options)
    except (InvalidConfig, ImportError):
        # ``_mistakes`` says why.
        return SourceTraits()


def _mistakes(kind: Kind, name: str, options: Mapping[str, str]) -> Iterable[tuple[str, str, str]]:
    try:
        connector = find(_KINDS[kind], name, "")
    except InvalidConfig as error:
        return [("connector", error.problem, error.suggestion)]
    if missing := [*missing_extras(_KINDS[kind], name, connector.extras, options)]:
        return missing
    try:
        return use(_KINDS[kind], name, options, "", lambda found: [*found.mistakes(options)])
    except InvalidConfig as error:
        return [("connector", error.problem, error.suggestion)]


def _doubts(kind: Kind, name: str, options: Mapping[str, str]) -> Iterable[tuple[str, str, str]]:
    try:
        return use(_KINDS[kind], name, options, "", lambda found: [*found.doubts(options)])
    except InvalidConfig:
        # ``_mistakes`` says why.
        return ()


def assemble(model: PipelineModel, project: Path, session: SessionFactory | None) -> Pipeline:
    """Put a pipeline together.

    Args:
        model: What its author wrote.
        project: Where relative paths begin.
        session: Gives the Spark session, when the first epoch is computed; None for a pipeline
            that only commits, and loads no Spark.

    Raises:
        InvalidPipeline: Lists every mistake that ``check_models`` finds.
        ConditionsIgnored: The store cannot hold checkpoints.
    """
    # Reports all mistakes, also targets shared with other pipelines; building stops at the first.
    check_models([model], project)
    config = model.config
    store = open_store(config.store, project)
    store.probe()
    sources = tuple(build_source(table, config, project, store) for table in model.sources)
    return Pipeline(
        name=config.name,
        fingerprint=model.fingerprint,
        checkpoints=CheckpointStore(store),
        engine=build_engine(model, store, sources, session),
        sources=sources,
        sinks=tuple(build_sink(table, project, config.name) for table in model.sinks),
        references=tuple(build_reference(table, project) for table in model.references),
        published=branch_sinks(model),
        definition=define(model),
        counted=counted_keys(model),
        limits=config.epoch.admission,
        max_drift=config.epoch.drift_micros,
        max_ahead=bounds_of(model),
        retention=Retention.of(config.retention),
    )


def check_models(models: Sequence[PipelineModel], project: Path) -> tuple[Adapters, ...]:
    """Refuse mistakes that only a pipeline's adapters, or the project's other pipelines, show.

    Returns:
        The adapters of each pipeline; nothing is opened yet.

    Raises:
        InvalidPipeline: Lists every option that is wrong, wrong addresses of stores, and sinks that
            write where another does, of any pipeline of the project.
    """
    report = Report()
    found: list[Adapters] = []
    for model in models:
        try:
            found.append(build_adapters(model, project))
        except InvalidConfig as error:
            report.add_error(error)
    _check_targets(models, project, report)
    report.raise_if_any()
    return tuple(found)


def _check_targets(models: Sequence[PipelineModel], project: Path, report: Report) -> None:
    """Report two sinks with one target: each would take the other's rows for its own."""
    names = {str(model.config.name) for model in models}
    others = (folder for folder in find_pipelines(project) if folder.name not in names)
    systems = {_system(table) for model in models for table in model.sinks}
    written: dict[str, SinkTable] = {}
    for folder in others:
        name = PipelineName(folder.name)
        for table in read_sinks(folder):
            # Clients of other systems are not loaded for what they cannot write to.
            if _system(table) in systems:
                written |= dict.fromkeys(_targets(table, project, name), table)
    for model in models:
        for table in model.sinks:
            targets = _targets(table, project, model.config.name)
            first = next((written[each] for each in targets if each in written), None)
            if first is not None:
                problem = f"sink `{table.sink_id}` writes where `{first.sink_id}` does"
                hint = f"give each a table of its own; the other is at {first.place}"
                report.add(str(table.place), problem, hint)
            written |= dict.fromkeys(targets, table)


def _system(table: SinkTable) -> str:
    """What a sink's connector writes to; its own name if it cannot be loaded."""
    try:
        return find(SinkConnector, table.connector, "").system or table.connector
    except InvalidConfig:
        return table.connector


def _targets(table: SinkTable, project: Path, pipeline: PipelineName) -> tuple[str, ...]:
    """The targets of a sink; none if its options are wrong, which ``build_adapters`` reports."""
    try:
        return tuple(sorted(build_sink(table, project, pipeline).targets))
    except (InvalidConfig, InvalidName):
        return ()


def build_adapters(model: PipelineModel, project: Path) -> Adapters:
    """Build every source, reference table and sink; nothing is opened yet.

    Raises:
        InvalidPipeline: Lists every option that is wrong, and a wrong address of the store.
    """
    report = Report()
    store = _existing_store(model.config, project, report)
    name = model.config.name
    sources = _build_each(
        [
            (table.place, partial(build_source, table, model.config, project, store))
            for table in model.sources
        ],
        report,
    )
    sinks = _build_each(
        [(table.place, partial(build_sink, table, project, name)) for table in model.sinks],
        report,
    )
    references = _build_each(
        [(table.place, partial(build_reference, table, project)) for table in model.references],
        report,
    )
    report.raise_if_any()
    return Adapters(sources, sinks, references)


def _existing_store(config: PipelineConfig, project: Path, report: Report) -> ObjectStore | None:
    try:
        checkpoints = existing_checkpoints(config, project)
    except InvalidConfig as error:
        where = str(config_file(project, config.name))
        report.add(where, f"`store`: {error.problem}", error.suggestion)
        return None
    return checkpoints.objects if checkpoints else None


def _build_each(
    wanted: Sequence[tuple[Place, Callable[[], BuiltT]]], report: Report
) -> tuple[BuiltT, ...]:
    built = []
    for place, build in wanted:
        try:
            built.append(build())
        except InvalidConfig as error:
            report.add_error(error)
        except InvalidName as error:
            report.add(str(place), str(error), error.advice())
    return tuple(built)


def existing_checkpoints(config: PipelineConfig, project: Path) -> CheckpointStore | None:
    """The checkpoints of a pipeline; None when it has no store yet.

    Raises:
        InvalidConfig: The address of the store is wrong.
    """
    folder = local_folder(config.store, project)
    if folder is not None and not folder.exists():
        return None
    return CheckpointStore(open_store(config.store, project))


def counted_keys(model: PipelineModel) -> Mapping[SinkId, CountedKey]:
    """The keys, by sink, that the view's query does not show to be unique."""
    return {
        each.sink_id: CountedKey(str(each.view), each.key, str(each.place))
        for each in model.sinks
        if each.counts_rows
    }


def bounds_of(model: PipelineModel) -> Mapping[SourceId, int]:
    """How far event time may be ahead of the epoch's clock, for each source that has a bound."""
    return {
        each.source_id: each.watermark.max_ahead_micros
        for each in model.sources
        if each.watermark and each.watermark.max_ahead_micros is not None
    }


def build_engine(
    model: PipelineModel,
    store: ObjectStore,
    sources: tuple[Source, ...],
    session: SessionFactory | None,
) -> Engine:
    """The engine that computes a model's epochs, on a store and sources of the caller's choice."""
    if session is None:
        return NoEngine(model.config.name)
    # Imported here: loading pyspark takes a second.
    from laminar_dagster.spark.engine import SparkEngine

    return SparkEngine(
        model=model,
        store=store,
        sources={source.source_id: source for source in sources},
        session=session,
    )


@dataclass(frozen=True, slots=True)
class NoEngine:
    """The engine of a pipeline that was opened only to commit."""

    pipeline: PipelineName

    def compute(
        self, plan: EpochPlan, parent: CheckpointManifest | None, attempt: CheckpointId
    ) -> EpochOutput:
        """Refuse to compute."""
        raise InvalidState(f"pipeline {self.pipeline}", "opened to commit", "compute an epoch")

    def examine(self) -> Examination:
        """An empty examination."""
        return Examination()


def build_source(
    table: SourceTable, config: PipelineConfig, project: Path, store: ObjectStore | None
) -> Source:
    """The adapter of a source; nothing is opened yet.

    Args:
        table: What its author wrote.
        config: The pipeline's defaults for options that the source does not set.
        project: Where relative paths begin.
        store: The pipeline's store, for snapshots; None if there is none yet.

    Raises:
        InvalidConfig: An option is wrong, or the connector unknown or not usable.
    """
    # Event time becomes NOT NULL: a record without one belongs to no window, and is a dead letter.
    times = {table.watermark.column} if table.watermark else set()
    columns = tuple(
        dataclasses.replace(column, nullable=column.nullable and column.name not in times)
        for column in table.columns
    )
    defaults = {"idle.timeout": config.idle_timeout, "on_gap": config.on_gap}
    table = dataclasses.replace(table, columns=columns)
    context = SourceContext(project, defaults, StoredSnapshots(store, table.source_id))
    where = str(table.place)
    return use(
        SourceConnector, table.connector, table.options, where, lambda it: it.build(table, context)
    )


def build_reference(table: ReferenceTable, project: Path) -> Reference:
    """The adapter of a reference table; nothing is opened yet.

    Raises:
        InvalidConfig: An option is wrong, or the connector unknown or not usable.
    """
    context, where = ReferenceContext(project), str(table.place)
    return use(
        ReferenceConnector,
        table.connector,
        table.options,
        where,
        lambda it: it.build(table, context),
    )


def build_sink(table: SinkTable, project: Path, pipeline: PipelineName) -> Sink:
    """The adapter of a sink; nothing is opened yet.

    Raises:
        InvalidConfig: An option is wrong, or the connector unknown or not usable.
    """
    context, where = SinkContext(project, pipeline), str(table.place)
    return use(
        SinkConnector, table.connector, table.options, where, lambda it: it.build(table, context)
    )
