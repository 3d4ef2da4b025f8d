"""A pipeline with its adapters: everything that running an epoch needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from laminar_dagster.core.branch import BranchSink
from laminar_dagster.core.definition import PipelineDefinition
from laminar_dagster.core.ids import CheckpointId, PipelineName, SinkId, SourceId
from laminar_dagster.core.ports import Admission, Clock, Engine, Reference, Sink, Source
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.clock import SystemClock, mint_checkpoint_id
from laminar_dagster.runtime.collector import Retention
from laminar_dagster.runtime.transactions import EpochTransactionTracker

_NO_LIMITS: Final = Admission()
_DEFAULT_RETENTION: Final = Retention()
_SYSTEM_CLOCK: Final = SystemClock()


@dataclass(frozen=True, slots=True)
class CountedKey:
    """A sink's key that its view's query does not show to be unique, so its rows are counted.

    Attributes:
        place: Where the sink is written, for people.
    """

    view: str
    key: tuple[str, ...]
    place: str


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The adapters of one pipeline.

    Attributes:
        fingerprint: The hash of the pipeline's code and configuration.
        published: The view, mode and key of each sink, which the fingerprint does not cover; None
            when unknown.
        definition: What the fingerprint stands for, kept with the state. Without it, a changed
            pipeline goes on with whatever state there is.
        counted: The keys of sinks whose rows are counted by key before they are published.
        limits: How much an epoch may read at most.
        max_drift: How far a partition may run ahead of the slowest in event time, in microseconds.
        max_ahead: How far the event time of a source's records may be ahead of the epoch's clock,
            in microseconds; unlimited for sources that are not named.
        references: The reference tables that its streams are joined with.
        transactions: The sinks' transactions that this process has begun.
        collect_every: Garbage is collected once in so many epochs, because that lists the store.
    """

    name: PipelineName
    fingerprint: str
    checkpoints: CheckpointStore
    engine: Engine
    sources: tuple[Source, ...]
    sinks: tuple[Sink, ...]
    references: tuple[Reference, ...] = ()
    published: tuple[BranchSink, ...] | None = None
    definition: PipelineDefinition | None = None
    counted: Mapping[SinkId, CountedKey] = field(default_factory=dict)
    limits: Admission = _NO_LIMITS
    max_drift: int | None = None
    max_ahead: Mapping[SourceId, int] = field(default_factory=dict)
    retention: Retention = _DEFAULT_RETENTION
    collect_every: int = 20
    clock: Clock = _SYSTEM_CLOCK
    mint: Callable[[], CheckpointId] = mint_checkpoint_id
    transactions: EpochTransactionTracker = field(default_factory=EpochTransactionTracker)

    def sink(self, sink_id: SinkId) -> Sink | None:
        """A sink by name; None for one that was removed from the pipeline."""
        return next((sink for sink in self.sinks if sink.sink_id == sink_id), None)
