"""Asks everything that a pipeline is connected to, and gathers what does not answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from laminar_dagster.cli import wording
from laminar_dagster.cli.failures import Failure, failure_of
from laminar_dagster.config.mistakes import InvalidPipeline
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.core.errors import InvalidConfig, LaminarError
from laminar_dagster.core.ids import SinkId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.ports import ArrowSchema, ObjectStore, Reference, Sink, Unconstrained
from laminar_dagster.runtime.assembly import Adapters
from laminar_dagster.runtime.backlog import SourceBacklog, measure
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.clock import SystemClock
from laminar_dagster.runtime.health import ANSWERS, ask_health
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.survey import newest_manifest, survey
from laminar_dagster.stores.local import LocalStore
from laminar_dagster.stores.url import open_store


@dataclass(frozen=True, slots=True)
class Finding:
    """What a part of a pipeline answered: ``found`` in words, or the error.

    Attributes:
        where: The place in a file that describes the part.
        warning: What is doubtful although it answers.
    """

    part: str
    found: str = ""
    error: LaminarError | None = None
    where: str = ""
    warning: str = ""

    @property
    def failure(self) -> Failure | None:
        """The error, with the place that it is about."""
        if self.error is None:
            return None
        failure = failure_of(self.error)
        if not self.where or isinstance(self.error, InvalidPipeline):
            return failure
        told = self.error.problem if isinstance(self.error, InvalidConfig) else str(self.error)
        return replace(failure, message=f"{wording.shorter_place(self.where)}: {told}")


def check_connections(model: PipelineModel, adapters: Adapters, project: Path) -> Iterator[Finding]:
    """Try the store, then each source, table and sink. One that fails holds back no other."""
    before: list[tuple[CheckpointManifest | None, EpochPlan | None]] = []

    exposure: list[str] = []

    def ask_store() -> str:
        store = open_store(model.config.store, project)
        store.probe()
        if isinstance(store, LocalStore) and (found := store.exposure()):
            exposure.append(f"store {store.url}: {found}")
        before.append(_newest(store))
        newest = before[0][0]
        return f"{store.url}, " + (f"at epoch {newest.epoch}" if newest else "no epoch yet")

    yield replace(_ask("store", ask_store), warning="".join(exposure))
    parent, previous = before[0] if before else (None, None)
    yield from _check_sources(model, adapters, parent, previous)
    yield from _check_references(model, adapters)
    places = {each.sink_id: str(each.place) for each in model.sinks}
    for sink in adapters.sinks:

        def ask_sink(sink: Sink = sink) -> str:
            ledger = sink.ledger()
            _check_keys(sink)
            return "nothing committed yet" if ledger is None else f"at epoch {ledger}"

        yield _ask(_name_of(sink.sink_id), ask_sink, places.get(sink.sink_id, ""))


def _check_sources(
    model: PipelineModel,
    adapters: Adapters,
    parent: CheckpointManifest | None,
    previous: EpochPlan | None,
) -> Iterator[Finding]:
    """What waits in each source, and how it does."""
    places = {each.source_id: str(each.place) for each in model.sources}
    backlog = measure(adapters.sources, parent, previous, SystemClock().now())
    health = ask_health(adapters.sources, parent, backlog)
    for waiting in backlog.sources:
        report = health[waiting.source_id]
        found = amount_waiting(waiting)
        if report is not ANSWERS:
            found += f"; {report.message}"
        where, part = places.get(waiting.source_id, ""), f"source {waiting.source_id}"
        warning = f"{part}: {report.warning}" if report.warning else ""
        yield Finding(part, found, report.error, where, warning)


def _check_references(model: PipelineModel, adapters: Adapters) -> Iterator[Finding]:
    """Whether each reference table answers, and is what was declared; no row is read."""
    places = {each.reference_id: str(each.place) for each in model.references}
    for table in adapters.references:

        def look(table: Reference = table) -> str:
            return table.version() or "it has the columns"

        where = places.get(table.reference_id, "")
        yield _ask(f"reference table {table.reference_id}", look, where)


def check_queries(
    model: PipelineModel, pipeline: Pipeline, silent: Collection[str]
) -> Iterator[Finding]:
    """Have Spark look at every query: it knows types and functions that the files do not show.

    With the columns it finds, every sink is asked whether it can take them.

    Args:
        model: What the author wrote.
        pipeline: The same, put together.
        silent: The parts that did not answer before; they are not asked again.
    """
    try:
        found = pipeline.engine.examine()
    except LaminarError as error:
        yield Finding("queries", error=error)
        return
    for mistake in found.mistakes:
        yield Finding(f"query at {mistake.where}", error=mistake)
    if not found.mistakes:
        yield Finding("queries", "Spark takes every one")
    for table in model.sinks:
        sink, columns = pipeline.sink(table.sink_id), found.columns.get(table.view)
        is_silent = _name_of(table.sink_id) in silent
        if sink is not None and columns is not None and not is_silent:
            yield _check_columns(sink, columns, str(table.place))


def _name_of(sink: SinkId) -> str:
    return f"sink {sink}"


def _check_columns(sink: Sink, columns: ArrowSchema, where: str) -> Finding:
    def check() -> str:
        sink.check(columns)
        return "every one has its place"

    return _ask(f"columns of {_name_of(sink.sink_id)}", check, where)


def _check_keys(sink: Sink) -> None:
    """Find a table in which a key has several rows.

    Raises:
        InvalidConfig: There is one, with an example.
    """
    repeated = sink.repeated_keys() if isinstance(sink, Unconstrained) else None
    if repeated is not None and repeated.count:
        raise InvalidConfig(
            _name_of(sink.sink_id),
            f"{wording.count(repeated.count, 'key')} of {sink.address} have several rows, such as"
            f" {repeated.example}",
            "old rows and deleted ones may be among them; docs/sinks-delta.md says what to do",
        )


def amount_waiting(source: SourceBacklog) -> str:
    """How much waits in a source, in words."""
    partitions = wording.count(len(source.ranges), "partition")
    if source.is_empty:
        return f"nothing waits, {partitions}"
    where = f"in {len(source.waiting):,} of {partitions}"
    match source.amount, source.unit:
        case int(amount), "bytes":
            return f"{wording.size(amount)} {where}"
        case int(amount), _:
            return f"{wording.count(amount, 'record')} {where}"
        case _:
            return f"something waits {where}"


def _ask(part: str, ask: Callable[[], str], where: str = "") -> Finding:
    try:
        return Finding(part, ask(), where=where)
    except LaminarError as error:
        return Finding(part, error=error, where=where)


def _newest(store: ObjectStore) -> tuple[CheckpointManifest | None, EpochPlan | None]:
    checkpoints = CheckpointStore(store)
    manifest = newest_manifest(checkpoints, survey(checkpoints))
    return manifest, checkpoints.plan(manifest.epoch) if manifest else None
