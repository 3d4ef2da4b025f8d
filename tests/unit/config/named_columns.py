"""Holds a query's relations against each other: each may name only what the one below gives.

The loader drops columns that nobody asks for, and writes expressions as text. A column that is
named in such a text and was dropped below is told by Spark alone, when the pipeline runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import assert_never

from laminar_dagster.config.mistakes import Report
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.config.relations import (
    Aggregation,
    Explode,
    Join,
    KeyedAggregate,
    Projection,
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
from laminar_dagster.config.sql.changelog import WEIGHT
from laminar_dagster.config.sql.dialect import parse_expression
from laminar_dagster.config.sql.expressions import Clause, Expressions
from laminar_dagster.config.sql.functions import WINDOW_COLUMNS
from laminar_dagster.config.sql.scope import Output, Scope
from laminar_dagster.config.sql.text import SqlText

Names = Sequence[str]


def lost_columns(model: PipelineModel, view: str) -> list[str]:
    """What the relations of a view name although nothing below them gives it, in words."""
    tables: dict[str, Names] = {
        **{each.source_id: [column.name for column in each.columns] for each in model.sources},
        **{
            each.reference_id: [column.name for column in each.columns] for each in model.references
        },
        **{each.name: each.columns for each in model.views},
    }
    checked = _Check(tables)
    (found,) = (each for each in model.views if each.name == view)
    given = checked.given(found.query)
    if tuple(given) != found.columns:
        checked.lost.append(f"the view is said to have {found.columns}, and has {given}")
    return checked.lost


class _Check:
    """Goes through a tree of relations, and notes what is lost in it."""

    def __init__(self, tables: Mapping[str, Names]) -> None:
        self._tables = tables
        self.lost: list[str] = []

    def given(self, relation: Relation) -> Names:
        """The columns that a relation gives, after a look at what it and those below it name."""
        match relation:
            case TableInput(name):
                return self._tables[name]
            case Select():
                below = self.given(relation.source)
                self._hold(relation, _texts(relation.columns, relation.where), below)
                return _names(relation.columns)
            case WindowAggregate() | KeyedAggregate():
                return self._aggregation(relation)
            case Ranked():
                below = self.given(relation.source)
                texts = _texts(
                    (*relation.keys, *relation.columns),
                    relation.where,
                    relation.time,
                    relation.weight,
                    *(each.sql for each in relation.order),
                )
                self._hold(relation, texts, below)
                own = [relation.rank] if relation.rank is not None else []
                return [*_names(relation.columns), *own, WEIGHT]
            case Join():
                return self._join(relation)
            case ReferenceJoin():
                below, table = self.given(relation.source), self._tables[relation.table]
                texts = _texts(relation.columns, relation.where, *relation.keys)
                self._hold(relation, [*texts, *_weight(relation)], below)
                self._hold(relation, [*relation.matches, *_texts(relation.found)], table)
                is_left_alone = relation.kind in ("semi", "anti")
                found = () if is_left_alone else relation.found
                return [*_names((*relation.columns, *found)), *_weight(relation)]
            case ReferenceValue():
                table = self._tables[relation.table]
                self._hold(relation, [relation.value], table, grouped=True)
                self._hold(relation, _texts((), relation.where), table)
                return [*self.given(relation.source), relation.name]
            case Explode():
                below = self.given(relation.source)
                texts = [relation.items, *_texts(relation.columns), *_weight(relation)]
                self._hold(relation, texts, below)
                self._hold(relation, _texts(relation.found), relation.names)
                return [*_names((*relation.columns, *relation.found)), *_weight(relation)]
            case UnionAll(parts):
                first, *others = [self.given(part) for part in parts]
                if any(len(each) != len(first) for each in others):
                    self.lost.append(f"UnionAll: its parts have {[first, *others]}")
                return first
            case PythonRows():
                self.given(relation.source)
                return relation.columns
            case PythonKeyed():
                below = self.given(relation.source)
                texts = _texts(relation.keys, relation.time, *relation.takes)
                self._hold(relation, texts, below)
                return relation.columns
            case _:
                assert_never(relation)

    def _aggregation(self, query: Aggregation) -> Names:
        below = self.given(query.source)
        time = query.time if isinstance(query, KeyedAggregate) else None
        texts = _texts(query.keys, query.where, query.weight, time, _time_of(query.window))
        arguments = [text for each in query.aggregates for text in each.arguments]
        self._hold(query, [*texts, *arguments], below)
        own = [*_names(query.keys), *(each.name for each in query.aggregates)]
        is_changing = isinstance(query, KeyedAggregate) and query.emits == "changes"
        is_whole = isinstance(query, KeyedAggregate) and query.kind == "group"
        own += [*(() if is_whole else WINDOW_COLUMNS), *((WEIGHT,) if is_changing else ())]
        self._hold(query, _texts(query.columns, query.having), own)
        return _names(query.columns)

    def _join(self, join: Join) -> Names:
        for side in join.sides:
            below = self.given(side.source)
            self._hold(join, _texts((), _time_of(side.window)), below)
            edges = WINDOW_COLUMNS if side.window is not None else ()
            texts = _texts(side.columns, side.where, side.time, side.weight)
            self._hold(join, [*texts, *side.keys, *side.operands], [*below, *edges])
        both = _names((*join.left.columns, *join.right.columns))
        self._hold(join, _texts((), join.condition), both)
        shown = _names(join.left.columns) if join.kind in ("semi", "anti") else both
        return [*shown, *([WEIGHT] if join.is_weighed else [])]

    def _hold(
        self, relation: Relation, texts: Iterable[str], given: Names, *, grouped: bool = False
    ) -> None:
        """Note which of some expressions cannot be computed from the columns that are given."""
        scope = Scope("", Output(tuple(given)), f"what is below {type(relation).__name__}")
        for text in texts:
            report = Report()
            for statement in SqlText("", text).statements(report):
                tree = parse_expression(statement.tokens, text)
                Expressions(statement, "", report).check(tree, scope, Clause("SELECT", grouped))
            self.lost += [f"{text}: {each.problem}; {list(given)}" for each in report.mistakes]


def _names(columns: Iterable[Projection]) -> list[str]:
    return [each.name for each in columns]


def _texts(columns: Iterable[Projection], *others: str | None) -> list[str]:
    return [each.sql for each in columns] + [each for each in others if each is not None]


def _time_of(window: Window | None) -> str | None:
    return window.time if window is not None else None


def _weight(relation: ReferenceJoin | Explode) -> Iterator[str]:
    if relation.is_weighed:
        yield WEIGHT
