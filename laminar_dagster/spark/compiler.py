"""A pipeline's views as one Spark job.

A frame carries, beside the columns of its relation, ``_part`` (which partition of the source or
bucket of the state a row belongs to), ``_control`` (not null: no record, but a report on its way to
the driver) and ``_keep`` (false: a filter dropped it; it travels on to be counted). Expressions are
evaluated for live rows only, as SQL demands of what stands behind a WHERE.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from typing import Final, assert_never

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from laminar_dagster.config.model import (
    PipelineModel,
    Projection,
    Query,
    Relation,
    Select,
    TableInput,
    UnionAll,
    View,
    WindowAggregate,
)
from laminar_dagster.config.operators import id_of_input, id_of_part, partials_of
from laminar_dagster.core.document import encode_part, to_utc_microseconds
from laminar_dagster.core.errors import ComputeFailed
from laminar_dagster.core.ids import CheckpointId, OperatorId, SinkId
from laminar_dagster.core.manifest import PartitionSnapshotEntry
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.spark.aggregates import finished_sql, partial_column
from laminar_dagster.spark.scan import CONTROL, PART, Scan, scan_frame
from laminar_dagster.spark.staging import REPORT, StageStep
from laminar_dagster.spark.state_chain import END, KeyColumn, StateShape
from laminar_dagster.spark.watermarks import SourceClock
from laminar_dagster.spark.window_step import (
    BUCKET,
    KEEP,
    SEQUENCE,
    TIME,
    BucketStep,
    PartialStep,
)

_EPOCH_TIME: Final = re.compile(r"\bepoch_time\s*\(\s*\)", re.IGNORECASE)
# More than any source has parts: files are named after parts, and must not share a name.
_PARTS_APART: Final = 1_000_000_000_000
_LIVE: Final = f"({KEEP} AND {CONTROL} IS NULL)"


@dataclass
class Compiler:
    """Builds the job of one epoch.

    Attributes:
        chains: The parent's state files, for each operator and bucket.
        operators: The operators with state.
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
    operators: dict[OperatorId, StateShape] = field(default_factory=dict)
    fed_by: dict[OperatorId, tuple[str, ...]] = field(default_factory=dict)
    cached: list[DataFrame] = field(default_factory=list)
    _frames: dict[str, DataFrame] = field(default_factory=dict)

    def compile(self) -> DataFrame:
        """One frame of reports, whose collection runs the whole epoch."""
        readers = Counter(name for view in self.model.views for name in inputs_of(view.query))
        for source in self.model.sources:
            frame = scan_frame(self.spark, self.scans[source.source_id])
            frame = frame.selectExpr("*", f"{CONTROL} IS NULL AS {KEEP}")
            self._frames[source.source_id] = self._shared(frame, readers[source.source_id])
        reports = []
        contracts = {contract.view: contract.yaml for contract in self.model.contracts}
        for view in self.model.views:
            frame = self._query(view, view.query, OperatorId(view.name))
            frame = self._shared(frame, readers[view.name] + 1)
            self._frames[view.name] = frame
            counts_records = not self._has_window(view.query)
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
            case WindowAggregate():
                return self._window(view, query, operator)
            case UnionAll(parts):
                return self._union(view, parts, operator)
            case _:
                assert_never(query)

    def _select(self, view: View, query: Select, operator: OperatorId) -> DataFrame:
        frame = self._filtered(self._relation(view, query.source, operator), query.where)
        return self._projected(frame, query.columns)

    def _union(
        self, view: View, parts: tuple[Select | WindowAggregate, ...], operator: OperatorId
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

    # --- windows --------------------------------------------------------------------------------

    def _window(self, view: View, query: WindowAggregate, operator: OperatorId) -> DataFrame:
        source = self._relation(view, query.source, id_of_input(operator))
        records = self._arguments(self._filtered(source, query.where), query)
        shape, schema = self._shape(records, query, operator)
        self.operators[operator] = shape
        if not self._has_window(query.source):
            self.fed_by[operator] = self._sources_of(query)
        step = PartialStep(
            shape=shape,
            size=query.window.size_micros,
            slide=query.window.slide_micros,
            buckets=self.buckets,
            schema=schema,
        )
        partials = records.mapInArrow(step, from_arrow_schema(schema))
        bucket_schema = _without(schema, BUCKET, SEQUENCE)
        bucket_step = BucketStep(
            shape=shape,
            clocks=tuple(self.clocks[name] for name in sorted(set(self._sources_of(view.query)))),
            chains={
                bucket: tuple(encode_part(entry) for entry in entries)
                for bucket, entries in self.chains.get(operator, {}).items()
            },
            schema=bucket_schema,
            attempt=self.attempt,
            store=self.store,
        )
        every = partials.unionByName(self._markers(), allowMissingColumns=True)
        # Spark counts the arguments of what it is given, and takes ``self`` for one.
        closed = every.groupBy(BUCKET).applyInArrow(
            lambda table: bucket_step(table), from_arrow_schema(bucket_schema)
        )
        return self._emitted(closed, query, records)

    def _arguments(self, frame: DataFrame, query: WindowAggregate) -> DataFrame:
        columns = [Projection(TIME, f"unix_micros({query.window.time})"), *query.keys]
        columns += [Projection(name, sql) for sql, name in _argument_names(query).items()]
        records = self._projected(frame, tuple(columns))
        names = [key.name for key in query.keys]
        floats = {
            each.name
            for each in records.schema.fields
            if each.name in names and each.dataType.typeName() in ("float", "double")
        }
        # SQL knows one zero; bytes know two.
        keys = [f"IF(`{n}` = 0, `{n}` * 0, `{n}`)" if n in floats else f"`{n}`" for n in names]
        bucket = f"pmod(xxhash64({', '.join(keys)}), {self.buckets})" if keys else "0"
        others = [f"`{name}`" for name in records.columns if name not in names]
        return records.selectExpr(
            *others,
            *(f"{key} AS `{name}`" for key, name in zip(keys, names, strict=True)),
            f"CAST({bucket} AS BIGINT) AS {BUCKET}",
        )

    def _shape(
        self, records: DataFrame, query: WindowAggregate, operator: OperatorId
    ) -> tuple[StateShape, pa.Schema]:
        types = _arrow_types(records)
        arguments = _argument_types(query, records)
        keys = tuple(key.name for key in query.keys)
        for key in keys:
            if pa.types.is_nested(types[key]):
                reason = f"GROUP BY a value of type {types[key]} is not supported"
                raise ComputeFailed(operator, reason)
        wanted = [partial for each in query.aggregates for partial in partials_of(each)]
        partials = tuple(
            partial_column(each, *arguments[each.argument]) for each in dict.fromkeys(wanted)
        )
        fields = [(BUCKET, pa.int64()), (PART, pa.int64()), (SEQUENCE, pa.int64())]
        fields += [(CONTROL, pa.string()), (END, pa.int64())]
        fields += [(key, types[key]) for key in keys]
        fields += [(column.name, column.arrow_type) for column in partials]
        columns = tuple(KeyColumn(key.name, key.sql, types[key.name]) for key in query.keys)
        return StateShape(operator, columns, partials), pa.schema(fields)

    def _emitted(self, closed: DataFrame, query: WindowAggregate, records: DataFrame) -> DataFrame:
        arguments = _argument_types(query, records)
        size = query.window.size_micros
        frame = closed.selectExpr(
            PART,
            CONTROL,
            f"{CONTROL} IS NULL AS {KEEP}",
            f"timestamp_micros({END} - {size}) AS window_start",
            f"timestamp_micros({END}) AS window_end",
            *(f"`{key.name}`" for key in query.keys),
            *(
                f"{finished_sql(each, arguments[each.argument][1])} AS `{each.name}`"
                for each in query.aggregates
            ),
        )
        return self._projected(self._filtered(frame, query.having), query.columns)

    def _markers(self) -> DataFrame:
        """One row for each bucket, so that windows close also where no record came."""
        return self.spark.range(self.buckets).selectExpr(f"id AS {BUCKET}")

    def _has_window(self, query: Relation) -> bool:
        """Whether what comes out are results of windows, here or in a view below."""
        views = {view.name: view for view in self.model.views}
        if any(isinstance(each, WindowAggregate) for each in _below(query)):
            return True
        below = (views[OperatorId(name)] for name in inputs_of(query) if name in views)
        return any(self._has_window(view.query) for view in below)

    def _sources_of(self, query: Query) -> tuple[str, ...]:
        """The sources that feed a query, through other views too, each as often as it is read."""
        views = {view.name: view for view in self.model.views}
        found: list[str] = []
        for name in inputs_of(query):
            below = views.get(OperatorId(name))
            found += self._sources_of(below.query) if below else (name,)
        return tuple(found)


def _argument_names(query: WindowAggregate) -> dict[str, str]:
    """The columns that carry the arguments of aggregates, by what they hold; each once."""
    texts = (each.argument for each in query.aggregates if each.argument is not None)
    return {text: f"_x{number}" for number, text in enumerate(dict.fromkeys(texts))}


def _argument_types(
    query: WindowAggregate, records: DataFrame
) -> dict[str | None, tuple[str | None, pa.DataType | None]]:
    """For each argument its column and its type; nothing for that of COUNT(*)."""
    types = _arrow_types(records)
    found: dict[str | None, tuple[str | None, pa.DataType | None]] = {None: (None, None)}
    for text, name in _argument_names(query).items():
        found[text] = (name, types[name])
    return found


def _arrow_types(frame: DataFrame) -> dict[str, pa.DataType]:
    return {each.name: each.type for each in to_arrow_schema(frame.schema, timezone="UTC")}


def inputs_of(query: Relation) -> Iterator[str]:
    """The sources and views that a query reads, each as often as it does."""
    for relation in _below(query):
        if isinstance(relation, TableInput):
            yield relation.name


def _below(relation: Relation) -> Iterator[Relation]:
    yield relation
    match relation:
        case TableInput():
            return
        case UnionAll(parts):
            for part in parts:
                yield from _below(part)
        case Select() | WindowAggregate():
            yield from _below(relation.source)


def _without(schema: pa.Schema, *names: str) -> pa.Schema:
    return pa.schema([each for each in schema if each.name not in names])
