"""Fingerprints: whether a changed pipeline may compute something else.

Part of a fingerprint: the columns and watermark of each source, its connector, and those options
that decide which records are read and how they are decoded (``DECISIVE``), and the same of each
reference table; each view's query in canonical form; the number of buckets; settings of Spark SQL
that change results.

Not part of it: formatting, comments, file layout; sinks and contracts, which publish and check what
was computed; limits of an epoch, schedules, retention; options with addresses, tuning or secrets.
An option counts as written, so ``${NAME}`` counts by its name, never its value.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from laminar_dagster.config.aggregate import Aggregate
from laminar_dagster.config.model import Column, ReferenceTable, SourceTable, View
from laminar_dagster.config.relations import (
    Aggregation,
    Explode,
    Join,
    JoinSide,
    KeyedAggregate,
    PythonKeyed,
    PythonRows,
    Ranked,
    ReferenceJoin,
    ReferenceValue,
    Relation,
    Select,
    TableInput,
    UnionAll,
    Window,
    WindowAggregate,
)
from laminar_dagster.config.variables import looks_secret

FINGERPRINT_VERSION: Final = 1

DECISIVE: Final = frozenset(
    {
        "auto.offset.reset",
        "columns",
        "database",
        "delimiter",
        "encoding",
        "envelope",
        "escape",
        "format",
        "header",
        "include.metadata",
        "key.columns",
        "key.format",
        "null.value",
        "path",
        "pattern",
        "query",
        "quote",
        "schema",
        "separator",
        "skip.lines",
        "table",
        "tables",
        "timestamp.format",
        "timezone",
        "topic",
        "topic.pattern",
        "topics",
        "value.format",
    }
)
_DECISIVE_PREFIXES: Final = (
    "avro.",
    "csv.",
    "debezium.",
    "format.",
    "json.",
    "parquet.",
    "protobuf.",
)
_SPARK_PREFIX: Final = "spark.sql."
_SPARK_TUNING: Final = (
    "spark.sql.adaptive.",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.execution.arrow.",
    "spark.sql.files.",
    "spark.sql.shuffle.partitions",
    "spark.sql.ui.",
    "spark.sql.warehouse.",
)


def fingerprint(
    sources: Iterable[SourceTable],
    views: Iterable[View],
    buckets: int,
    spark: Mapping[str, str],
    references: Iterable[ReferenceTable] = (),
) -> str:
    """SHA-256 over what a pipeline computes, in hexadecimal.

    Args:
        sources: The pipeline's sources, in any order.
        views: The pipeline's views, in any order.
        buckets: How many buckets each operator's state has.
        spark: Settings of Spark, as written.
        references: The pipeline's reference tables, in any order.
    """
    tables = {str(each.reference_id): describe_reference(each) for each in references}
    content = {
        "version": FINGERPRINT_VERSION,
        "sources": {str(each.source_id): _source(each) for each in sources},
        "views": {str(each.name): _view(each) for each in views},
        "buckets": buckets,
        "spark": {key: value for key, value in spark.items() if changes_results(key)},
        # Newer features are included only where used, so that old fingerprints do not change.
        **({"references": tables} if tables else {}),
    }
    return _hashed(content)


def _view(view: View) -> Any:
    described = describe_query(view.query)
    # Newer features of views wrap the query, only where used: old fingerprints do not change.
    return described if view.on_added is None else {"of": described, "added": view.on_added}


def relations(query: Relation) -> Iterable[Relation]:
    """A query and everything nested in it, the outermost first."""
    stack: list[Relation] = [query]
    while stack:
        each = stack.pop()
        yield each
        match each:
            case Select() | WindowAggregate() | KeyedAggregate() | Ranked() | ReferenceJoin():
                stack.append(each.source)
            case ReferenceValue() | Explode() | PythonRows() | PythonKeyed():
                stack.append(each.source)
            case Join():
                stack.extend((each.right.source, each.left.source))
            case UnionAll():
                stack.extend(reversed(each.parts))
            case TableInput():
                pass


def _source(source: SourceTable) -> dict[str, Any]:
    watermark = source.watermark
    return {
        **describe_reading(source),
        "columns": [_column(each) for each in source.columns],
        "watermark": [watermark.column, watermark.delay_micros] if watermark else None,
    }


def describe_reading(source: SourceTable) -> dict[str, Any]:
    """Which records of a source are read, and how they are decoded, without the columns."""
    return {
        "watermark": source.watermark.column if source.watermark else None,
        "connector": source.connector,
        "options": {
            name: value for name, value in source.written.items() if _is_decisive(name, value)
        },
    }


def describe_reference(table: ReferenceTable) -> dict[str, Any]:
    """Which rows and columns of a reference table are read."""
    return {**describe_rows(table), "columns": [_column(each) for each in table.columns]}


def declaration_of(table: ReferenceTable) -> str:
    """SHA-256 of all that decides which rows and columns of a reference table are read."""
    return _hashed(describe_reference(table))


def describe_rows(table: ReferenceTable) -> dict[str, Any]:
    """Which rows of a reference table are read, without the columns."""
    return {
        "key": [*table.key],
        "connector": table.connector,
        "options": {
            name: value for name, value in table.written.items() if _is_decisive(name, value)
        },
    }


def _column(column: Column) -> list[Any]:
    return [column.name, column.type, column.nullable]


def _is_decisive(name: str, written: str) -> bool:
    known = name in DECISIVE or name.startswith(_DECISIVE_PREFIXES)
    return known and not looks_secret(name, written)


def changes_results(key: str) -> bool:
    """Whether a setting of Spark may change results, and so is part of the fingerprint."""
    return key.startswith(_SPARK_PREFIX) and not key.startswith(_SPARK_TUNING)


def describe_query(query: Relation) -> Any:
    """A query in canonical form, for comparing."""
    match query:
        case TableInput():
            return {"read": query.name}
        case Select():
            return {
                "select": [[each.name, each.sql] for each in query.columns],
                "where": query.where,
                "from": describe_query(query.source),
            }
        case WindowAggregate() | KeyedAggregate():
            return {
                **_aggregation(query),
                "select": [[each.name, each.sql] for each in query.columns],
                "having": query.having,
                "from": describe_query(query.source),
            }
        case Ranked():
            return {
                "ranked": [query.limit, query.rank, query.time, query.gap_micros],
                **_weight(query),
                "order": [[each.sql, each.descending, each.nulls_first] for each in query.order],
                "keys": [[each.name, each.sql] for each in query.keys],
                "select": [[each.name, each.sql] for each in query.columns],
                "where": query.where,
                "from": describe_query(query.source),
            }
        case Join():
            return {
                "join": [query.kind, query.emits, query.bounds, query.condition],
                "compared": list(query.comparisons),
                "left": _side(query.left),
                "right": _side(query.right),
            }
        case ReferenceJoin():
            return {
                "reference": [query.table, query.kind, query.is_weighed],
                "keys": [list(query.keys), list(query.matches)],
                "left": [[each.name, each.sql] for each in query.columns],
                "right": [[each.name, each.sql] for each in query.found],
                "where": query.where,
                "from": describe_query(query.source),
            }
        case ReferenceValue():
            return {
                "value": [query.table, query.value, query.where, query.name],
                "from": describe_query(query.source),
            }
        case Explode():
            return {
                "explode": [query.kind, query.items, list(query.names), query.keeps_empty],
                "weighed": query.is_weighed,
                "left": [[each.name, each.sql] for each in query.columns],
                "right": [[each.name, each.sql] for each in query.found],
                "from": describe_query(query.source),
            }
        case UnionAll():
            return {"union_all": [describe_query(each) for each in query.parts]}
        case PythonRows():
            return {"python": query.python.fingerprint, "from": describe_query(query.source)}
        case PythonKeyed():
            return {
                "python": query.python.fingerprint,
                "takes": list(query.takes),
                **_lateness(query),
                "from": describe_query(query.source),
            }


def _side(side: JoinSide) -> dict[str, Any]:
    return {
        "columns": [[each.name, each.sql] for each in side.columns],
        "keys": list(side.keys),
        "operands": list(side.operands),
        "where": side.where,
        "time": [side.time, side.lag_micros, side.weight],
        "window": _window(side.window) if side.window else None,
        "from": describe_query(side.source),
    }


def _aggregation(query: Aggregation) -> dict[str, Any]:
    return {
        **({"window": _window(query.window)} if query.window else {}),
        **(_keyed(query) if isinstance(query, KeyedAggregate) else _weight(query)),
        "keys": [[each.name, each.sql] for each in query.keys],
        "aggregates": [
            [
                each.name,
                each.function,
                each.argument,
                *([each.by] if each.by else []),
                *more_of(each),
            ]
            for each in query.aggregates
        ],
        "where": query.where,
        **_lateness(query),
    }


def _lateness(query: Aggregation | PythonKeyed) -> dict[str, int]:
    return {"lateness": query.lateness_micros} if query.lateness_micros else {}


def more_of(aggregate: Aggregate) -> list[Any]:
    """Fields that only some aggregates use; left out for others, so old fingerprints stay."""
    found = {
        "others": list(aggregate.others),
        "order": [[each.sql, each.descending, each.nulls_first] for each in aggregate.order],
        "shares": list(aggregate.shares),
        "is_list": aggregate.is_list,
        "separator": aggregate.separator,
        "is_distinct": aggregate.is_distinct,
        "precision": aggregate.precision,
    }
    more = {name: value for name, value in found.items() if value}
    return [more] if more else []


def _window(window: Window) -> list[Any]:
    shape: list[Any] = [window.time, window.size_micros, window.slide_micros]
    # Newer features of windows come last, only where used: old fingerprints do not change.
    if window.offset_micros or window.grows:
        shape += [window.offset_micros, window.grows]
    return shape


def _weight(query: WindowAggregate | Ranked) -> dict[str, Any]:
    return {"weight": query.weight} if query.weight is not None else {}


def _keyed(query: KeyedAggregate) -> dict[str, Any]:
    kept = [query.kind, query.emits, query.time, query.gap_micros, query.weight]
    return {"keyed": kept}


def canonical_text(content: Any) -> str:
    """A description as canonical JSON, to compare and to hash."""
    return json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _hashed(content: Any) -> str:
    return hashlib.sha256(canonical_text(content).encode("utf-8", "surrogatepass")).hexdigest()
