"""Definitions of a pipeline's operators: what their state depends on, for ``core.deployment``."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from laminar_dagster.config.fingerprint import (
    canonical_text,
    declaration_of,
    describe_query,
    describe_reading,
    describe_rows,
    relations,
)
from laminar_dagster.config.model import PipelineModel, SourceTable, View
from laminar_dagster.config.needs import Needs, words_in
from laminar_dagster.config.operators import arguments_of, kept_by, stateful_operators, time_of
from laminar_dagster.config.relations import (
    Explode,
    Join,
    Keeper,
    KeyedAggregate,
    PythonKeyed,
    PythonRows,
    Ranked,
    ReferenceJoin,
    ReferenceValue,
    Relation,
    Select,
    Stateful,
    TableInput,
    UnionAll,
    WindowAggregate,
)
from laminar_dagster.config.sql.text import quoted
from laminar_dagster.config.tables_below import tables_below
from laminar_dagster.core.definition import OperatorDefinition, PipelineDefinition
from laminar_dagster.core.document import FORMAT_VERSION
from laminar_dagster.core.ids import OperatorId

# Stands for an expression whose columns are unknown: every column counts as mentioned.
_EVERYTHING: Final = "*"


def define(model: PipelineModel) -> PipelineDefinition:
    """The definition of a pipeline, stored next to its fingerprint."""
    return PipelineDefinition(
        version=FORMAT_VERSION,
        pipeline=model.config.name,
        fingerprint=model.fingerprint,
        buckets=model.config.buckets,
        operators=tuple(
            _define(operator, query, view, model)
            for view in model.views
            for operator, query in stateful_operators(view)
        ),
    )


def _define(
    operator: OperatorId, query: Keeper, view: View, model: PipelineModel
) -> OperatorDefinition:
    if isinstance(query, Join):
        return _define_join(operator, query, model)
    if isinstance(query, PythonKeyed):
        return _define_python(operator, query, model)
    window = None if isinstance(query, Ranked) else query.window
    inside = [text for text in (time_of(query), query.where, query.weight) if text is not None]
    inside += [key.sql for key in query.keys]
    arguments = [*arguments_of(query)]
    needed = _needs(model).describe(query.source, words_in([*inside, *arguments]))
    reading = _reading([query.source], inside, arguments, model)
    if not isinstance(query.source, TableInput):
        reading.reads["its subquery"] = canonical_text(describe_query(query.source))
    return OperatorDefinition(
        operator_id=operator,
        time=time_of(query),
        size_micros=window.size_micros if window else 0,
        slide_micros=window.slide_micros if window else 0,
        offset_micros=window.offset_micros if window else 0,
        grows=window.grows if window else False,
        kept_as=_kept_as(query),
        lateness_micros=0 if isinstance(query, Ranked) else query.lateness_micros,
        gap_micros=None if isinstance(query, WindowAggregate) else query.gap_micros,
        weight=query.weight,
        keys=tuple(key.sql for key in query.keys),
        partials=kept_by(query),
        where=query.where,
        reads=reading.reads,
        columns=reading.columns,
        arguments=tuple(reading.arguments),
        references=reading.references,
        fixed=tuple(reading.fixed),
        input=_digest(needed),
        on_added=view.on_added,
    )


def _digest(needed: Any) -> str:
    return hashlib.sha256(canonical_text(needed).encode("utf-8", "surrogatepass")).hexdigest()


def _needs(model: PipelineModel) -> Needs:
    return Needs(
        {str(each.source_id): each for each in model.sources},
        {str(each.name): each for each in model.views},
    )


def _define_join(operator: OperatorId, join: Join, model: PipelineModel) -> OperatorDefinition:
    """Define a join: a stored column may be dropped, any other change alters its pairs."""
    inside: list[str] = [join.condition] if join.condition else []
    arguments: list[str] = []
    for side in join.sides:
        texts = (side.where, side.time, side.window.time if side.window else None)
        inside += [*side.keys, *side.operands, *(text for text in texts if text is not None)]
        arguments += [each.sql for each in side.columns]
    below = [side.source for side in join.sides]
    reading = _reading(below, inside, arguments, model)
    pairs = replace(
        join, left=replace(join.left, columns=()), right=replace(join.right, columns=())
    )
    reading.reads["the join"] = canonical_text(describe_query(pairs))
    window = join.left.window
    return OperatorDefinition(
        operator_id=operator,
        time=None,
        size_micros=window.size_micros if window else 0,
        slide_micros=window.slide_micros if window else 0,
        offset_micros=window.offset_micros if window else 0,
        grows=window.grows if window else False,
        kept_as="join",
        keys=join.left.keys,
        partials=tuple(each.name for side in join.sides for each in side.columns),
        reads=reading.reads,
        columns=reading.columns,
        arguments=tuple(reading.arguments),
        references=reading.references,
        fixed=tuple(reading.fixed),
    )


def _define_python(
    operator: OperatorId, query: PythonKeyed, model: PipelineModel
) -> OperatorDefinition:
    """The definition of an operator in Python; its author bumps ``version`` when state changes."""
    taken = [quoted(name) for name in query.takes]
    inside = [query.time, *(key.sql for key in query.keys), *taken]
    reading = _reading([query.source], inside, [], model)
    needed = _needs(model).describe(query.source, words_in(inside))
    return OperatorDefinition(
        operator_id=operator,
        time=query.time,
        size_micros=0,
        slide_micros=0,
        kept_as="operator",
        lateness_micros=query.lateness_micros,
        gap_micros=query.ttl_micros,
        keys=tuple(key.sql for key in query.keys),
        partials=query.takes,
        state=dict(query.state),
        code=query.python.fingerprint,
        version_of_state=query.version,
        reads=reading.reads,
        columns=reading.columns,
        references=reading.references,
        fixed=tuple(reading.fixed),
        input=_digest(needed),
    )


@dataclass(frozen=True, slots=True)
class _Reading:
    """What an operator reads; the fields are those of ``OperatorDefinition``."""

    reads: dict[str, str] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    references: dict[str, str] = field(default_factory=dict)
    fixed: list[str] = field(default_factory=list)


def _reading(
    below: Iterable[Relation],
    inside: Iterable[str],
    arguments: Iterable[str],
    model: PipelineModel,
) -> _Reading:
    """How an operator's inputs are read, and which of their columns it uses.

    Args:
        below: The inputs of the operator.
        inside: Expressions that decide which rows and groups there are.
        arguments: Expressions whose values are only stored.
        model: With the sources, views and reference tables.
    """
    sources = {str(each.source_id): each for each in model.sources}
    views = {str(each.name): each for each in model.views}
    upstream = [each for relation in below for each in _upstream(relation, views)]
    deciding = [*inside, *(text for relation in upstream for text in _texts(relation))]
    kept = [*arguments]
    found = _Reading()
    for each in tables_below(upstream, model.references, sources, views):
        table, name = each.table, str(each.table.reference_id)
        found.reads[name] = canonical_text(describe_rows(table))
        found.columns.update({f"{name}.{column.name}": column.type for column in each.columns})
        found.references[name] = declaration_of(table)
        found.fixed.extend([name] if each.is_fixed else [])
    for name in sorted(_names(upstream)):
        if name in views:
            found.reads[name] = canonical_text(describe_query(views[name].query))
            continue
        source = sources[name]
        found.reads[name] = canonical_text(describe_reading(source))
        elsewhere, in_arguments = _mentioned(source, deciding), _mentioned(source, kept)
        for column in source.columns:
            if column.name in elsewhere or column.name in in_arguments:
                found.columns[f"{name}.{column.name}"] = column.type
                if column.name not in elsewhere:
                    found.arguments.append(f"{name}.{column.name}")
    return found


def _kept_as(query: Stateful) -> Literal["group", "window", "session", "rank"] | None:
    match query:
        case WindowAggregate():
            return None
        case KeyedAggregate():
            return query.kind
        case Ranked():
            return "rank"


def _upstream(relation: Relation, views: Mapping[str, View]) -> Iterator[Relation]:
    """Every relation upstream of a relation, itself included, through other views too."""
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
    if isinstance(relation, ReferenceJoin):
        yield from (*relation.keys, *(each.sql for each in relation.columns))
    if isinstance(relation, Join):
        for side in relation.sides:
            yield from (each.sql for each in side.columns)
            yield from (*side.keys, *side.operands)
            yield from (text for text in (side.time, side.where) if text is not None)
            yield from (side.window.time,) if side.window else ()
    elif isinstance(relation, Explode):
        yield from (relation.items, *(each.sql for each in relation.columns))
    elif isinstance(relation, PythonRows | PythonKeyed):
        # Python code is not analysed: it may use any column of its input.
        yield _EVERYTHING
    elif not isinstance(relation, TableInput | ReferenceValue | UnionAll) and relation.where:
        yield relation.where


def _mentioned(source: SourceTable, texts: Iterable[str]) -> set[str]:
    """The columns of a source whose names occur in expressions; too many is safe."""
    given = [*texts]
    words = None if _EVERYTHING in given else words_in(given)
    return {
        column.name for column in source.columns if words is None or column.name.lower() in words
    }
