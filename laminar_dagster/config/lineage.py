"""Column lineage: which columns of its inputs each column of a view is computed from.

One level deep: a view is traced to the sources and views that it reads, through the queries nested
in it. Expressions that only select or group rows do not count: WHERE, HAVING, and for aggregates
the keys and window of their group. ``COUNT(*)`` is computed from no column.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from laminar_dagster.config.mistakes import Report
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.config.operators import time_of
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
    WindowAggregate,
)
from laminar_dagster.config.sql.changelog import WEIGHT
from laminar_dagster.config.sql.dialect import parse_expression
from laminar_dagster.config.sql.expressions import Clause, Expressions
from laminar_dagster.config.sql.functions import WINDOW_COLUMNS
from laminar_dagster.config.sql.scope import Output, Scope
from laminar_dagster.config.sql.text import SqlText


class InputColumn(NamedTuple):
    """A column of a source or view, both as they are declared."""

    relation: str
    column: str


Lineage = Mapping[str, Mapping[str, tuple[InputColumn, ...]]]
_Origins = Mapping[str, frozenset[InputColumn]]


def column_lineage(model: PipelineModel) -> Lineage:
    """The input columns, sorted, of each column of each view, in the order of both.

    An expression that cannot be read counts as computed from every column of its input: lineage
    may name too many columns, never too few.
    """
    tables: dict[str, Sequence[str]] = {
        str(each.source_id): [column.name for column in each.columns] for each in model.sources
    }
    tables |= {
        str(each.reference_id): [column.name for column in each.columns]
        for each in model.references
    }
    tables |= {str(each.name): each.columns for each in model.views}
    return {
        str(view.name): {
            column: tuple(sorted(origins)) for column, origins in _trace(view.query, tables).items()
        }
        for view in model.views
    }


def _trace(relation: Relation, tables: Mapping[str, Sequence[str]]) -> _Origins:
    """What each column of a relation is computed from."""
    match relation:
        case TableInput(name):
            return {each: frozenset({InputColumn(name, each)}) for each in tables[name]}
        case Select():
            inside = _trace(relation.source, tables)
            return {each.name: _origins(each.sql, inside) for each in relation.columns}
        case WindowAggregate() | KeyedAggregate():
            group = _trace_group(relation, _trace(relation.source, tables))
            return {each.name: _origins(each.sql, group) for each in relation.columns}
        case Ranked():
            inside = _trace(relation.source, tables)
            found = {each.name: _origins(each.sql, inside) for each in relation.columns}
            own = (WEIGHT,) if relation.rank is None else (relation.rank, WEIGHT)
            return {**found, **dict.fromkeys(own, frozenset())}
        case Join():
            found = {WEIGHT: frozenset[InputColumn]()} if relation.is_weighed else {}
            for side in relation.sides:
                inside = _trace_side(side, tables)
                found |= {each.name: _origins(each.sql, inside) for each in side.columns}
            return found
        case ReferenceJoin():
            inside, table = _trace(relation.source, tables), relation.table
            there = {each: frozenset({InputColumn(table, each)}) for each in tables[table]}
            return {
                **({WEIGHT: inside[WEIGHT]} if relation.is_weighed else {}),
                **{each.name: _origins(each.sql, inside) for each in relation.columns},
                **{each.name: _origins(each.sql, there) for each in relation.found},
            }
        case ReferenceValue():
            there = {
                each: frozenset({InputColumn(relation.table, each)})
                for each in tables[relation.table]
            }
            value = _origins(relation.value, there, grouped=True)
            return {**_trace(relation.source, tables), relation.name: value}
        case Explode():
            inside = _trace(relation.source, tables)
            items = _origins(relation.items, inside)
            return {
                **({WEIGHT: inside[WEIGHT]} if relation.is_weighed else {}),
                **{each.name: _origins(each.sql, inside) for each in relation.columns},
                **{each.name: items for each in relation.found},
            }
        case PythonRows():
            # Python code is not analysed: each column may come from every input column.
            every = frozenset().union(*_trace(relation.source, tables).values())
            return dict.fromkeys(relation.columns, every)
        case PythonKeyed():
            return _trace_operator(relation, _trace(relation.source, tables))
        case UnionAll(parts):
            traced = [_trace(part, tables) for part in parts]
            by_position = zip(*(each.values() for each in traced), strict=True)
            return {
                name: frozenset().union(*origins)
                for name, origins in zip(traced[0], by_position, strict=True)
            }


def _trace_operator(query: PythonKeyed, inside: _Origins) -> _Origins:
    """Keys and event time pass through; any other column may come from every input column."""
    own = {each.sql: _origins(each.sql, inside) for each in query.keys}
    time = _origins(query.time, inside)
    seen = frozenset().union(time, *own.values(), *(inside[name] for name in query.takes))
    known = [*own.values(), time]
    return {
        name: known[place] if place < len(known) else seen
        for place, name in enumerate(query.columns)
    }


def _trace_side(side: JoinSide, tables: Mapping[str, Sequence[str]]) -> _Origins:
    inside = _trace(side.source, tables)
    if side.window is None:
        return inside
    return {**inside, **dict.fromkeys(WINDOW_COLUMNS, _origins(side.window.time, inside))}


def _trace_group(query: Aggregation, inside: _Origins) -> _Origins:
    """What keys, aggregates and the edges of the window are computed from."""
    time = _origins(time_of(query), inside)
    return {
        WEIGHT: frozenset(),
        **dict.fromkeys(WINDOW_COLUMNS, time),
        **{each.name: _origins(each.sql, inside) for each in query.keys},
        **{
            each.name: frozenset().union(*(_origins(text, inside) for text in each.arguments))
            for each in query.aggregates
        },
    }


def _origins(
    text: str | None, inside: _Origins, *, grouped: bool = False
) -> frozenset[InputColumn]:
    """What an expression over some columns is computed from; None is the ``*`` of COUNT."""
    mentioned = () if text is None else _columns_of(text, tuple(inside), grouped)
    return frozenset().union(*(inside[name] for name in mentioned))


def _columns_of(text: str, known: tuple[str, ...], grouped: bool) -> Collection[str]:
    """The columns that an expression mentions, as they are declared."""
    report = Report()
    scope = _Watched(known)
    for statement in SqlText("", text).statements(report):
        try:
            tree = parse_expression(statement.tokens, text)
        except Exception:
            # sqlglot raises errors of many types on invalid SQL.
            report.add("", "it cannot be read")
            break
        Expressions(statement, "", report).check(tree, scope, Clause("SELECT", grouped))
    return known if report.mistakes else scope.found


class _Watched(Scope):
    """A scope that records the columns looked up. A model's expressions have no qualified names."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        super().__init__("", Output(columns), "the input")
        self.found: set[str] = set()

    def resolve(self, parts: Sequence[str]) -> tuple[int, str] | None:
        resolved = super().resolve(parts)
        if resolved is not None:
            self.found.add(resolved[1])
        return resolved
