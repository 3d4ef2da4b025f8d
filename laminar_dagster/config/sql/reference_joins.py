"""``FROM stream JOIN reference_table ON …``: each row with its partners in the table.

The epoch's plan pins a snapshot of the table, so a row finds all its partners in its own epoch: no
state is kept for partners that come later.
"""

from __future__ import annotations

from laminar_dagster.config.relations import JoinKind, ReferenceJoin, Relation
from laminar_dagster.config.sql.changelog import WEIGHT
from laminar_dagster.config.sql.join_conditions import Condition, all_of
from laminar_dagster.config.sql.join_refusals import REFERENCES
from laminar_dagster.config.sql.join_scope import LEFT, RIGHT, JoinedScope
from laminar_dagster.config.sql.refusal import Refusal
from laminar_dagster.config.sql.scope import Scope
from laminar_dagster.config.sql.text import quoted


def refused_inputs(left: Scope, right: Scope, *, has_window: bool) -> str:
    """The key of the refusal for a join with a reference table; empty if there is none."""
    if left.output.reference:
        return "both" if right.output.reference else "first"
    return "window" if has_window else ""


def reference_join(
    source: Relation, table: str, kind: JoinKind, scope: JoinedScope, condition: Condition
) -> ReferenceJoin | Refusal:
    """The join of a stream with a reference table, or why its condition is refused."""
    if kind == "right" or kind == "full":
        return REFERENCES[kind]
    if not condition.keys:
        return REFERENCES["keys"]
    if condition.times or condition.compared or condition.rest or condition.alone[RIGHT]:
        return REFERENCES["condition"]
    names = {quoted(each).lower(): each for each in scope.right.columns}
    matches: list[str] = []
    for _, text in condition.keys:
        column = names.get(text.lower()) or names.get(quoted(text).lower())
        if column is None:
            return REFERENCES["expression"]
        matches.append(column)
    if len(set(matches)) != len(matches):
        return REFERENCES["twice"]
    is_weighed = WEIGHT in scope.left.columns
    if is_weighed and scope.right.output.reference == "unweighed":
        return REFERENCES["weight"]
    times = {f"{LEFT}{name}": time for name, time in scope.left.output.times.items()}
    scope.seen(times, hides_right=kind in ("semi", "anti"), weighs=is_weighed)
    return ReferenceJoin(
        source=source,
        table=table,
        kind=kind,
        keys=tuple(text for text, _ in condition.keys),
        matches=tuple(matches),
        where=all_of(condition.alone[LEFT]),
        is_weighed=is_weighed,
    )
