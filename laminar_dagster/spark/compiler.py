"""Compiles a pipeline's views into one Spark job.

A frame has, beside the columns of its relation, those of the module ``columns``: where a row comes
from, whether it is a record or a report, and whether a filter dropped it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import reduce
from typing import Any, Final, Literal, assert_never

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructType

from laminar_dagster.config.contract_rules import ContractRules
from laminar_dagster.config.fingerprint import relations
from laminar_dagster.config.model import PipelineModel, View
from laminar_dagster.config.operators import id_of_input, id_of_part, id_of_side
from laminar_dagster.config.relations import (
    Explode,
    Join,
    Keeper,
    KeyedAggregate,
    Python,
    PythonKeyed,
    PythonRows,
    Query,
    Ranked,
    ReferenceJoin,
    ReferenceValue,
    Relation,
    Select,
    Stateful,
    TableInput,
    UnionAll,
    WindowAggregate,
)
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.core.ids import CheckpointId, OperatorId, SinkId
from laminar_dagster.core.manifest import PartitionSnapshotEntry
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.core.reference import ReferencePin
from laminar_dagster.spark.additions import Additions
from laminar_dagster.spark.aggregation_frames import (
    finished_groups,
    finished_ranks,
    finished_windows,
    inputs_of_records,
    partials_of_records,
)
from laminar_dagster.spark.blame import blaming
from laminar_dagster.spark.bucket_step import BucketStep, WindowStep
from laminar_dagster.spark.feeding import Feeding
from laminar_dagster.spark.join_frames import (
    finished_join,
    inputs_of_side,
    is_told_alone,
    rows_of_join,
    shape_of_join,
    terms_of_join,
)
from laminar_dagster.spark.join_step import JoinStep
from laminar_dagster.spark.keyed_shape import KeyedShape
from laminar_dagster.spark.keyed_step import KeyedStep
from laminar_dagster.spark.late_records import lateness_of_records
from laminar_dagster.spark.live_rows import LiveRows, united
from laminar_dagster.spark.operators import Operators
from laminar_dagster.spark.python_frames import inputs_of_operator, rows_of_model, rows_of_operator
from laminar_dagster.spark.row_relations import RowRelations
from laminar_dagster.spark.scan import Scan
from laminar_dagster.spark.source_frames import SourceFrames
from laminar_dagster.spark.staging import OWN, REPORT, StageStep
from laminar_dagster.spark.state_shape import StateShape
from laminar_dagster.spark.twins import partials_key, twins
from laminar_dagster.spark.watermarks import SourceClock

_REPORTS: Final = StructType().add(REPORT, StringType())


@dataclass
class Compiler:
    """Builds the job of one epoch.

    Attributes:
        chains: The parent's state files, for each operator and bucket.
        pins: The files of each reference table that the plan has pinned.
        additions: The partials added to the state of an operator after it began.
        operators: The operators of the job; filled by ``compile``.
    """

    spark: SparkSession
    model: PipelineModel
    clock: datetime
    scans: Mapping[str, Scan]
    clocks: Mapping[str, SourceClock]
    chains: Mapping[OperatorId, Mapping[int, tuple[PartitionSnapshotEntry, ...]]]
    additions: Additions
    sinks: Mapping[OperatorId, tuple[SinkId, ...]]
    buckets: int
    attempt: CheckpointId
    store: ObjectStore = field(repr=False)
    pins: Mapping[str, ReferencePin] = field(default_factory=dict)
    operators: Operators = field(init=False)
    cached: list[DataFrame] = field(default_factory=list)
    _frames: dict[str, DataFrame] = field(default_factory=dict)
    _states: dict[tuple[OperatorId, Keeper], DataFrame] = field(default_factory=dict)
    _lateness: int = 0
    _made: dict[Hashable, tuple[DataFrame, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find shared pre-aggregations, and build the view graph."""
        self._twins = twins(self.model)
        self._feeding = Feeding(self.model, self.sinks)
        self.operators = Operators(
            self._feeding,
            self.clocks,
            self.chains,
            self.additions,
            {name for name, scan in self.scans.items() if scan.splits},
            self.buckets,
            self.attempt,
            self.store,
        )
        self._rows = LiveRows(self.clock)
        self._widened = RowRelations(
            self._rows, self.operators, self.model.references, self.pins, self.store
        )
        self._sources = SourceFrames(
            self.spark, self.model, self.scans, self.operators.growth_of, self._shared
        )

    def compile(self) -> DataFrame:
        """Return one frame of reports; collecting it runs the whole epoch."""
        readers = self._feeding.readings()
        for source in self.model.sources:
            records = self._sources.read(source.source_id, readers[source.source_id])
            if records is not None:
                self._frames[source.source_id] = records
        reports = []
        contracts = {contract.view: contract.rules for contract in self.model.contracts}
        staged = self._feeding.staged_views()
        for view in self.model.views:
            with blaming(view):
                frame = self._query(view, view.query, OperatorId(view.name))
            is_staged = view in staged
            frame = self._shared(frame, readers[view.name] + is_staged)
            self._frames[view.name] = frame
            if not is_staged:
                continue
            self.operators.count(view.name, view.query)
            step = StageStep(
                view=view.name,
                sinks=self.sinks.get(view.name, ()),
                counts_records=not self._feeding.is_past_records(view.query),
                takes_back_first=self._feeding.tells_differences(view.query),
                contract=contracts.get(view.name, ContractRules()),
                attempt=self.attempt,
                store=self.store,
            )
            reports.append(frame.mapInArrow(step, _REPORTS))
        return reduce(DataFrame.union, reports)

    def mistakes(self) -> Iterator[InvalidConfig]:
        """Yield the errors that Spark finds in the views: types, arguments. Nothing is run."""
        for source in self.model.sources:
            self._frames[source.source_id] = self._sources.look(source.source_id)
        tables = {str(each.reference_id) for each in self.model.references}
        for view in self.model.views:
            if not set(view.reads) - tables <= set(self._frames):
                continue  # a view below has an error, which is reported already
            try:
                with blaming(view):
                    frame = self._query(view, view.query, OperatorId(view.name))
                    # Asking for the schema makes Spark Connect analyse the query now.
                    self._frames[view.name] = frame.select(frame.schema.names)
            except InvalidConfig as error:
                yield error
        yield from self._contract_mistakes()

    def _contract_mistakes(self) -> Iterator[InvalidConfig]:
        """Yield contract rules that no row can meet, because their column has another type."""
        contracts = {contract.view: contract for contract in self.model.contracts}
        for view, columns in self.columns():
            if view in contracts:
                kinds = {each.name: each.dataType.simpleString() for each in columns}
                for line, problem in contracts[view].rules.misfits(kinds):
                    yield InvalidConfig(f"{contracts[view].place.file}:{line}", problem)

    def columns(self) -> Iterator[tuple[OperatorId, StructType]]:
        """The columns of every view as staged; call ``mistakes`` first, which builds the frames."""
        for view in self.model.views:
            frame = self._frames.get(view.name)
            if frame is not None:
                own = [each for each in frame.schema if each.name not in OWN]
                yield view.name, StructType(own)

    def _shared(self, frame: DataFrame, readers: int) -> DataFrame:
        if readers < 2:
            return frame
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self.cached.append(kept)
        return kept

    # --- relations ------------------------------------------------------------------------------

    def _relation(self, view: View, relation: Relation, operator: OperatorId) -> DataFrame:
        match relation:
            case TableInput():
                return self._table(relation.name)
            case ReferenceJoin() | ReferenceValue() | Explode():
                source = self._relation(view, relation.source, operator)
                return self._widened.frame(source, view, relation, operator)
            case Join():
                return self._once(view, relation, operator)
            case _:
                return self._query(view, relation, operator)

    def _table(self, name: str) -> DataFrame:
        """The frame of a source or view, with late records up to ``_lateness`` (``_taking``)."""
        if not self._lateness:
            return self._frames[name]
        late = self._sources.with_late(name, self._lateness)
        if late is not None:
            return late
        below = self._feeding.view(name)
        if below and not self._feeding.is_past_records(below.query):
            # Build the view anew with late records: the frame for its other readers has none.
            return self._query(below, below.query, OperatorId(name))
        return self._frames[name]

    @contextmanager
    def _taking(self, lateness: int) -> Iterator[None]:
        outside, self._lateness = self._lateness, lateness
        try:
            yield
        finally:
            self._lateness = outside

    def _query(self, view: View, query: Query | Python, operator: OperatorId) -> DataFrame:
        match query:
            case Select():
                return self._select(view, query, operator)
            case WindowAggregate() | KeyedAggregate() | Ranked():
                return self._once(view, query, operator)
            case UnionAll(parts):
                return self._union(view, parts, operator)
            case PythonRows():
                return self._function(view, query)
            case PythonKeyed():
                return self._operator(view, query, operator)
            case _:
                assert_never(query)

    def _select(self, view: View, query: Select, operator: OperatorId) -> DataFrame:
        frame = self._rows.filtered(self._relation(view, query.source, operator), query.where)
        return self._rows.projected(frame, query.columns)

    def _union(
        self, view: View, parts: tuple[Select | Stateful, ...], operator: OperatorId
    ) -> DataFrame:
        return united(
            [
                self._query(view, part, id_of_part(operator, index))
                for index, part in enumerate(parts)
            ]
        )

    # --- aggregations ---------------------------------------------------------------------------

    def _once(self, view: View, query: Stateful | Join, operator: OperatorId) -> DataFrame:
        """The frame of a relation with state, computed once however often the view reads it."""
        found = self._states.get((view.name, query))
        if found is None:
            frame = self._stateful(view, query, operator)
            readers = sum(each == query for each in relations(view.query))
            found = self._states[view.name, query] = self._shared(frame, readers)
        return found

    def _stateful(self, view: View, query: Stateful | Join, operator: OperatorId) -> DataFrame:
        match query:
            case WindowAggregate():
                return self._window(view, query, operator)
            case KeyedAggregate():
                return self._keyed(view, query, operator)
            case Ranked():
                return finished_ranks(self._changed(view, query, operator, "changes")[0], query)
            case Join():
                return self._join(view, query, operator)
            case _:
                assert_never(query)

    def _window(self, view: View, query: WindowAggregate, operator: OperatorId) -> DataFrame:
        partials, shape = self._partials(view, query, operator)
        assert isinstance(shape, StateShape)
        step = WindowStep(
            shape=shape,
            **self.operators.ground(operator, query.source),
            lateness=query.lateness_micros,
        )
        closed = self._advanced(partials, query, operator, step)
        finished = finished_windows(closed, query, shape)
        return self._rows.projected(self._rows.filtered(finished, query.having), query.columns)

    def _keyed(self, view: View, query: KeyedAggregate, operator: OperatorId) -> DataFrame:
        changed, shape = self._changed(view, query, operator, query.emits)
        finished = finished_groups(changed, query, shape)
        return self._rows.projected(self._rows.filtered(finished, query.having), query.columns)

    def _join(self, view: View, join: Join, operator: OperatorId) -> DataFrame:
        left, right = (self._side(view, join, number, operator) for number in range(2))
        shape = shape_of_join(operator, join, (left, right))
        sources = (join.left.source, join.right.source)
        self.operators.count(operator, *sources)
        step = JoinStep(
            shape=shape,
            **self.operators.ground(operator, *sources),
            terms=terms_of_join(join),
        )
        are_raw = (
            not self._feeding.is_past_records(sources[0]),
            not self._feeding.is_past_records(sources[1]),
        )
        rows = rows_of_join((left, right), join, shape, are_raw)
        told = finished_join(self.operators.advance(rows, operator, step), join)
        return self._rows.filtered(told, join.condition)

    def _side(self, view: View, join: Join, number: int, operator: OperatorId) -> DataFrame:
        side = join.sides[number]
        frame = self._relation(view, side.source, id_of_side(operator, number))
        if not is_told_alone(join, number):
            frame = self._rows.filtered(frame, side.where)
        return self._rows.projected(frame, inputs_of_side(join, number))

    def _changed(
        self,
        view: View,
        query: KeyedAggregate | Ranked,
        operator: OperatorId,
        emits: Literal["changes", "close"],
    ) -> tuple[DataFrame, KeyedShape]:
        partials, shape = self._partials(view, query, operator)
        assert isinstance(shape, KeyedShape)
        step = KeyedStep(
            shape=shape,
            **self.operators.ground(operator, query.source),
            lateness=_lateness_of(query),
            emits=emits,
        )
        return self._advanced(partials, query, operator, step), shape

    def _partials(
        self, view: View, query: Stateful, operator: OperatorId
    ) -> tuple[DataFrame, StateShape | KeyedShape]:
        early = self._sources.partials(operator)
        if early:
            return early
        growth = self.operators.growth_of(operator)
        return self._made_once(
            query,
            operator,
            lambda: partials_of_records(
                self._records(view, query, operator), query, operator, growth
            ),
        )

    def _made_once(
        self,
        query: Stateful,
        operator: OperatorId,
        make: Callable[[], tuple[DataFrame, StateShape | KeyedShape]],
    ) -> tuple[DataFrame, StateShape | KeyedShape]:
        """The partials of an operator, shared with others that have equal pre-aggregation."""
        key, growth = partials_key(query), self.operators.growth_of(operator)
        if key is None or self._twins[key] < 2:
            return make()
        found = self._made.get((key, growth))
        if found is None:
            frame, shape = make()
            self._made[key, growth] = self._shared(frame, self._twins[key]), shape
            return self._made[key, growth][0], shape
        self._sources.echoes.add(operator)
        frame, shape = found
        return frame, replace(shape, operator=operator)

    def _records(self, view: View, query: Stateful, operator: OperatorId) -> DataFrame:
        with self._taking(lateness_of_records(query)):
            source = self._relation(view, query.source, id_of_input(operator))
        return self._rows.projected(
            self._rows.filtered(source, query.where), inputs_of_records(query)
        )

    def _advanced(
        self,
        partials: DataFrame,
        query: Stateful,
        operator: OperatorId,
        step: BucketStep,
    ) -> DataFrame:
        if operator not in self._sources.echoes:
            self.operators.count(operator, query.source)
        return self.operators.advance(partials, operator, step)

    # --- Python ---------------------------------------------------------------------------------

    def _function(self, view: View, query: PythonRows) -> DataFrame:
        self.operators.count_where_asked_for(view, view.name, query.source)
        return rows_of_model(self._frames[query.source.name], view.name, query)

    def _operator(self, view: View, query: PythonKeyed, operator: OperatorId) -> DataFrame:
        records = self._rows.projected(self._frames[query.source.name], inputs_of_operator(query))
        return rows_of_operator(records, query, operator, self.operators)


def _lateness_of(query: Stateful) -> int:
    return 0 if isinstance(query, Ranked) else query.lateness_micros
