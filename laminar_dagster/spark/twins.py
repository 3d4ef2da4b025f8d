"""Shared pre-aggregation: operators with equal partials over equal records compute them once.

Only the step from records to partials is shared, which is where an epoch's time goes. State is not:
each operator merges the partials into its own. So adding, changing or removing one of several equal
views never affects the state of the others, and a deploy needs no special case for it.
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
    """A key that is equal for operators with equal partials; None for one that shares none.

    HAVING and the output columns apply after the state, so they are not compared. An operator over
    another of the same view shares nothing: the one below has state of its own to carry on.
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
    """How many operators have each partials key."""
    keys = (partials_key(query) for view in model.views for _, query in stateful_operators(view))
    return Counter(key for key in keys if key is not None)
