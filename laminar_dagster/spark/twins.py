"""Operators of several views that make the same of the same records: it is made once.

What is shared is the way from records to partials, which is where an epoch's time goes. State is
not: each operator adds the partials to its own. So a view that comes to equal another, or no longer
does, or goes, takes nothing from anybody, and a deploy needs to know nothing of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace

from laminar_dagster.config.fingerprint import relations
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.config.operators import stateful_operators
from laminar_dagster.config.relations import (
    Keeper,
    KeyedAggregate,
    Ranked,
    Select,
    TableInput,
    UnionAll,
    WindowAggregate,
)


def partials_key(query: Keeper) -> Hashable | None:
    """Equal for operators that make equal partials; None for one that keeps to itself.

    HAVING and the output come after the state, and so do not count. An operator over another of the
    same view keeps to itself: the one below has its own state, which has to go on.
    """
    if not isinstance(query, WindowAggregate | KeyedAggregate | Ranked):
        return None
    plain = TableInput | Select | UnionAll
    if not all(isinstance(each, plain) for each in relations(query.source)):
        return None
    if isinstance(query, Ranked):
        return query
    return replace(query, columns=(), having=None)


def twins(model: PipelineModel) -> Counter[Hashable]:
    """How many operators make the same partials."""
    keys = (partials_key(query) for view in model.views for _, query in stateful_operators(view))
    return Counter(key for key in keys if key is not None)
