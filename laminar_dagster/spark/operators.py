"""The operators of an epoch's job: their parent state, and which of them count records."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypedDict

from pyspark.sql import DataFrame

from laminar_dagster.config.model import View
from laminar_dagster.config.relations import Relation
from laminar_dagster.core.document import encode_part
from laminar_dagster.core.ids import CheckpointId, OperatorId
from laminar_dagster.core.manifest import PartitionSnapshotEntry
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.spark.additions import Additions, growth_of
from laminar_dagster.spark.aggregation_frames import advanced_state
from laminar_dagster.spark.bucket_step import BucketStep
from laminar_dagster.spark.feeding import Feeding
from laminar_dagster.spark.growth import Growth
from laminar_dagster.spark.watermarks import SourceClock


class Ground(TypedDict):
    """The arguments that the steps of all operators with state have in common: ``BucketStep``."""

    clocks: tuple[SourceClock, ...]
    chains: Mapping[int, tuple[bytes, ...]]
    attempt: CheckpointId
    store: ObjectStore


@dataclass
class Operators:
    """The state and clocks that operators start an epoch with, and the steps built for them.

    Attributes:
        clocks: The watermarks of each source before the epoch.
        chains: The parent's state files, for each operator and bucket.
        additions: The partials added to the state of an operator after it began.
        read: The sources that have something to read in this epoch.
        steps: The bucket step of each operator with state.
        fed_by: The sources of each operator that counts records; its counts are checked against
            them. Operators over results of other operators are left out.
    """

    feeding: Feeding
    clocks: Mapping[str, SourceClock]
    chains: Mapping[OperatorId, Mapping[int, tuple[PartitionSnapshotEntry, ...]]]
    additions: Additions
    read: Collection[str]
    buckets: int
    attempt: CheckpointId
    store: ObjectStore = field(repr=False)
    steps: dict[OperatorId, BucketStep] = field(default_factory=dict)
    fed_by: dict[OperatorId, tuple[str, ...]] = field(default_factory=dict)

    def ground(self, operator: OperatorId, *inputs: Relation) -> Ground:
        """The common arguments of an operator's step.

        Its clocks are those of its own inputs, whose tasks report their watermarks to it. Another
        source of the view would seem to stand still in the epoch, and to have advanced in the next:
        windows that end in between would never be emitted.
        """
        sources = {name for each in inputs for name in self.feeding.sources_of(each)}
        return Ground(
            clocks=tuple(self.clocks[name] for name in sorted(sources)),
            chains={
                bucket: tuple(encode_part(entry) for entry in entries)
                for bucket, entries in self.chains.get(operator, {}).items()
            },
            attempt=self.attempt,
            store=self.store,
        )

    def growth_of(self, operator: OperatorId) -> Growth | None:
        """The partials added to an operator's state after it began; None without any."""
        added = self.additions.get(operator)
        return growth_of(added) if added else None

    def advance(self, rows: DataFrame, operator: OperatorId, step: BucketStep) -> DataFrame:
        """The output of a step over new rows and the state of their buckets."""
        self.steps[operator] = step
        # The task of each split sends its report to all operators above the source.
        has_reports = any(clock.source_id in self.read for clock in step.clocks)
        return advanced_state(rows, step, self.buckets, has_reports=has_reports)

    def count(self, operator: OperatorId, *inputs: Relation) -> None:
        """Register an operator for record counts, if some of its inputs are records."""
        raw = [each for each in inputs if not self.feeding.is_past_records(each)]
        if raw:
            self.fed_by[operator] = tuple(n for each in raw for n in self.feeding.sources_of(each))

    def count_where_asked_for(
        self, view: View, operator: OperatorId, source: Relation
    ) -> OperatorId | None:
        """The operator that a stateless step counts records for; None if its rows are results."""
        if self.feeding.is_past_records(source):
            return None
        # A view that no output needs is never run: it would report no counts to check.
        if self.feeding.is_asked_for(view):
            self.count(operator, source)
        return operator
