"""Adds a value computed from a whole reference table to every row of a frame.

The value is computed where the table's pinned files are read, in one task, and only it is sent to
the tasks that read rows: see decision 51.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.functions import broadcast
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructField, StructType

from laminar_dagster.config.model import ReferenceTable
from laminar_dagster.config.needs import words_in
from laminar_dagster.config.relations import ReferenceValue
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.core.reference import ReferencePin
from laminar_dagster.spark.columns import quoted
from laminar_dagster.spark.live_rows import LiveRows
from laminar_dagster.spark.reference_step import PinnedRows, PinnedTable


def valued_frame(
    rows: DataFrame,
    value: ReferenceValue,
    table: ReferenceTable,
    pin: ReferencePin | None,
    store: ObjectStore,
    live: LiveRows,
) -> DataFrame:
    """The rows of a frame, in their order, with the value as one more column.

    Args:
        rows: Any frame.
        value: The value to compute.
        table: The reference table that it is computed from.
        pin: The files of the table that the plan has pinned; None where nothing is read.
        store: The pipeline's store.
        live: Evaluates expressions with the epoch's clock.

    Raises:
        ObjectMissing, ChecksumMismatch: A file is missing, or damaged.
    """
    columns = _columns(value, table)
    held = PinnedTable(
        schema=to_arrow_schema(columns, timezone="UTC"),
        files=tuple((pin.key_of(file), file) for file in pin.files) if pin else (),
        store=store,
    )
    # Read it on the driver too: an error raised in a task would come back as a Spark failure.
    held.rows()
    one = rows.sparkSession.range(0, 1, 1, 1).mapInArrow(PinnedRows(held), columns)
    if value.where is not None:
        one = one.where(live.sql(value.where))
    one = one.selectExpr(f"{live.sql(value.value)} AS {quoted(value.name)}")
    return rows.crossJoin(broadcast(one))


def _columns(value: ReferenceValue, table: ReferenceTable) -> StructType:
    """The columns that the value needs; at least one, for COUNT(*)."""
    words = words_in([value.value, *([value.where] if value.where else [])])
    needed = [each for each in table.columns if words is None or each.name.lower() in words]
    return StructType(
        [
            StructField(each.name, DataType.fromDDL(each.type))
            for each in needed or table.columns[:1]
        ]
    )
