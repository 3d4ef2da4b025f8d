"""Column pruning of joins: a join keeps only the columns that the query over it uses."""

from __future__ import annotations

from dataclasses import replace

from laminar_dagster.config.relations import (
    Explode,
    Join,
    Projection,
    Query,
    ReferenceJoin,
    ReferenceValue,
    Relation,
    UnionAll,
)
from laminar_dagster.config.sql.join_scope import LEFT, RIGHT, JoinedScope, kept
from laminar_dagster.config.sql.scope import Scope
from laminar_dagster.config.sql.text import quoted


def with_used_columns(query: Query, scope: Scope) -> Query:
    """A query whose join keeps only the columns that are used."""
    if isinstance(query, UnionAll) or not isinstance(scope, JoinedScope):
        return query
    return replace(query, source=_kept_below(query.source, scope))


def _keeping(
    join: Join | ReferenceJoin | Explode, scope: JoinedScope
) -> Join | ReferenceJoin | Explode:
    left, right = _used(scope, LEFT), _used(scope, RIGHT)
    if isinstance(join, ReferenceJoin | Explode):
        source = _kept_below(join.source, scope.left)
        return replace(join, source=source, columns=left, found=right)
    sources = _kept_below(join.left.source, scope.left), _kept_below(join.right.source, scope.right)
    return replace(
        join,
        left=replace(join.left, source=sources[0], columns=left),
        right=replace(join.right, source=sources[1], columns=right),
    )


def _used(scope: JoinedScope, side: str) -> tuple[Projection, ...]:
    return tuple(Projection(side + each, quoted(each)) for each in kept(scope.used, side))


def _kept_below(source: Relation, scope: Scope) -> Relation:
    """The source of a query; in it joins, and relations like them, keep only used columns."""
    if isinstance(source, Join | ReferenceJoin | Explode) and isinstance(scope, JoinedScope):
        return _keeping(source, scope)
    if isinstance(source, ReferenceValue):
        return replace(source, source=_kept_below(source.source, scope))
    return source
