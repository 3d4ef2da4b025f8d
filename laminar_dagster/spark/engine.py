"""The engine: carries out an epoch's plan as one bounded Spark job."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, assert_never

import pyarrow as pa
from msgspec import structs
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructType

from laminar_dagster.config.model import PipelineModel, SourceTable
from laminar_dagster.core import layout
from laminar_dagster.core.document import FORMAT_VERSION, to_utc_microseconds
from laminar_dagster.core.errors import ComputeFailed, InvalidConfig, InvalidState
from laminar_dagster.core.ids import GENESIS, CheckpointId, OperatorId, SinkId, SourceId
from laminar_dagster.core.manifest import (
    CheckpointManifest,
    DeadLetterEntry,
    OperatorSnapshotEntry,
    PartitionSnapshotEntry,
    SinkEntry,
    SourceOffsetEntry,
)
from laminar_dagster.core.offsets import lane_of
from laminar_dagster.core.plan import EpochPlan, SourcePlan
from laminar_dagster.core.ports import EpochOutput, Examination, ObjectStore, Source
from laminar_dagster.core.upkeep import Promotion, Rescale, Upkeep
from laminar_dagster.core.upkeep_output import output_of_upkeep
from laminar_dagster.spark.additions import additions_since
from laminar_dagster.spark.blame import gist
from laminar_dagster.spark.columns import CONTROL, quoted
from laminar_dagster.spark.compiler import Compiler
from laminar_dagster.spark.java_process import naming_lost_java
from laminar_dagster.spark.lateness import AheadBound
from laminar_dagster.spark.reports import EpochReports, sort_out
from laminar_dagster.spark.rescale import sort_out_spread, spread_job
from laminar_dagster.spark.scan import Scan, Split
from laminar_dagster.spark.session import SessionFactory, active, epoch_session
from laminar_dagster.spark.watermarks import Lane, SourceClock, earliest

PIECES_PER_LANE: Final = 10_000
NOBODY: Final = CheckpointId.from_parts(0, 0)


@dataclass
class SparkEngine:
    """Runs the views of a pipeline.

    Attributes:
        session: Gives the Spark session; called when the first epoch is computed.
    """

    model: PipelineModel
    store: ObjectStore
    sources: Mapping[SourceId, Source]
    session: SessionFactory = field(repr=False)

    def compute(
        self, plan: EpochPlan, parent: CheckpointManifest | None, attempt: CheckpointId
    ) -> EpochOutput:
        """See ``Engine.compute``."""
        with naming_lost_java():
            if plan.upkeep and parent:
                return self._upkeep(plan, plan.upkeep, parent, attempt)
            with self._session() as spark:
                compiler = self._compiler(spark, plan, parent, attempt)
                reports = _run(compiler)
            return self._output(plan, parent, compiler, reports)

    def _upkeep(
        self,
        plan: EpochPlan,
        upkeep: Upkeep,
        parent: CheckpointManifest,
        attempt: CheckpointId,
    ) -> EpochOutput:
        """Run an upkeep epoch, which changes state and reads no source."""
        match upkeep:
            case Rescale():
                return self._rescale(plan, parent, attempt)
            case Promotion():
                # Needs no Spark: ``runtime.branches.promotion`` does it.
                raise InvalidState("the engine", "for records and rescales", "promote a branch")
            case _:
                assert_never(upkeep)

    def examine(self) -> Examination:
        """See ``Engine.examine``."""
        nothing = EpochPlan(
            version=FORMAT_VERSION,
            plan_id=NOBODY,
            pipeline=self.model.config.name,
            epoch=GENESIS.next(),
            clock=datetime.fromtimestamp(0, UTC),
            fingerprint=self.model.fingerprint,
            parent=None,
            sources=(),
            sinks=(),
        )
        with naming_lost_java(), self._session() as spark:
            compiler = self._compiler(spark, nothing, None, NOBODY)
            mistakes = tuple(compiler.mistakes())
            columns = {
                view: to_arrow_schema(kinds, timezone="UTC") for view, kinds in compiler.columns()
            }
        return Examination(mistakes, columns)

    # --- input ----------------------------------------------------------------------------------

    @contextmanager
    def _session(self) -> Iterator[SparkSession]:
        """The active session for an epoch; also used to parse the types of declared columns."""
        with active(epoch_session(self.session(), self.model.config.spark)) as spark:
            yield spark

    def _compiler(
        self,
        spark: SparkSession,
        plan: EpochPlan,
        parent: CheckpointManifest | None,
        attempt: CheckpointId,
    ) -> Compiler:
        planned = {source.source_id: source for source in plan.sources}
        additions = additions_since(parent, self.model, plan.epoch, self.store)
        # A source added to the pipeline after the plan was made is not in it, and not read yet.
        clocks = {name: _clock(name, planned.get(name), parent) for name in self.sources}
        return Compiler(
            spark=spark,
            model=self.model,
            clock=plan.clock,
            scans={
                str(name): self._scan(name, planned.get(name), plan.clock, clocks[name], attempt)
                for name in self.sources
            },
            clocks={str(name): clock for name, clock in clocks.items()},
            chains=_chains(parent),
            additions=additions,
            sinks=self._sinks_of_views(plan),
            buckets=self.model.config.buckets,
            attempt=attempt,
            store=self.store,
            pins={str(pin.reference_id): pin for pin in plan.references},
        )

    def _table(self, source_id: SourceId) -> SourceTable:
        return next(each for each in self.model.sources if each.source_id == source_id)

    def _scan(
        self,
        source_id: SourceId,
        plan: SourcePlan | None,
        now: datetime,
        clock: SourceClock,
        attempt: CheckpointId,
    ) -> Scan:
        table = self._table(source_id)
        source = self.sources[source_id]
        splits = []
        ranges = plan.ranges if plan else ()
        for index, (lane, part) in enumerate(zip(clock.lanes, ranges, strict=True)):
            if part.is_empty:
                continue
            # Lateness depends on the order within a partition: one task reads it from end to end.
            pieces = (part,) if table.watermark else source.splits(part)
            splits += [
                Split(index * PIECES_PER_LANE + number, piece, lane.watermark)
                for number, piece in enumerate(pieces)
            ]
        return Scan(
            source_id=source_id,
            schema=_arrow_schema(table),
            reader=source.reader(),
            splits=tuple(splits),
            time_column=table.watermark.column if table.watermark else None,
            delay=table.watermark.delay_micros if table.watermark else 0,
            floor=clock.watermark,
            bound=_bound(plan, now),
            fail_on_bad=self.model.config.on_bad_record == "fail",
            store=self.store,
            attempt=attempt,
        )

    def _sinks_of_views(self, plan: EpochPlan) -> dict[OperatorId, tuple[SinkId, ...]]:
        joined = {sink.sink_id for sink in plan.sinks}
        found: defaultdict[OperatorId, tuple[SinkId, ...]] = defaultdict(tuple)
        for sink in self.model.sinks:
            if sink.sink_id in joined:
                found[sink.view] = (*found[sink.view], sink.sink_id)
        return dict(found)

    # --- upkeep ---------------------------------------------------------------------------------

    def _rescale(
        self, plan: EpochPlan, parent: CheckpointManifest, attempt: CheckpointId
    ) -> EpochOutput:
        """Redistribute the state over the number of buckets that the pipeline has now."""
        with self._session() as spark:
            compiler = self._compiler(spark, plan, parent, attempt)
            with _telling_errors(compiler):
                compiler.compile()
                job = spread_job(spark, compiler.operators.steps, compiler.buckets)
                rows = job.where(f"{CONTROL} IS NOT NULL").collect() if job else []
        spread = sort_out_spread([row[0] for row in rows], attempt)
        operators = _operator_entries(compiler, spread.files)
        return output_of_upkeep(plan, parent, operators, spread.violations)

    # --- output ---------------------------------------------------------------------------------

    def _output(
        self,
        plan: EpochPlan,
        parent: CheckpointManifest | None,
        compiler: Compiler,
        reports: EpochReports,
    ) -> EpochOutput:
        sources = tuple(
            _source_entry(source, parent, compiler.clocks[source.source_id], reports)
            for source in plan.sources
        )
        splits = {name: len(scan.splits) for name, scan in compiler.scans.items()}
        return EpochOutput(
            operators=_operator_entries(compiler, reports.states),
            sources=sources,
            sinks=tuple(
                SinkEntry(
                    sink_id=sink.sink_id,
                    joined_at=sink.joined_at,
                    files=reports.staged.get(sink.sink_id, ()),
                    output_sha256=_digest(reports, sink.sink_id),
                    schema_fingerprint=reports.schemas.get(sink.sink_id),
                )
                for sink in plan.sinks
            ),
            dead_letters=_dead_letters(reports),
            counts=reports.counts(compiler.operators.fed_by),
            watermark=earliest(source.watermark for source in sources),
            violations=(*reports.broken, *reports.miscounts(compiler.operators.fed_by, splits)),
        )


def _run(compiler: Compiler) -> EpochReports:
    with _telling_errors(compiler):
        rows = compiler.compile().collect()
    return sort_out((row[0] for row in rows), compiler.attempt)


@contextmanager
def _telling_errors(compiler: Compiler) -> Iterator[None]:
    """Error translation: raise Spark's errors about a job as errors of this package."""
    try:
        yield
    except (AnalysisException, ParseException) as error:
        places = ", ".join(str(view.place) for view in compiler.model.views)
        raise InvalidConfig(places, gist(error), "mend the query") from None
    except PySparkException as error:
        raise ComputeFailed("the epoch's job", gist(error)) from error
    finally:
        for frame in compiler.cached:
            frame.unpersist()


def _operator_entries(
    compiler: Compiler,
    files: Mapping[OperatorId, tuple[PartitionSnapshotEntry, ...]],
) -> tuple[OperatorSnapshotEntry, ...]:
    return tuple(
        OperatorSnapshotEntry(
            operator_id=operator,
            operator_type=step.operator_type,
            state_backend="arrow",
            partitions=_in_order(files.get(operator, ())),
            schema_fingerprint=step.shape.fingerprint,
            added=compiler.additions.get(operator, ()),
        )
        for operator, step in sorted(compiler.operators.steps.items())
    )


def _arrow_schema(table: SourceTable) -> pa.Schema:
    declared = ", ".join(f"{quoted(column.name)} {column.type}" for column in table.columns)
    columns = DataType.fromDDL(declared)
    assert isinstance(columns, StructType)
    return to_arrow_schema(columns, timezone="UTC")


def _bound(plan: SourcePlan | None, now: datetime) -> AheadBound | None:
    if plan is None or plan.max_ahead_micros is None:
        return None
    return AheadBound(to_utc_microseconds(now), plan.max_ahead_micros)


def _clock(
    source_id: SourceId, plan: SourcePlan | None, parent: CheckpointManifest | None
) -> SourceClock:
    before = _entry_of(source_id, parent)
    marks = {}
    if before and before.watermarks:
        lanes = (lane_of(position) for position in before.positions)
        marks = dict(zip(lanes, before.watermarks, strict=True))
    idle = {lane_of(position) for position in (plan.idle if plan else ())}
    return SourceClock(
        source_id=source_id,
        watermark=before.watermark if before else None,
        lanes=tuple(
            Lane(
                part=index * PIECES_PER_LANE,
                watermark=marks.get(lane_of(part.start)),
                is_idle=lane_of(part.start) in idle,
            )
            for index, part in enumerate(plan.ranges if plan else ())
        ),
    )


def _entry_of(source: SourceId, parent: CheckpointManifest | None) -> SourceOffsetEntry | None:
    entries = parent.sources if parent else ()
    return next((entry for entry in entries if entry.source_id == source), None)


def _chains(
    parent: CheckpointManifest | None,
) -> dict[OperatorId, dict[int, tuple[PartitionSnapshotEntry, ...]]]:
    """The parent's state files by operator and bucket; each names the checkpoint that wrote it."""
    if parent is None:
        return {}
    chains: dict[OperatorId, dict[int, tuple[PartitionSnapshotEntry, ...]]] = {}
    for operator in parent.operators:
        buckets: defaultdict[int, tuple[PartitionSnapshotEntry, ...]] = defaultdict(tuple)
        for entry in operator.partitions:
            owned = structs.replace(entry, origin=parent.origin_of(entry))
            buckets[entry.partition_id] = (*buckets[entry.partition_id], owned)
        chains[operator.operator_id] = dict(buckets)
    return chains


def _in_order(
    entries: tuple[PartitionSnapshotEntry, ...],
) -> tuple[PartitionSnapshotEntry, ...]:
    """Sort by partition, then by age; the file of this epoch has no origin yet and is last."""
    return tuple(
        sorted(
            entries,
            key=lambda entry: (
                entry.partition_id,
                entry.origin is None,
                entry.origin.epoch if entry.origin else 0,
            ),
        )
    )


def _source_entry(
    plan: SourcePlan, parent: CheckpointManifest | None, clock: SourceClock, reports: EpochReports
) -> SourceOffsetEntry:
    before = _entry_of(plan.source_id, parent)
    splits = reports.of(plan.source_id)
    seen = {split.part: split.watermark for split in splits}
    return SourceOffsetEntry(
        source_id=plan.source_id,
        positions=tuple(part.end for part in plan.ranges),
        path=layout.offsets_path(plan.source_id),
        watermarks=clock.lane_watermarks(seen),
        watermark=clock.advance(seen),
        gaps=(*(before.gaps if before else ()), *plan.gaps),
        schema_ids=tuple(sorted({each for split in splits for each in split.schema_ids})),
        reading=reports.reading(plan.source_id) if splits else None,
    )


def _dead_letters(reports: EpochReports) -> tuple[DeadLetterEntry, ...]:
    sources = sorted({split.source for split in reports.splits if split.files})
    return tuple(
        DeadLetterEntry(
            source_id=SourceId(source),
            files=tuple(file for split in reports.of(source) for file in split.files),
        )
        for source in sources
    )


def _digest(reports: EpochReports, sink: SinkId) -> str:
    """A digest of a sink's output, over its files by name: the same for any number of tasks."""
    lines = [f"{file.path} {file.sha256}" for file in reports.staged.get(sink, ())]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
