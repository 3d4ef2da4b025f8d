"""Explodes frames, after checking the columns of the list or map against those the query names."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    MapType,
    StructField,
    StructType,
)

from laminar_dagster.config.relations import Explode
from laminar_dagster.spark.aggregate_types import WrongType
from laminar_dagster.spark.columns import quoted, unquoted
from laminar_dagster.spark.explode_step import ITEMS, ExplodeStep

_OWN: Final = "_own"
_FOUND: Final = "_found"
_PLACE: Final = "place"
_WHOLE: Final = "whole"


def exploded_frame(rows: DataFrame, explode: Explode, operator: str | None) -> DataFrame:
    """The rows of a frame, each once for every item.

    Args:
        rows: With the columns that are kept, and ``_items``; see ``ExplodeStep``.
        explode: The relation.
        operator: The operator that records are counted for; None if these rows are no records.

    Raises:
        WrongType: It is no list or map, or has more or fewer columns than the query names.
    """
    made = _made(rows.schema[ITEMS].dataType, explode)
    if isinstance(rows.schema[ITEMS].dataType, MapType):
        others = [quoted(name) for name in rows.columns if name != ITEMS]
        rows = rows.selectExpr(*others, f"map_entries({ITEMS}) AS {ITEMS}")
    # mapInArrow fails on column names with a dot, as those of LATERAL VIEW: rename them.
    plain = {each.name: f"{_OWN}{number}" for number, each in enumerate(explode.columns)}
    rows = rows.toDF(*(plain.get(name, name) for name in rows.columns))
    # Every column is nullable: rows that carry reports have nulls everywhere else.
    own = [StructField(each.name, each.dataType) for each in rows.schema if each.name != ITEMS]
    found = {}
    for number, each in enumerate(explode.found):
        found[f"{_FOUND}{number}"] = made[explode.names.index(unquoted(each.sql))]
        plain[each.name] = f"{_FOUND}{number}"
    out = StructType([*own, *(StructField(name, kind) for name, (_, kind) in found.items())])
    step = ExplodeStep(
        operator=operator,
        keeps_empty=explode.keeps_empty,
        places=tuple(name for name, (what, _) in found.items() if what == _PLACE),
        items=tuple(name for name, (what, _) in found.items() if what == _WHOLE),
        fields=tuple((name, what) for name, (what, _) in found.items() if isinstance(what, int)),
        schema=to_arrow_schema(out, timezone="UTC"),
    )
    exploded = rows.mapInArrow(step, out)
    names = {new: name for name, new in plain.items()}
    return exploded.toDF(*(names.get(name, name) for name in exploded.columns))


def _made(kind: DataType, explode: Explode) -> list[tuple[str | int, DataType]]:
    """The columns of an item, with types: its position, the whole item, or a field's index."""
    what = explode.kind
    columns: list[tuple[str | int, DataType]]
    if isinstance(kind, MapType):
        columns = [(0, kind.keyType), (1, kind.valueType)]
    elif not isinstance(kind, ArrayType):
        raise WrongType(f"`{explode.items}` is {kind.simpleString()}, and no list or map")
    else:
        columns = _columns_of(kind.elementType, explode)
    if what == "inline" and (isinstance(kind, MapType) or columns[0][0] == _WHOLE):
        raise WrongType(f"inline takes a list of structs, and this is {kind.simpleString()}")
    if what == "posexplode":
        columns.insert(0, (_PLACE, IntegerType()))
    if len(columns) != len(explode.names):
        shown, named = kind.simpleString(), len(explode.names)
        raise WrongType(f"{what} of {shown} gives {len(columns)} columns, and {named} are named")
    return columns


def _columns_of(item: DataType, explode: Explode) -> list[tuple[str | int, DataType]]:
    """The columns of an item of a list: the item as a whole, or each field of a struct."""
    is_apart = explode.kind == "inline" or (explode.kind == "unnest" and len(explode.names) > 1)
    if isinstance(item, StructType) and is_apart:
        return [(number, each.dataType) for number, each in enumerate(item.fields)]
    return [(_WHOLE, item)]
