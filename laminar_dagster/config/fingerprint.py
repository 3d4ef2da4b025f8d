"""Fingerprints: whether a changed pipeline may compute something else.

What takes part: the columns and watermark of each source, its connector, and those options that
say which records are read and how they are decoded (``DECISIVE``); each view's query in canonical
form; the number of buckets; settings of Spark SQL that change results.

What does not: formatting, comments, file layout; sinks and contracts, which publish and check what
was computed; limits of an epoch, schedules, retention; options that reach a server, tune or hold a
secret. An option takes part as it is written, so ``${NAME}`` counts by its name, never its value.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from laminar_dagster.config.model import (
    Aggregation,
    Column,
    KeyedAggregate,
    Ranked,
    Relation,
    Select,
    SourceTable,
    TableInput,
    UnionAll,
    View,
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
    sources: Iterable[SourceTable], views: Iterable[View], buckets: int, spark: Mapping[str, str]
) -> str:
    """SHA-256 over what a pipeline computes, in hexadecimal.

    Args:
        sources: Of the pipeline, in any order.
        views: Of the pipeline, in any order.
        buckets: Of each operator's state.
        spark: Settings of Spark, as written.
    """
    content = {
        "version": FINGERPRINT_VERSION,
        "sources": {str(each.source_id): _source(each) for each in sources},
        "views": {str(each.name): describe_query(each.query) for each in views},
        "buckets": buckets,
        "spark": {key: value for key, value in spark.items() if _changes_results(key)},
    }
    return _hashed(content)


def relations(query: Relation) -> Iterable[Relation]:
    """A query and everything nested in it, the outermost first."""
    stack: list[Relation] = [query]
    while stack:
        each = stack.pop()
        yield each
        match each:
            case Select() | WindowAggregate() | KeyedAggregate() | Ranked():
                stack.append(each.source)
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
    """Which records of a source are read, and how they are decoded, but for their columns."""
    return {
        "watermark": source.watermark.column if source.watermark else None,
        "connector": source.connector,
        "options": {
            name: value for name, value in source.written.items() if _is_decisive(name, value)
        },
    }


def _column(column: Column) -> list[Any]:
    return [column.name, column.type, column.nullable]


def _is_decisive(name: str, written: str) -> bool:
    known = name in DECISIVE or name.startswith(_DECISIVE_PREFIXES)
    return known and not looks_secret(name, written)


def _changes_results(key: str) -> bool:
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
                "order": [[each.sql, each.descending, each.nulls_first] for each in query.order],
                "keys": [[each.name, each.sql] for each in query.keys],
                "select": [[each.name, each.sql] for each in query.columns],
                "where": query.where,
                "from": describe_query(query.source),
            }
        case UnionAll():
            return {"union_all": [describe_query(each) for each in query.parts]}


def _aggregation(query: Aggregation) -> dict[str, Any]:
    return {
        **({"window": _window(query.window)} if query.window else {}),
        **(_keyed(query) if isinstance(query, KeyedAggregate) else {}),
        "keys": [[each.name, each.sql] for each in query.keys],
        "aggregates": [
            [each.name, each.function, each.argument, *([each.by] if each.by else [])]
            for each in query.aggregates
        ],
        "where": query.where,
    }


def _window(window: Window) -> list[Any]:
    shape: list[Any] = [window.time, window.size_micros, window.slide_micros]
    # What came to windows later stands last, and only where it is used: old fingerprints stay.
    if window.offset_micros or window.grows:
        shape += [window.offset_micros, window.grows]
    return shape


def _keyed(query: KeyedAggregate) -> dict[str, Any]:
    kept = [query.kind, query.emits, query.time, query.gap_micros, query.weight]
    return {"keyed": kept}


def canonical_text(content: Any) -> str:
    """One text for one description, to compare and to hash."""
    return json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _hashed(content: Any) -> str:
    return hashlib.sha256(canonical_text(content).encode("utf-8", "surrogatepass")).hexdigest()
