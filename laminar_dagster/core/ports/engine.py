"""The engine port: what computes an epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.core.ids import CheckpointId, OperatorId
from laminar_dagster.core.manifest import (
    CheckpointManifest,
    DeadLetterEntry,
    OperatorSnapshotEntry,
    RecordCounts,
    SinkEntry,
    SourceOffsetEntry,
)
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.ports.sink import ArrowSchema


@dataclass(frozen=True, slots=True)
class Violation:
    """A failed check, for which an epoch must not be published.

    Attributes:
        check: One of the checks that ``core.gate`` names.
        subject: The view, or the source.
    """

    check: str
    subject: str
    problem: str


@dataclass(frozen=True, slots=True)
class EpochOutput:
    """What an attempt computed and wrote below its own checkpoint folder.

    Attributes:
        metadata: Entries for the manifest, beside those it inherits from the parent's.
    """

    operators: tuple[OperatorSnapshotEntry, ...]
    sources: tuple[SourceOffsetEntry, ...]
    sinks: tuple[SinkEntry, ...]
    dead_letters: tuple[DeadLetterEntry, ...]
    counts: RecordCounts
    watermark: int | None
    violations: tuple[Violation, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Examination:
    """The result of analysing a pipeline's queries without running them.

    Attributes:
        mistakes: The mistakes in queries.
        columns: The columns of every view without mistakes.
    """

    mistakes: tuple[InvalidConfig, ...] = ()
    columns: Mapping[OperatorId, ArrowSchema] = field(default_factory=dict)


class Engine(Protocol):
    """Runs the bounded job of an epoch."""

    def compute(
        self, plan: EpochPlan, parent: CheckpointManifest | None, attempt: CheckpointId
    ) -> EpochOutput:
        """Carry out a plan on top of the parent's state; write only below the attempt's folder.

        Deterministic: two attempts at one plan give the same rows, the same state and the same
        hashes. Touches no sink. Every sink of the plan is one of the pipeline's, except for a plan
        of upkeep, which has no output.
        """
        ...

    def examine(self) -> Examination:
        """Analyse the pipeline's queries. Nothing is read or run."""
        ...
