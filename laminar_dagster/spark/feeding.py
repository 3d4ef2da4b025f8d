"""The view graph of a pipeline: what reads what, and whether a view emits records or results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final, assert_never

from laminar_dagster.config.fingerprint import relations
from laminar_dagster.config.model import PipelineModel, View
from laminar_dagster.config.operators import stateful_operators
from laminar_dagster.config.relations import (
    Explode,
    Join,
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
from laminar_dagster.core.ids import OperatorId
from laminar_dagster.spark.late_records import readings_through_views

_RESULTS: Final = (
    WindowAggregate
    | KeyedAggregate
    | Ranked
    | Join
    | ReferenceJoin
    | Explode
    | PythonRows
    | PythonKeyed
)


@dataclass(frozen=True, slots=True)
class Feeding:
    """The view graph of one pipeline.

    Attributes:
        published: The views that have a sink.
    """

    model: PipelineModel
    published: Collection[OperatorId]

    def readings(self) -> Counter[str]:
        """How often each source and view is read."""
        found = Counter(name for view in self.model.views for name in _inputs_of(view.query))
        return found + readings_through_views(self.model)

    def staged_views(self) -> tuple[View, ...]:
        """Views with a sink, a contract or state of their own; these read all other views."""
        contracts = {contract.view for contract in self.model.contracts}
        found = tuple(
            view
            for view in self.model.views
            if view.name in self.published
            or view.name in contracts
            or any(stateful_operators(view))
        )
        # Without any, run all views: offsets have to advance even if nothing is published.
        return found or self.model.views

    def is_asked_for(self, view: View) -> bool:
        """Whether a view is staged, or a staged view reads it, directly or through others."""
        if view in self.staged_views():
            return True
        return any(self.is_asked_for(each) for each in self.model.views if view.name in each.reads)

    def is_past_records(self, query: Relation) -> bool:
        """Whether a query emits results, not records: it keeps state, joins or multiplies rows."""
        if any(isinstance(each, _RESULTS) for each in relations(query)):
            return True
        below = filter(None, map(self.view, _inputs_of(query)))
        return any(self.is_past_records(view.query) for view in below)

    def tells_differences(self, query: Relation) -> bool:
        """Whether an epoch emits net differences, so that the order of its rows has no meaning.

        Otherwise rows are a sequence of changes, and the last one of a key wins.
        """
        match query:
            case WindowAggregate() | KeyedAggregate() | Ranked() | Join():
                return True
            case UnionAll(parts):
                return all(map(self.tells_differences, parts))
            case TableInput(name):
                below = self.view(name)
                return below is not None and self.tells_differences(below.query)
            case PythonKeyed():
                return False
            case Select() | ReferenceJoin() | ReferenceValue() | Explode() | PythonRows():
                return self.tells_differences(query.source)
            case _:
                assert_never(query)

    def sources_of(self, query: Relation) -> tuple[str, ...]:
        """The sources below a query, through other views too; once for every time one is read."""
        found: list[str] = []
        for name in _inputs_of(query):
            below = self.view(name)
            found += self.sources_of(below.query) if below else (name,)
        return tuple(found)

    def view(self, name: str) -> View | None:
        """The view of that name; None if it is a source."""
        return next((view for view in self.model.views if view.name == name), None)


def _inputs_of(query: Relation) -> Iterator[str]:
    """The sources and views that a query names, once for every mention."""
    for relation in relations(query):
        if isinstance(relation, TableInput):
            yield relation.name
