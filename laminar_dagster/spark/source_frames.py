"""Frames of a pipeline's sources; each source is read once for all of its readers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from laminar_dagster.config.model import PipelineModel
from laminar_dagster.config.operators import stateful_operators
from laminar_dagster.config.relations import Stateful, TableInput
from laminar_dagster.core.ids import OperatorId
from laminar_dagster.spark.aggregation_frames import partials_of_scan
from laminar_dagster.spark.blame import blaming
from laminar_dagster.spark.columns import CONTROL, EARLY, KEEP, LATE, PART, quoted
from laminar_dagster.spark.early_operators import early_operator
from laminar_dagster.spark.early_partials import EarlyOperator
from laminar_dagster.spark.growth import Growth
from laminar_dagster.spark.keyed_shape import KeyedShape
from laminar_dagster.spark.late_records import lateness_of_sources
from laminar_dagster.spark.scan import Scan, scan_frame
from laminar_dagster.spark.state_shape import StateShape
from laminar_dagster.spark.twins import partials_key

_IS_RECORD: Final = f"{CONTROL} IS NULL"


@dataclass
class SourceFrames:
    """Reads sources, and pre-aggregates in the scan for operators where that is possible.

    Attributes:
        growth: The partials added to the state of an operator after it began.
        share: Makes a frame that is computed once for the given number of readers.
        echoes: Operators that reuse the partials of another with equal pre-aggregation.
    """

    spark: SparkSession
    model: PipelineModel
    scans: Mapping[str, Scan]
    growth: Callable[[OperatorId], Growth | None]
    share: Callable[[DataFrame, int], DataFrame]
    echoes: set[OperatorId] = field(default_factory=set)
    _scanned: dict[str, DataFrame] = field(default_factory=dict)
    _early: dict[OperatorId, tuple[str, int, EarlyOperator]] = field(default_factory=dict)
    _with_late: dict[str, tuple[DataFrame, list[str]]] = field(default_factory=dict)

    def look(self, source: str) -> DataFrame:
        """A frame of a source, for Spark to analyse queries against; nothing is read."""
        records = scan_frame(self.spark, self.scans[source])
        return records.selectExpr("*", f"{_IS_RECORD} AS {KEEP}")

    def read(self, source: str, readers: int) -> DataFrame | None:
        """The records of a source; None if all of its readers use pre-aggregated partials."""
        scan = self.scans[source]
        early = self._early_operators(source, scan.schema)
        different: dict[Hashable, EarlyOperator] = {}
        for operator, (key, made) in early.items():
            if different.setdefault(key, made) is not made:
                self.echoes.add(operator)
            self._early[operator] = (source, list(different).index(key), made)
        hands_on = readers > len(early)
        lateness = lateness_of_sources(self.model).get(source, 0)
        every = tuple(different.values())
        scan = replace(scan, early=every, hands_on=hands_on, lateness=lateness)
        scanned = self.share(scan_frame(self.spark, scan), readers)
        self._scanned[source] = scanned
        if not hands_on:
            return None
        records = scanned.where(f"{EARLY} IS NULL") if early else scanned
        names = [quoted(name) for name in (*scan.schema.names, PART, CONTROL)]
        if not lateness:
            return records.selectExpr(*names, f"{_IS_RECORD} AS {KEEP}")
        self._with_late[source] = (records, names)
        return self.with_late(source, 0)

    def with_late(self, source: str, lateness: int) -> DataFrame | None:
        """Records up to ``lateness`` microseconds late; None if no window allows late ones."""
        if source not in self._with_late:
            return None
        records, names = self._with_late[source]
        is_taken = f"{_IS_RECORD} AND coalesce({LATE}, 0L) <= {lateness}"
        return records.selectExpr(*names, f"{is_taken} AS {KEEP}")

    def partials(self, operator: OperatorId) -> tuple[DataFrame, StateShape | KeyedShape] | None:
        """The partials of an operator and their shape; None if the scan does not make them."""
        if operator not in self._early:
            return None
        source, number, early = self._early[operator]
        return partials_of_scan(self._scanned[source], number, early)

    def _early_operators(
        self, source: str, schema: pa.Schema
    ) -> dict[OperatorId, tuple[Hashable, EarlyOperator]]:
        found: dict[OperatorId, tuple[Hashable, EarlyOperator]] = {}
        for view in self.model.views:
            for operator, query in stateful_operators(view):
                if isinstance(query, Stateful) and query.source == TableInput(source):
                    growth = self.growth(operator)
                    with blaming(view):
                        early = early_operator(operator, query, schema, growth)
                    if early:
                        found[operator] = ((partials_key(query), growth), early)
        return found
