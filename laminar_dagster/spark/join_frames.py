"""A join as Spark frames: from the records of both sides to the output rows.

::

    records of the left  --JoinRecords--> rows --+
                                                 +--bucket by key--> JoinStep --> pairs, and rows
    records of the right --JoinRecords--> rows --+                                without partner
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from laminar_dagster.config.relations import Join, Projection
from laminar_dagster.config.sql.functions import WINDOW_COLUMNS
from laminar_dagster.core.ids import OperatorId
from laminar_dagster.spark.aggregate_types import WrongType
from laminar_dagster.spark.aggregation_frames import hash_of_keys
from laminar_dagster.spark.aggregation_shapes import assignment_of
from laminar_dagster.spark.columns import CONTROL, END, HASH, KEEP, PART, SIDES, TIME, quoted
from laminar_dagster.spark.join_matching import Rule
from laminar_dagster.spark.join_records import FITS, JoinRecords
from laminar_dagster.spark.join_shape import JoinShape, KeptColumn
from laminar_dagster.spark.join_step import PREFIXES, Terms, terms_of
from laminar_dagster.spark.keyed_rows import WEIGHT
from laminar_dagster.spark.partial_step import PartialStep
from laminar_dagster.spark.state_shape import KeyColumn

# Added to parts of the right side, and above any real part: keeps the counts of both sides apart.
_PARTS_APART: Final = 1_000_000_000_000_000


def inputs_of_side(join: Join, number: int) -> tuple[Projection, ...]:
    """The columns that the join needs of a record of the left (0) or the right (1)."""
    side = join.sides[number]
    time = side.window.time if side.window else side.time
    found = [Projection(f"_k{place}", sql) for place, sql in enumerate(side.keys)]
    found += [Projection(f"_x{place}", sql) for place, sql in enumerate(side.operands)]
    found += [Projection(TIME, f"unix_micros({time})")] if time is not None else []
    found += [Projection(WEIGHT, side.weight)] if side.weight is not None else []
    if side.where is not None and is_told_alone(join, number):
        found.append(Projection(FITS, side.where))
    found += [each for each in side.columns if not _is_edge(join, number, each)]
    return tuple(found)


def is_told_alone(join: Join, number: int) -> bool:
    """Whether rows of a side that have no partner matter to the output: outer, semi, anti joins."""
    return join.has_right_alone if number else join.has_left_alone


def terms_of_join(join: Join) -> Terms:
    """The matching rule of a join, and when it emits rows."""
    keys = tuple(f"_k{place}" for place in range(len(join.left.keys)))
    compared = tuple((f"_x{place}", each) for place, each in enumerate(join.comparisons))
    edges = (END,) if join.emits == "close" else ()
    return terms_of(join.kind, join.emits, Rule((*edges, *keys), join.bounds, compared), join.waits)


def shape_of_join(
    operator: OperatorId, join: Join, sides: tuple[DataFrame, DataFrame]
) -> JoinShape:
    """The shape of a join's state, given the records of both sides.

    Raises:
        WrongType: Compared columns have different types on the two sides, or a nested type.
    """
    types = [
        {each.name: each.type for each in to_arrow_schema(side.schema, timezone="UTC")}
        for side in sides
    ]
    keys = []
    for place, texts in enumerate(zip(join.left.keys, join.right.keys, strict=True)):
        kind = _common_type(f"_k{place}", texts, types)
        keys.append(KeyColumn(f"_k{place}", " = ".join(texts), kind))
    operands = []
    for place, texts in enumerate(zip(join.left.operands, join.right.operands, strict=True)):
        operands.append(KeptColumn(f"_x{place}", _common_type(f"_x{place}", texts, types)))
    columns = [
        KeptColumn(each.name, types[number][each.name])
        for number, side in enumerate(join.sides)
        for each in side.columns
        if not _is_edge(join, number, each)
    ]
    return JoinShape(operator, tuple(keys), tuple(operands), tuple(columns))


def rows_of_join(
    sides: tuple[DataFrame, DataFrame],
    join: Join,
    shape: JoinShape,
    counts: tuple[bool, bool],
) -> DataFrame:
    """The records of both sides as state rows with hashes, and the reports of both.

    Args:
        sides: The frames of both sides, with the columns of ``inputs_of_side``.
        join: The relation.
        shape: The shape of its state.
        counts: For each side whether its rows are records, which have to be counted.
    """
    terms = terms_of_join(join)
    frames = []
    for number, side in enumerate(join.sides):
        windows = assignment_of(side.window) if side.window else None
        records = JoinRecords(shape, terms, number, windows)
        frame = _one_zero(sides[number], shape, number)
        frames.append(_mapped(frame, PartialStep(records, counts=counts[number])))
    return frames[0].union(frames[1]).selectExpr("*", f"{hash_of_keys(shape)} AS {HASH}")


def _mapped(frame: DataFrame, step: PartialStep) -> DataFrame:
    """Run a step on rows under plain names: mapInArrow reads a dot in a name as a struct field."""
    names = frame.columns
    plain = frame.toDF(*(f"c{number}" for number in range(len(names))))

    def take(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return step(batch.rename_columns(names) for batch in batches)

    return plain.mapInArrow(take, from_arrow_schema(step.partials.schema))


def finished_join(told: DataFrame, join: Join) -> DataFrame:
    """The output of a join, under the names of its columns."""
    found = [f"{WEIGHT}"] if join.is_weighed else []
    for number, side in enumerate(join.sides):
        for each in side.columns:
            if not _is_edge(join, number, each):
                found.append(quoted(each.name))
                continue
            assert side.window is not None
            is_end = each.name.endswith(WINDOW_COLUMNS[1])
            edge = END if is_end else assignment_of(side.window).start_sql(END)
            is_there = f"{SIDES} & {1 + number} > 0"
            found.append(f"IF({is_there}, timestamp_micros({edge}), NULL) AS {quoted(each.name)}")
    return told.selectExpr(PART, CONTROL, f"{CONTROL} IS NULL AS {KEEP}", *found)


def _is_edge(join: Join, number: int, column: Projection) -> bool:
    names = [f"{PREFIXES[number]}{each}" for each in WINDOW_COLUMNS]
    return join.sides[number].window is not None and column.name in names


def _common_type(
    name: str, texts: tuple[str, str], types: list[dict[str, pa.DataType]]
) -> pa.DataType:
    left, right = types[0][name], types[1][name]
    for is_alike in (pa.types.is_integer, pa.types.is_floating):
        if is_alike(left) and is_alike(right):
            return max(left, right, key=lambda kind: int(kind.bit_width))
    if left != right:
        raise WrongType(
            f"`{texts[0]}` is {left} and `{texts[1]}` is {right}: CAST one to the type of the other"
        )
    if pa.types.is_nested(left):
        raise WrongType(f"`{texts[0]}` is {left}, by which rows cannot be joined")
    return left


def _one_zero(records: DataFrame, shape: JoinShape, number: int) -> DataFrame:
    """Records with -0.0 as 0.0 in keys, one value in SQL, and with parts distinct by side."""
    floats = {each.name for each in shape.keys if pa.types.is_floating(each.arrow_type)}
    own = {PART: f"{PART} + {number * _PARTS_APART}L"}
    own |= {name: f"IF({name} = 0, abs({name}), {name})" for name in floats}
    return records.selectExpr(
        *(f"{own.get(name, quoted(name))} AS {quoted(name)}" for name in records.columns)
    )
