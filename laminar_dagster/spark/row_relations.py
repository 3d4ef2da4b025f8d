"""Stateless relations that add columns to a row, or make several rows of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from pyspark.sql import DataFrame

from laminar_dagster.config.model import ReferenceTable, View
from laminar_dagster.config.operators import id_of_explode, id_of_reference
from laminar_dagster.config.relations import Explode, Projection, ReferenceJoin, ReferenceValue
from laminar_dagster.config.sql.changelog import WEIGHT
from laminar_dagster.core.ids import OperatorId
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.core.reference import ReferencePin
from laminar_dagster.spark.explode_frames import exploded_frame
from laminar_dagster.spark.explode_step import ITEMS
from laminar_dagster.spark.live_rows import LiveRows
from laminar_dagster.spark.operators import Operators
from laminar_dagster.spark.reference_frames import joined_frame
from laminar_dagster.spark.reference_step import CAN_MATCH, KEY
from laminar_dagster.spark.reference_values import valued_frame


@dataclass(frozen=True, slots=True)
class RowRelations:
    """Builds frames of reference joins, reference values and explodes.

    Attributes:
        pins: The files of each reference table that the plan has pinned.
    """

    rows: LiveRows
    operators: Operators
    references: Sequence[ReferenceTable]
    pins: Mapping[str, ReferencePin]
    store: ObjectStore = field(repr=False)

    def frame(
        self,
        source: DataFrame,
        view: View,
        relation: ReferenceJoin | ReferenceValue | Explode,
        operator: OperatorId,
    ) -> DataFrame:
        """The frame of a relation over the rows of its source."""
        match relation:
            case ReferenceJoin():
                return self._joined(source, view, relation, operator)
            case ReferenceValue():
                table, pin = self._reference(relation.table)
                return valued_frame(source, relation, table, pin, self.store, self.rows)
            case Explode():
                return self._exploded(source, view, relation, operator)
            case _:
                assert_never(relation)

    def _joined(
        self, source: DataFrame, view: View, join: ReferenceJoin, operator: OperatorId
    ) -> DataFrame:
        """Join with a table. Records are counted here: afterwards there may be more or fewer."""
        if join.where is not None:
            self.rows.look_at_condition(source, join.where)
        keys = (Projection(f"{KEY}{number}", sql) for number, sql in enumerate(join.keys))
        can_match = Projection(CAN_MATCH, join.where or "true")
        rows = self.rows.projected(source, (*_kept(join), *keys, can_match))
        name = id_of_reference(operator)
        counted = self.operators.count_where_asked_for(view, name, join.source)
        table, pin = self._reference(join.table)
        return joined_frame(rows, join, table, pin, self.store, counted)

    def _reference(self, name: str) -> tuple[ReferenceTable, ReferencePin | None]:
        table = next(each for each in self.references if each.reference_id == name)
        return table, self.pins.get(name)

    def _exploded(
        self, source: DataFrame, view: View, explode: Explode, operator: OperatorId
    ) -> DataFrame:
        """Explode rows. Records are counted here: each becomes several rows, or none."""
        items = Projection(ITEMS, explode.items)
        rows = self.rows.projected(source, (*_kept(explode), items))
        name = id_of_explode(operator)
        counted = self.operators.count_where_asked_for(view, name, explode.source)
        return exploded_frame(rows, explode, counted)


def _kept(relation: ReferenceJoin | Explode) -> tuple[Projection, ...]:
    """The columns that pass through, and ``_weight`` if rows can be retractions."""
    weight = (Projection(WEIGHT, WEIGHT),) if relation.is_weighed else ()
    return (*relation.columns, *weight)
