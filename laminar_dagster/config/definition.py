"""What the state of a pipeline depends on, written down for ``core.deployment`` to compare."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import sqlglot
from sqlglot import exp

from laminar_dagster.config.fingerprint import (
    canonical_text,
    describe_query,
    describe_reading,
    relations,
)
from laminar_dagster.config.model import (
    KeyedAggregate,
    PipelineModel,
    Ranked,
    Relation,
    Select,
    SourceTable,
    Stateful,
    TableInput,
    UnionAll,
    View,
    WindowAggregate,
)
from laminar_dagster.config.operators import arguments_of, kept_by, stateful_operators, time_of
from laminar_dagster.core.definition import OperatorDefinition, PipelineDefinition
from laminar_dagster.core.document import FORMAT_VERSION
from laminar_dagster.core.ids import OperatorId


def define(model: PipelineModel) -> PipelineDefinition:
    """The definition that belongs to the model's fingerprint."""
    return PipelineDefinition(
        version=FORMAT_VERSION,
        pipeline=model.config.name,
        fingerprint=model.fingerprint,
        buckets=model.config.buckets,
        operators=tuple(
            _define(operator, query, model)
            for view in model.views
            for operator, query in stateful_operators(view)
        ),
    )


def _define(operator: OperatorId, query: Stateful, model: PipelineModel) -> OperatorDefinition:
    sources = {str(each.source_id): each for each in model.sources}
    views = {str(each.name): each for each in model.views}
    upstream = [*_upstream(query.source, views)]
    arguments = [*arguments_of(query)]
    window = None if isinstance(query, Ranked) else query.window
    weight = query.weight if isinstance(query, KeyedAggregate) else None
    inside = [text for text in (time_of(query), query.where, weight) if text is not None]
    inside += [key.sql for key in query.keys]
    inside += [text for relation in upstream for text in _texts(relation)]
    reads: dict[str, str] = {}
    columns: dict[str, str] = {}
    only_arguments: list[str] = []
    for name in sorted(_names(upstream)):
        if name in views:
            reads[name] = canonical_text(describe_query(views[name].query))
            continue
        source = sources[name]
        reads[name] = canonical_text(describe_reading(source))
        elsewhere, in_arguments = _mentioned(source, inside), _mentioned(source, arguments)
        for column in source.columns:
            if column.name in elsewhere or column.name in in_arguments:
                columns[f"{name}.{column.name}"] = column.type
                if column.name not in elsewhere:
                    only_arguments.append(f"{name}.{column.name}")
    if not isinstance(query.source, TableInput):
        reads["its subquery"] = canonical_text(describe_query(query.source))
    return OperatorDefinition(
        operator_id=operator,
        time=time_of(query),
        size_micros=window.size_micros if window else 0,
        slide_micros=window.slide_micros if window else 0,
        offset_micros=window.offset_micros if window else 0,
        grows=window.grows if window else False,
        kept_as=_kept_as(query),
        gap_micros=None if isinstance(query, WindowAggregate) else query.gap_micros,
        weight=weight,
        keys=tuple(key.sql for key in query.keys),
        partials=kept_by(query),
        where=query.where,
        reads=reads,
        columns=columns,
        arguments=tuple(only_arguments),
    )


def _kept_as(query: Stateful) -> Literal["group", "window", "session", "rank"] | None:
    match query:
        case WindowAggregate():
            return None
        case KeyedAggregate():
            return query.kind
        case Ranked():
            return "rank"


def _upstream(relation: Relation, views: Mapping[str, View]) -> Iterator[Relation]:
    """Everything that a relation is computed from, through other views too."""
    for each in relations(relation):
        yield each
        if isinstance(each, TableInput) and each.name in views:
            yield from _upstream(views[each.name].query, views)


def _names(upstream: Iterable[Relation]) -> set[str]:
    return {each.name for each in upstream if isinstance(each, TableInput)}


def _texts(relation: Relation) -> Iterator[str]:
    """The expressions of a relation itself, not of those nested in it."""
    if isinstance(relation, Select):
        yield from (each.sql for each in relation.columns)
    if isinstance(relation, Ranked):
        yield from (each.sql for each in relation.keys)
        yield from arguments_of(relation)
    if isinstance(relation, WindowAggregate | KeyedAggregate | Ranked):
        time = time_of(relation)
        yield from (time,) if time else ()
    if isinstance(relation, WindowAggregate | KeyedAggregate):
        yield from (each.sql for each in (*relation.keys, *relation.columns))
        yield from arguments_of(relation)
        yield from (relation.having,) if relation.having else ()
    if not isinstance(relation, TableInput | UnionAll) and relation.where:
        yield relation.where


def _mentioned(source: SourceTable, texts: Iterable[str]) -> set[str]:
    """The columns of a source whose names stand in expressions. Rather one too many."""
    known = {column.name.lower(): column.name for column in source.columns}
    found: set[str] = set()
    for text in texts:
        try:
            tree = sqlglot.parse_one(text, dialect="spark")
        except sqlglot.ParseError:
            return set(known.values())
        words = {str(each.this).lower() for each in tree.find_all(exp.Identifier)}
        found |= {known[word] for word in words if word in known}
    return found
