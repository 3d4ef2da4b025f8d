"""The operators of an epoch's job: what each has of its parent, and which of them count records."""

from __future__ import annotations

from collections.abc import Mapping
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
    """What the steps of all operators with state stand on; see ``BucketStep``."""

    clocks: tuple[SourceClock, ...]
    chains: Mapping[int, tuple[bytes, ...]]
    attempt: CheckpointId
    store: ObjectStore


@dataclass
class Operators:
    """What is known of operators before the job, and what was put together for it.

    Attributes:
        clocks: How far each source is.
        chains: The parent's state files, for each operator and bucket.
        additions: What was added to the state of an operator after it began.
        steps: The operators with state, and what happens to a bucket of each.
        fed_by: The sources of each operator that takes records, by which it is checked. One that
            is given what another has made of them is not among them.
    """

    feeding: Feeding
    clocks: Mapping[str, SourceClock]
    chains: Mapping[OperatorId, Mapping[int, tuple[PartitionSnapshotEntry, ...]]]
    additions: Additions
    buckets: int
    attempt: CheckpointId
    store: ObjectStore = field(repr=False)
    steps: dict[OperatorId, BucketStep] = field(default_factory=dict)
    fed_by: dict[OperatorId, tuple[str, ...]] = field(default_factory=dict)

    def ground(self, operator: OperatorId, *inputs: Relation) -> Ground:
        """What the step of an operator is given beside its own.

        Its clocks are those of its own inputs, whose tasks tell it how far they came. Another
        source of the view would seem to stand still in the epoch, and to have gone on in the next:
        what ends in between would never be told.
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
        """What was added to its state after it began."""
        added = self.additions.get(operator)
        return growth_of(added) if added else None

    def advance(self, rows: DataFrame, operator: OperatorId, step: BucketStep) -> DataFrame:
        """What a step puts out of rows and the state of their buckets."""
        self.steps[operator] = step
        return advanced_state(rows, step, self.buckets)

    def count(self, operator: OperatorId, *inputs: Relation) -> None:
        """Have an operator counted that takes the records of some of its inputs."""
        raw = [each for each in inputs if not self.feeding.is_past_records(each)]
        if raw:
            self.fed_by[operator] = tuple(n for each in raw for n in self.feeding.sources_of(each))

    def count_where_asked_for(
        self, view: View, operator: OperatorId, source: Relation
    ) -> OperatorId | None:
        """Under which name a step without state counts records; None if none come to it."""
        if self.feeding.is_past_records(source):
            return None
        # What nothing asks for is not run, and counts nothing.
        if self.feeding.is_asked_for(view):
            self.count(operator, source)
        return operator
