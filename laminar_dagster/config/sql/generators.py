"""``explode(…)`` and its like: each row becomes one for every item of a list or map in it.

They occur after LATERAL VIEW or LATERAL, in FROM as UNNEST, or in SELECT as an item of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from laminar_dagster.config.relations import Explode, ExplodeKind, Projection, Select
from laminar_dagster.config.sql.changelog import WEIGHT
from laminar_dagster.config.sql.column_types import item_of, type_of
from laminar_dagster.config.sql.dialect import bare, call_of
from laminar_dagster.config.sql.expressions import Clause
from laminar_dagster.config.sql.generator_refusals import GENERATORS
from laminar_dagster.config.sql.join_refusals import REFERENCES
from laminar_dagster.config.sql.join_scope import LEFT, JoinedScope
from laminar_dagster.config.sql.joins import Input
from laminar_dagster.config.sql.refusal import Refusal
from laminar_dagster.config.sql.refusals import RANKS
from laminar_dagster.config.sql.scope import BROKEN, Output, Scope

if TYPE_CHECKING:
    from laminar_dagster.config.sql.queries import QueryReader

# The kind of each function, and whether rows without items stay.
_FUNCTIONS: Final[Mapping[str, tuple[ExplodeKind, bool]]] = {
    "explode": ("explode", False),
    "explode_outer": ("explode", True),
    "posexplode": ("posexplode", False),
    "posexplode_outer": ("posexplode", True),
    "inline": ("inline", False),
    "inline_outer": ("inline", True),
}
# Spark's default names for the columns of a list.
_UNNAMED: Final[Mapping[ExplodeKind, tuple[str, ...]]] = {
    "explode": ("col",),
    "posexplode": ("pos", "col"),
}


@dataclass(frozen=True, slots=True)
class Generator:
    """A call in FROM that turns one row into several.

    Attributes:
        items: The list or map.
        alias: The name that its columns may be qualified by; empty for none.
        names: The names of its columns.
    """

    kind: ExplodeKind
    keeps_empty: bool
    items: exp.Expr
    alias: str
    names: tuple[str, ...]


# --- in FROM --------------------------------------------------------------------------------------


def generator_of(node: exp.Expr) -> Generator | Refusal | None:
    """The generator in an item of FROM or a JOIN; None if it is a table or a query."""
    if isinstance(node, exp.Lateral):
        return _lateral(node, keeps_empty=bool(node.args.get("outer")))
    table = node.this
    if not isinstance(node, exp.Join) or not isinstance(table, exp.Unnest | exp.Lateral):
        return None
    side, kind = (str(node.args.get(each) or "").upper() for each in ("side", "kind"))
    is_known = side in ("", "LEFT") and kind in ("", "CROSS", "INNER", "OUTER")
    if not is_known or node.args.get("method") or table.args.get("view"):
        return GENERATORS["kind"]
    on = bare(node.args["on"]) if node.args.get("on") else None
    is_open = on is None or (isinstance(on, exp.Boolean) and on.this)
    if not is_open or node.args.get("using"):
        return GENERATORS["condition"]
    if isinstance(table, exp.Lateral):
        return _lateral(table, keeps_empty=side == "LEFT")
    if table.args.get("offset"):
        return GENERATORS["ordinality"]
    if len(table.expressions) != 1:
        return GENERATORS["several"]
    alias, names = _alias(table)
    if not names:
        return GENERATORS["names"]
    return Generator("unnest", side == "LEFT", table.expressions[0], alias, names)


def _lateral(node: exp.Lateral, *, keeps_empty: bool) -> Generator | Refusal:
    if node.args.get("cross_apply") is not None:
        return GENERATORS["kind"]
    if node.args.get("ordinality"):
        return GENERATORS["ordinality"]
    found = _FUNCTIONS.get(call_of(node.this))
    if found is None or len(node.this.expressions) != 1:
        return GENERATORS["function"]
    kind, is_outer = found
    alias, names = _alias(node)
    names = names or _UNNAMED.get(kind, ())
    if not names:
        return GENERATORS["names"]
    return Generator(kind, keeps_empty or is_outer, node.this.expressions[0], alias, names)


def _alias(node: exp.Expr) -> tuple[str, tuple[str, ...]]:
    alias = node.args.get("alias")
    if alias is None:
        return "", ()
    return alias.name, tuple(each.name for each in alias.args.get("columns") or ())


def exploded(reader: QueryReader, left: Input, generator: Generator, where: str) -> Input:
    """An input of a query with each row repeated once for every item of its list or map."""
    report, expressions = reader.report, reader.expressions
    before = len(report.mistakes)
    for refused in _refused_inputs(left):
        report.add(where, refused.problem, refused.instead)
    if generator.alias and generator.alias.lower() in [each.lower() for each in left.scope.aliases]:
        problem = f"two inputs are called `{generator.alias[:80]}`"
        report.add(where, problem, "give one another name")
    expressions.check(generator.items, left.scope, Clause("LATERAL VIEW"))
    names = tuple(reader.checked_name(each, "", where) for each in generator.names)
    twice = next((each for each in names if _count(each, names) > 1), None)
    if twice is not None:
        report.add(where, f"two columns are called `{twice}`", "give one another name")
    types = _item_types(type_of(generator.items, left.scope), generator.kind, names)
    made = Scope(generator.alias, Output(names, types=types), f"`{generator.alias}`")
    scope = JoinedScope(left.scope, made)
    scope.description = left.scope.description
    span = expressions.span(generator.items)
    is_broken = len(report.mistakes) > before or scope.output.unknown
    if is_broken or left.relation is None or span is None:
        scope.output = replace(scope.output, unknown=True)
        return Input(None, scope)
    known = left.scope.output
    is_weighed = WEIGHT in left.scope.columns
    times = {f"{LEFT}{name}": time for name, time in known.times.items()}
    scope.seen(times, hides_right=False, weighs=is_weighed)
    scope.output = replace(
        scope.output,
        required=frozenset(LEFT + each for each in known.required),
        lacks_retractions=known.lacks_retractions,
    )
    relation = Explode(
        source=left.relation,
        items=expressions.text(span),
        kind=generator.kind,
        names=names,
        keeps_empty=generator.keeps_empty,
        is_weighed=is_weighed,
    )
    return Input(relation, scope)


def _item_types(
    kind: exp.DataType | None, how: ExplodeKind, names: Sequence[str]
) -> dict[str, exp.DataType]:
    """The type of a generator's only column, by its name; empty if it is unknown."""
    item = item_of(kind) if how in ("explode", "unnest") and len(names) == 1 else None
    return {names[0]: item} if item is not None else {}


def _count(name: str, names: tuple[str, ...]) -> int:
    return sum(each.lower() == name.lower() for each in names)


def _refused_inputs(left: Input) -> list[Refusal]:
    found = [GENERATORS["window"]] if left.window is not None else []
    found += [RANKS["limit"]] if left.scope.output.rank else []
    return found + ([REFERENCES["alone"]] if left.scope.output.reference else [])


# --- in SELECT ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GeneratedItem:
    """``explode(…)`` as an item of SELECT.

    Attributes:
        place: The position of the item.
        names: The names of its columns.
    """

    kind: ExplodeKind
    keeps_empty: bool
    place: int
    names: tuple[exp.Expr, ...]


def generated_items(node: exp.Select) -> tuple[GeneratedItem, ...]:
    """The items of a SELECT list that turn one row into several."""
    found: list[GeneratedItem] = []
    for place, item in enumerate(node.expressions):
        call = _call(item)
        if call_of(call) in _FUNCTIONS and len(call.expressions) == 1:
            kind, keeps_empty = _FUNCTIONS[call_of(call)]
            found.append(GeneratedItem(kind, keeps_empty, place, _names(item)))
    return tuple(found)


def _names(item: exp.Expr) -> tuple[exp.Expr, ...]:
    if isinstance(item, exp.Aliases):
        return tuple(item.expressions)
    return (item.args["alias"],) if isinstance(item, exp.Alias) else ()


def _call(item: exp.Expr) -> exp.Expr:
    call: exp.Expr = item.this if isinstance(item, exp.Alias | exp.Aliases) else item
    return call


def read_generated(
    reader: QueryReader, node: exp.Select, items: tuple[GeneratedItem, ...], read: Input
) -> tuple[Select | None, Output]:
    """Read a query with ``explode(…)`` in SELECT, over its input.

    It is read as a query that selects the list or map itself, with an ``Explode`` of that column
    on top.
    """
    item, *others = items
    report, before = reader.report, len(reader.report.mistakes)
    for each in others:
        where = reader.expressions.where(node.expressions[each.place])
        report.add(where, GENERATORS["second"].problem, GENERATORS["second"].instead)
    if others:
        return None, BROKEN
    written = node.expressions[item.place]
    if not item.names and not reader.may_lack_names:
        where = reader.expressions.where(written)
        report.add(where, f"`{call_of(written)}(…)` needs a name", "add AS and a name")
    query, output = reader.selected(_with_list(node, item), read, None)
    if not isinstance(query, Select) or len(report.mistakes) > before or output.unknown:
        return None, BROKEN
    first = node.copy()
    first.set("expressions", first.expressions[: item.place])
    place = sum(1 for _ in reader.items(first, read.scope))
    more = ((each.name, reader.expressions.where(each)) for each in item.names[1:])
    names = [output.columns[place], *(reader.checked_name(name, "", at) for name, at in more)]
    names = names if item.names else [*_UNNAMED.get(item.kind, ("",))]
    columns = (*output.columns[:place], *names, *output.columns[place + 1 :])
    if len(names) > 1:
        reader.check_duplicates([*columns], node)
    listed = output.columns[place].lower()
    types = {name: kind for name, kind in output.types.items() if name.lower() != listed}
    types |= _item_types(output.types.get(output.columns[place]), item.kind, names)
    shown = replace(
        output,
        columns=columns,
        times={name: time for name, time in output.times.items() if name != listed},
        required=frozenset(each for each in output.required if each.lower() != listed),
        types=types,
    )
    return _exploded_select(query, item, place, names), shown


def _with_list(node: exp.Select, item: GeneratedItem) -> exp.Select:
    """The query with the list or map itself selected, named like the item's first column."""
    found = node.copy()
    before, after = found.expressions[: item.place], found.expressions[item.place + 1 :]
    listed = _call(found.expressions[item.place]).expressions[0]
    if item.names:
        listed = exp.Alias(this=listed, alias=item.names[0].copy())
    found.set("expressions", [*before, listed, *after])
    return found


def _exploded_select(query: Select, item: GeneratedItem, place: int, names: list[str]) -> Select:
    """A query with one of its columns exploded, and replaced by the columns of the items."""
    # Columns by number: in a query of a UNION ALL two columns may have the same name.
    inside = [
        WEIGHT if each.name == WEIGHT else f"_c{number}"
        for number, each in enumerate(query.columns)
    ]
    made = tuple(f"_i{number}" for number in range(len(names)))
    below = zip(inside, query.columns, strict=True)
    relation = Explode(
        source=replace(query, columns=tuple(Projection(name, each.sql) for name, each in below)),
        items=inside[place],
        kind=item.kind,
        names=made,
        keeps_empty=item.keeps_empty,
        columns=tuple(
            Projection(name, name)
            for number, name in enumerate(inside)
            if number != place and name != WEIGHT
        ),
        found=tuple(Projection(name, name) for name in made),
        is_weighed=WEIGHT in inside,
    )
    kept = [Projection(each.name, name) for name, each in zip(inside, query.columns, strict=True)]
    items = [Projection(name, inner) for name, inner in zip(names, made, strict=True)]
    return Select(relation, (*kept[:place], *items, *kept[place + 1 :]))
