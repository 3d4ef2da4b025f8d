"""A pipeline's views as one Spark job.

A frame carries, beside the columns of its relation, those of ``columns``: where a row comes from,
whether it is a record or a report, and whether a filter dropped it. Expressions are evaluated for
live rows only, as SQL demands of what stands behind a WHERE.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import reduce
from typing import Final, Literal, assert_never

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from laminar_dagster.config.fingerprint import relations
from laminar_dagster.config.model import (
    KeyedAggregate,
    PipelineModel,
    Projection,
    Query,
    Ranked,
    Relation,
    Select,
    Stateful,
    TableInput,
    UnionAll,
    View,
    WindowAggregate,
)
from laminar_dagster.config.operators import id_of_input, id_of_part, stateful_operators
from laminar_dagster.core.document import encode_part, to_utc_microseconds
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.core.ids import CheckpointId, OperatorId, SinkId
from laminar_dagster.core.manifest import PartitionSnapshotEntry
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.spark.aggregation_frames import (
    advanced_state,
    finished_groups,
    finished_ranks,
    finished_windows,
    inputs_of_records,
    keyed_partials_of_records,
    partials_of_records,
    partials_of_scan,
)
from laminar_dagster.spark.aggregation_shapes import WrongType
from laminar_dagster.spark.bucket_step import BucketStep, WindowStep
from laminar_dagster.spark.columns import CONTROL, EARLY, KEEP, PART, quoted
from laminar_dagster.spark.early_partials import EarlyWindow
from laminar_dagster.spark.early_windows import early_window
from laminar_dagster.spark.keyed_shape import KeyedShape
from laminar_dagster.spark.keyed_step import KeyedStep
from laminar_dagster.spark.scan import Scan, scan_frame
from laminar_dagster.spark.staging import OWN, REPORT, StageStep
from laminar_dagster.spark.state_shape import StateShape
from laminar_dagster.spark.watermarks import SourceClock

_EPOCH_TIME: Final = re.compile(r"\bepoch_time\s*\(\s*\)", re.IGNORECASE)
# The codes that Spark puts around its messages: for programs, not for people.
_CODES: Final = re.compile(r"^\[[A-Z_.0-9]+\] | SQLSTATE: \w+.*$")
# More than any source has parts: files are named after parts, and must not share a name.
_PARTS_APART: Final = 1_000_000_000_000
_LIVE: Final = f"({KEEP} AND {CONTROL} IS NULL)"


@dataclass
class Compiler:
    """Builds the job of one epoch.

    Attributes:
        chains: The parent's state files, for each operator and bucket.
        operators: The operators with state, and what happens to a bucket of each.
        fed_by: The sources of each operator that takes records, by which it is checked.
    """

    spark: SparkSession
    model: PipelineModel
    clock: datetime
    scans: Mapping[str, Scan]
    clocks: Mapping[str, SourceClock]
    chains: Mapping[OperatorId, Mapping[int, tuple[PartitionSnapshotEntry, ...]]]
    sinks: Mapping[OperatorId, tuple[SinkId, ...]]
    buckets: int
    attempt: CheckpointId
    store: ObjectStore = field(repr=False)
    operators: dict[OperatorId, BucketStep] = field(default_factory=dict)
    fed_by: dict[OperatorId, tuple[str, ...]] = field(default_factory=dict)
    cached: list[DataFrame] = field(default_factory=list)
    _frames: dict[str, DataFrame] = field(default_factory=dict)
    _scanned: dict[str, DataFrame] = field(default_factory=dict)
    _states: dict[tuple[OperatorId, Stateful], DataFrame] = field(default_factory=dict)
    _early: dict[OperatorId, tuple[str, int, EarlyWindow]] = field(default_factory=dict)

    def compile(self) -> DataFrame:
        """One frame of reports, whose collection runs the whole epoch."""
        readers = Counter(name for view in self.model.views for name in inputs_of(view.query))
        for source in self.model.sources:
            self._scan(source.source_id, readers[source.source_id])
        reports = []
        contracts = {contract.view: contract.yaml for contract in self.model.contracts}
        staged = self._staged_views()
        for view in self.model.views:
            with blaming(view):
                frame = self._query(view, view.query, OperatorId(view.name))
            is_staged = view in staged
            frame = self._shared(frame, readers[view.name] + is_staged)
            self._frames[view.name] = frame
            if not is_staged:
                continue
            counts_records = not self._has_state(view.query)
            if counts_records:
                self.fed_by[view.name] = self._sources_of(view.query)
            step = StageStep(
                view=view.name,
                sinks=self.sinks.get(view.name, ()),
                counts_records=counts_records,
                contract=contracts.get(view.name),
                attempt=self.attempt,
                store=self.store,
            )
            reports.append(frame.mapInArrow(step, f"{REPORT} STRING"))
        return reduce(DataFrame.union, reports)

    def _staged_views(self) -> tuple[View, ...]:
        """Views with an end of their own: a sink, a contract or state. Others only feed these."""
        contracts = {contract.view for contract in self.model.contracts}
        found = tuple(
            view
            for view in self.model.views
            if view.name in self.sinks or view.name in contracts or any(stateful_operators(view))
        )
        # Offsets move on also where nothing is published.
        return found or self.model.views

    def mistakes(self) -> Iterator[InvalidConfig]:
        """What Spark has against the views: types, arguments. Nothing is read or run."""
        for source in self.model.sources:
            scan = self.scans[source.source_id]
            records = scan_frame(self.spark, scan)
            self._frames[source.source_id] = records.selectExpr("*", f"{CONTROL} IS NULL AS {KEEP}")
        for view in self.model.views:
            if not set(view.reads) <= set(self._frames):
                continue  # what is wrong with the view below is told already
            try:
                with blaming(view):
                    frame = self._query(view, view.query, OperatorId(view.name))
                    # A session on a server looks at a query when it is asked about it.
                    self._frames[view.name] = frame.select(frame.schema.names)
            except InvalidConfig as error:
                yield error

    def columns(self) -> Iterator[tuple[OperatorId, StructType]]:
        """Of every view without a mistake, after these were looked for; as they are staged."""
        for view in self.model.views:
            frame = self._frames.get(view.name)
            if frame is not None:
                own = [each for each in frame.schema if each.name not in OWN]
                yield view.name, StructType(own)

    def _scan(self, source: str, readers: int) -> None:
        """Read a source once, for all that read it; aggregate where it is read what can be."""
        scan = self.scans[source]
        early = self._early_windows(source, scan.schema)
        for number, (operator, window) in enumerate(early.items()):
            self._early[operator] = (source, number, window)
        hands_on = readers > len(early)
        scan = replace(scan, early=tuple(early.values()), hands_on=hands_on)
        scanned = self._shared(scan_frame(self.spark, scan), readers)
        self._scanned[source] = scanned
        if hands_on:
            records = scanned.where(f"{EARLY} IS NULL") if early else scanned
            names = [quoted(name) for name in (*scan.schema.names, PART, CONTROL)]
            self._frames[source] = records.selectExpr(*names, f"{CONTROL} IS NULL AS {KEEP}")

    def _early_windows(self, source: str, schema: pa.Schema) -> dict[OperatorId, EarlyWindow]:
        found = {}
        for view in self.model.views:
            for operator, query in stateful_operators(view):
                if isinstance(query, WindowAggregate) and query.source == TableInput(source):
                    with blaming(view):
                        window = early_window(operator, query, schema)
                    if window:
                        found[operator] = window
        return found

    def _shared(self, frame: DataFrame, readers: int) -> DataFrame:
        if readers < 2:
            return frame
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self.cached.append(kept)
        return kept

    # --- relations ------------------------------------------------------------------------------

    def _relation(self, view: View, relation: Relation, operator: OperatorId) -> DataFrame:
        if isinstance(relation, TableInput):
            return self._frames[relation.name]
        return self._query(view, relation, operator)

    def _query(self, view: View, query: Query, operator: OperatorId) -> DataFrame:
        match query:
            case Select():
                return self._select(view, query, operator)
            case WindowAggregate() | KeyedAggregate() | Ranked():
                return self._once(view, query, operator)
            case UnionAll(parts):
                return self._union(view, parts, operator)
            case _:
                assert_never(query)

    def _select(self, view: View, query: Select, operator: OperatorId) -> DataFrame:
        frame = self._filtered(self._relation(view, query.source, operator), query.where)
        return self._projected(frame, query.columns)

    def _union(
        self, view: View, parts: tuple[Select | Stateful, ...], operator: OperatorId
    ) -> DataFrame:
        frames: list[DataFrame] = []
        for index, part in enumerate(parts):
            frame = self._query(view, part, id_of_part(operator, index))
            names = [name for name in frame.columns if name not in (PART, CONTROL, KEEP)]
            wanted = frames[0].columns[3:] if frames else names
            frames.append(
                frame.selectExpr(
                    f"{PART} + {index * _PARTS_APART} AS {PART}",
                    CONTROL,
                    KEEP,
                    *(f"`{old}` AS `{new}`" for old, new in zip(names, wanted, strict=True)),
                )
            )
        return reduce(DataFrame.union, frames)

    def _filtered(self, frame: DataFrame, where: str | None) -> DataFrame:
        if where is None:
            return frame
        # For the look that Spark takes at it: in a projection a text would pass for a condition.
        frame.where(self._sql(where))
        keep = f"{_LIVE} AND coalesce({self._sql(where)}, false)"
        others = [f"`{name}`" for name in frame.columns if name != KEEP]
        return frame.selectExpr(*others, f"{keep} AS {KEEP}")

    def _projected(self, frame: DataFrame, columns: tuple[Projection, ...]) -> DataFrame:
        return frame.selectExpr(PART, CONTROL, KEEP, *map(self._live, columns))

    def _live(self, column: Projection) -> str:
        return f"IF({_LIVE}, {self._sql(column.sql)}, NULL) AS `{column.name}`"

    def _sql(self, text: str) -> str:
        """``epoch_time()`` is the logical clock, and nothing else is a clock."""
        return _EPOCH_TIME.sub(f"timestamp_micros({to_utc_microseconds(self.clock)})", text)

    # --- aggregations ---------------------------------------------------------------------------

    def _once(self, view: View, query: Stateful, operator: OperatorId) -> DataFrame:
        """What keeps state is computed once, however often a view reads it."""
        found = self._states.get((view.name, query))
        if found is None:
            frame = self._stateful(view, query, operator)
            readers = sum(each == query for each in relations(view.query))
            found = self._states[view.name, query] = self._shared(frame, readers)
        return found

    def _stateful(self, view: View, query: Stateful, operator: OperatorId) -> DataFrame:
        match query:
            case WindowAggregate():
                return self._window(view, query, operator)
            case KeyedAggregate():
                return self._keyed(view, query, operator)
            case Ranked():
                return finished_ranks(self._changed(view, query, operator, "changes")[0], query)
            case _:
                assert_never(query)

    def _window(self, view: View, query: WindowAggregate, operator: OperatorId) -> DataFrame:
        partials, shape = self._partials(view, query, operator)
        step = WindowStep(
            shape, self._clocks(view), self._files(operator), self.attempt, self.store
        )
        closed = self._advanced(partials, query, operator, step)
        finished = finished_windows(closed, query, shape)
        return self._projected(self._filtered(finished, query.having), query.columns)

    def _keyed(self, view: View, query: KeyedAggregate, operator: OperatorId) -> DataFrame:
        changed, shape = self._changed(view, query, operator, query.emits)
        finished = finished_groups(changed, query, shape)
        return self._projected(self._filtered(finished, query.having), query.columns)

    def _changed(
        self,
        view: View,
        query: KeyedAggregate | Ranked,
        operator: OperatorId,
        emits: Literal["changes", "close"],
    ) -> tuple[DataFrame, KeyedShape]:
        records = self._records(view, query, operator)
        partials, shape = keyed_partials_of_records(records, query, operator)
        step = KeyedStep(
            shape=shape,
            clocks=self._clocks(view),
            chains=self._files(operator),
            attempt=self.attempt,
            store=self.store,
            emits=emits,
        )
        return self._advanced(partials, query, operator, step), shape

    def _partials(
        self, view: View, query: WindowAggregate, operator: OperatorId
    ) -> tuple[DataFrame, StateShape]:
        if operator in self._early:
            source, number, window = self._early[operator]
            return partials_of_scan(self._scanned[source], number, window)
        return partials_of_records(self._records(view, query, operator), query, operator)

    def _records(self, view: View, query: Stateful, operator: OperatorId) -> DataFrame:
        source = self._relation(view, query.source, id_of_input(operator))
        return self._projected(self._filtered(source, query.where), inputs_of_records(query))

    def _advanced(
        self, partials: DataFrame, query: Stateful, operator: OperatorId, step: BucketStep
    ) -> DataFrame:
        if not self._has_state(query.source):
            self.fed_by[operator] = self._sources_of(query)
        self.operators[operator] = step
        return advanced_state(partials, step, self.buckets)

    def _clocks(self, view: View) -> tuple[SourceClock, ...]:
        return tuple(self.clocks[name] for name in sorted(set(self._sources_of(view.query))))

    def _files(self, operator: OperatorId) -> dict[int, tuple[bytes, ...]]:
        return {
            bucket: tuple(encode_part(entry) for entry in entries)
            for bucket, entries in self.chains.get(operator, {}).items()
        }

    def _has_state(self, query: Relation) -> bool:
        """Whether what comes out are results of aggregations, here or in a view below."""
        views = {view.name: view for view in self.model.views}
        if any(
            isinstance(each, WindowAggregate | KeyedAggregate | Ranked) for each in relations(query)
        ):
            return True
        below = (views[OperatorId(name)] for name in inputs_of(query) if name in views)
        return any(self._has_state(view.query) for view in below)

    def _sources_of(self, query: Query) -> tuple[str, ...]:
        """The sources that feed a query, through other views too, each as often as it is read."""
        views = {view.name: view for view in self.model.views}
        found: list[str] = []
        for name in inputs_of(query):
            below = views.get(OperatorId(name))
            found += self._sources_of(below.query) if below else (name,)
        return tuple(found)


@contextmanager
def blaming(view: View) -> Iterator[None]:
    """What Spark has against a query, told as a mistake at the place where it is written."""
    try:
        yield
    except (AnalysisException, ParseException, WrongType) as error:
        raise InvalidConfig(str(view.place), gist(error), "mend the query") from None


def gist(error: Exception) -> str:
    """The line of Spark's message that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    # A traceback of a Python worker ends with the error; Spark's own messages begin with it.
    line = lines[-1] if "Traceback (most recent call last):" in lines else lines[0]
    return _CODES.sub("", line)


def inputs_of(query: Relation) -> Iterator[str]:
    """The sources and views that a query reads, each as often as it does."""
    for relation in relations(query):
        if isinstance(relation, TableInput):
            yield relation.name
