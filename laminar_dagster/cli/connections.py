"""Asks everything that a pipeline is connected to, and gathers what does not answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from laminar_dagster.cli import wording
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.core.errors import LaminarError
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.ports import ObjectStore, Sink
from laminar_dagster.runtime.adapters import Adapters
from laminar_dagster.runtime.backlog import SourceBacklog, measure
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.clock import SystemClock
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.survey import newest_manifest, survey
from laminar_dagster.stores.url import open_store


@dataclass(frozen=True, slots=True)
class Finding:
    """What a part of a pipeline answered: ``found`` in words, or the error."""

    part: str
    found: str = ""
    error: LaminarError | None = None


def check_connections(model: PipelineModel, adapters: Adapters, project: Path) -> Iterator[Finding]:
    """Try the store, then each source, then each sink. One that fails holds back no other."""
    before: list[tuple[CheckpointManifest | None, EpochPlan | None]] = []

    def ask_store() -> str:
        store = open_store(model.config.store, project)
        store.probe()
        before.append(_newest(store))
        newest = before[0][0]
        return f"{store.url}, " + (f"at epoch {newest.epoch}" if newest else "no epoch yet")

    yield _ask("store", ask_store)
    parent, previous = before[0] if before else (None, None)
    for waiting in measure(adapters.sources, parent, previous, SystemClock().now()).sources:
        yield Finding(f"source {waiting.source_id}", amount_waiting(waiting), waiting.error)
    for sink in adapters.sinks:

        def ask_sink(sink: Sink = sink) -> str:
            ledger = sink.ledger()
            return "nothing committed yet" if ledger is None else f"at epoch {ledger}"

        yield _ask(f"sink {sink.sink_id}", ask_sink)


def check_queries(pipeline: Pipeline) -> Iterator[Finding]:
    """Have Spark look at every query: it knows types and functions that the files do not show."""
    try:
        found = pipeline.engine.mistakes()
    except LaminarError as error:
        yield Finding("queries", error=error)
        return
    for mistake in found:
        yield Finding(f"query at {mistake.where}", error=mistake)
    if not found:
        yield Finding("queries", "Spark takes every one")


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


def _ask(part: str, ask: Callable[[], str]) -> Finding:
    try:
        return Finding(part, ask())
    except LaminarError as error:
        return Finding(part, error=error)


def _newest(store: ObjectStore) -> tuple[CheckpointManifest | None, EpochPlan | None]:
    checkpoints = CheckpointStore(store)
    manifest = newest_manifest(checkpoints, survey(checkpoints))
    return manifest, checkpoints.plan(manifest.epoch) if manifest else None
