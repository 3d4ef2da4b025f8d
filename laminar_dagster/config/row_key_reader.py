"""Derives keys and rules of rows from the queries of a pipeline; see ``row_keys``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Final, assert_never

from laminar_dagster.config.connectors import SourceTraits
from laminar_dagster.config.model import ReferenceTable, SourceTable, View
from laminar_dagster.config.references import REFRESH
from laminar_dagster.config.relations import (
    Aggregation,
    Explode,
    Join,
    JoinSide,
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
from laminar_dagster.config.row_key_expressions import (
    chooses_arrivals,
    equality,
    expression_tree,
    is_name,
    plain_column,
    rules_of,
    told_column,
    used_columns,
    words_of,
)
from laminar_dagster.config.row_keys import NOTHING, Attributes, Certainty, Rows, Rule
from laminar_dagster.config.sql.changelog import WEIGHT
from laminar_dagster.config.sql.join_conditions import conjuncts
from laminar_dagster.core.ids import SourceId

_TABLE: Final = "_table"
_START, _END = "window_start", "window_end"


class RowReader:
    """Derives the ``Rows`` of relations and views from the queries of a pipeline."""

    def __init__(
        self,
        sources: Iterable[SourceTable],
        views: Iterable[View],
        references: Iterable[ReferenceTable] = (),
        traits: Mapping[SourceId, SourceTraits] | None = None,
    ) -> None:
        """Take the tables and views.

        Args:
            sources: Whose rows the views read.
            views: All views, in any order.
            references: The tables they are joined with.
            traits: Traits of the sources by their connectors; the default traits for the others.
        """
        self._sources = {str(each.source_id).lower(): each for each in sources}
        self._views = {str(each.name).lower(): each for each in views}
        self._references = {str(each.reference_id).lower(): each for each in references}
        self._traits = traits or {}
        self._next = count()
        self._known: dict[str, Rows] = {}

    def of_view(self, name: str) -> Rows:
        """The rows of a view, with fresh attributes at every call."""
        key = name.lower()
        if key not in self._known:
            self._known[key] = self._read(self._views[key].query)
        return self._fresh(self._known[key])

    def is_lasting(self, relation: Relation) -> bool:
        """Whether a relation has no retractions."""
        return self._read(relation).is_lasting

    def _read(self, relation: Relation) -> Rows:
        match relation:
            case TableInput(name):
                return self._table(name)
            case Select():
                return self._select(relation)
            case WindowAggregate() | KeyedAggregate():
                return self._group(relation)
            case Ranked():
                return self._ranked(relation)
            case Join():
                return self._join(relation)
            case ReferenceJoin():
                return self._reference_join(relation)
            case ReferenceValue():
                rows = self._read(relation.source)
                columns = {**rows.columns, relation.name: next(self._next)}
                return replace(
                    rows, columns=columns, may_linger=self._may_linger(rows, relation.table)
                )
            case Explode():
                return self._explode(relation)
            case UnionAll(parts):
                return self._union([self._read(each) for each in parts])
            case PythonRows() | PythonKeyed():
                given = self._read(relation.source)
                keeps = WEIGHT in relation.columns and not given.is_lasting
                columns = {each: next(self._next) for each in relation.columns}
                return Rows(columns, is_lasting=not keeps, is_replaced=given.is_replaced and keeps)
            case _:
                assert_never(relation)

    # --- tables -----------------------------------------------------------------------------------

    def _table(self, name: str) -> Rows:
        if name.lower() in self._views:
            return self.of_view(name)
        source = self._sources[name.lower()]
        traits = self._traits.get(source.source_id, SourceTraits())
        columns = {each.name: next(self._next) for each in source.columns}
        types = {columns[each.name]: each.type.lower() for each in source.columns}
        rows = Rows(
            columns,
            types,
            is_lasting=WEIGHT not in columns,
            is_replaced=traits.replaces_rows,
            may_linger=traits.replaces_rows or (WEIGHT in columns and source.watermark is not None),
        )
        if not source.key:
            return rows
        key = frozenset(columns[each] for each in source.key)
        if _is_of_several(source) and _TABLE not in columns:
            return rows
        if _is_of_several(source):
            key |= {columns[_TABLE]}
        # A key of messages that anybody may write is only a claim, so rows are counted by it. Not
        # where rows replace each other: there a second row of a key looks like an update.
        is_sure = traits.enforces_keys or traits.replaces_rows
        return replace(rows, keys=(key,) if is_sure else (), grain=key)

    # --- one input --------------------------------------------------------------------------------

    def _select(self, query: Select) -> Rows:
        rows = self._filtered(self._read(query.source), query.where)
        rows = self._projected(rows, query.columns)
        is_shown = any(each.name == WEIGHT for each in query.columns)
        if rows.is_lasting or (is_shown and WEIGHT not in words_of(query.where or "")):
            return rows
        # The query selects from the log of changes: rows stay in it after their retraction.
        is_lasting = not is_shown or chooses_arrivals(query.where)
        return replace(rows.as_history(), is_lasting=is_lasting)

    def _projected(self, rows: Rows, projections: Iterable[Projection]) -> Rows:
        columns: dict[str, int] = {}
        types, rules = dict(rows.types), [*rows.rules]
        for each in projections:
            # Do not parse plain columns: there may be thousands of them.
            plain = rows.columns.get(each.sql) if is_name(each.sql) else None
            tree = expression_tree(each.sql) if plain is None else None
            plain = plain_column(tree, rows) if plain is None else plain
            if plain is not None:
                columns[each.name] = plain
                continue
            made = columns[each.name] = next(self._next)
            used = used_columns(tree, each.sql, rows)
            if used is not None:
                rules.append(Rule(used, frozenset({made}), Certainty.ALWAYS))
                # The reverse may hold by chance: UPPER(name) if no names differ only in case.
                rules.append(Rule(frozenset({made}), used, Certainty.POSSIBLE))
            told = told_column(tree, rows)
            if told is not None:
                column, types[made] = told
                rules.append(Rule(frozenset({made}), frozenset({column}), Certainty.ALWAYS))
        return replace(rows, columns=columns, types=types, rules=tuple(rules))

    def _filtered(self, rows: Rows, where: str | None) -> Rows:
        """The rows that meet a condition, with the rules that follow from it."""
        tree = expression_tree(where) if where else None
        if tree is None:
            return rows
        rules = [*rows.rules]
        for each in conjuncts(tree):
            rules += rules_of(each.unnest(), rows)
        return replace(rows, rules=tuple(rules))

    def _explode(self, query: Explode) -> Rows:
        rows = self._projected(self._read(query.source), query.columns)
        columns = {**rows.columns, **{each.name: next(self._next) for each in query.found}}
        if query.is_weighed:
            columns[WEIGHT] = next(self._next)
        rules = (*rows.rules, *rows.key_rules())
        return replace(rows, columns=columns, rules=rules, keys=(), grain=None)

    def _union(self, parts: list[Rows]) -> Rows:
        columns = {name: next(self._next) for name in parts[0].columns}
        rules: list[Rule] = []
        for part in parts:
            # A rule of one part may hold for the whole union.
            rules += (*part.rules, *part.key_rules())
            for one, other in zip(columns.values(), part.columns.values(), strict=True):
                rules += equality(one, other, Certainty.POSSIBLE)
        return Rows(
            columns,
            rules=_possible(rules),
            is_lasting=all(each.is_lasting for each in parts),
            is_replaced=any(each.is_replaced for each in parts),
            may_linger=any(each.may_linger for each in parts),
        )

    # --- groups -----------------------------------------------------------------------------------

    def _group(self, query: Aggregation) -> Rows:
        rows = self._filtered(self._read(query.source).without_lingering(), query.where)
        is_final = isinstance(query, WindowAggregate) or query.emits == "close"
        if is_final or query.weight is None:
            rows = rows.as_history()
        rows = replace(rows, rules=(*rows.rules, *rows.key_rules()))
        keys = self._projected(rows, query.keys)
        grain = frozenset(keys.columns.values())
        columns, rules = dict(keys.columns), [*keys.rules]
        rivals = [grain]
        types = dict(keys.types)
        if isinstance(query, WindowAggregate) or query.kind != "group":
            start, end = next(self._next), next(self._next)
            columns |= {_START: start, _END: end}
            types |= {start: "timestamp", end: "timestamp"}
            rules += _edges(query, grain, start, end, rows)
            rivals = [grain | {end}] if _grows(query.window) else [grain | {start}, grain | {end}]
            grain = rivals[-1]
        aggregates = {each.name: next(self._next) for each in query.aggregates}
        # An aggregate may determine its group by chance, such as the MAX of a grouping key.
        rules += [
            Rule(frozenset({each}), grain, Certainty.POSSIBLE) for each in aggregates.values()
        ]
        columns |= {**aggregates, WEIGHT: next(self._next)}
        group = replace(
            keys,
            columns=columns,
            types=types,
            rules=tuple(rules),
            keys=tuple(rivals),
            grain=grain,
            is_lasting=is_final,
            is_replaced=False,
        )
        # Aggregates need no rules of their own: they follow from the key.
        return self._projected(self._filtered(group, query.having), query.columns)

    def _ranked(self, query: Ranked) -> Rows:
        rows = self._filtered(self._read(query.source).without_lingering(), query.where)
        if query.weight is None:
            rows = rows.as_history()
        rows = replace(rows, rules=(*rows.rules, *rows.key_rules()))
        keys = self._projected(rows, query.keys)
        of_key = frozenset(keys.columns.values())
        # Over the same attributes as the keys, so that rules link keys and output columns.
        shown = self._projected(replace(keys, columns=rows.columns), query.columns)
        rank, columns = next(self._next), dict(shown.columns)
        if query.rank is not None:
            columns[query.rank] = rank
        columns[WEIGHT] = next(self._next)
        first = of_key if query.limit == 1 else of_key | {rank}
        types = {**shown.types, rank: "int"}
        constant = (Rule(NOTHING, frozenset({rank}), Certainty.ALWAYS),) if query.limit == 1 else ()
        return replace(
            shown,
            columns=columns,
            types=types,
            rules=(*shown.rules, *constant),
            keys=(first, *rows.keys),
            grain=None if rows.keys else first,
            is_lasting=False,
            is_replaced=False,
        )

    # --- joins ------------------------------------------------------------------------------------

    def _join(self, query: Join) -> Rows:
        left, right = (self._side(each) for each in query.sides)
        is_lasting = left.is_lasting and right.is_lasting and not _may_change(query)
        shown = (
            self._projected(left, query.left.columns),
            self._projected(right, query.right.columns),
        )
        columns = dict(shown[0].columns)
        if query.kind not in ("semi", "anti"):
            columns |= shown[1].columns
        if query.is_weighed:
            columns[WEIGHT] = next(self._next)
        pairs = _equal_pairs(query, left, right)
        of_left = (*shown[0].rules, *left.key_rules())
        of_right = (*shown[1].rules, *right.key_rules())
        # Otherwise the inputs' keys do not hold: a pair that is emitted once is not retracted, and
        # rows past the bounds are dropped before their retraction may come.
        is_exact = is_lasting or (query.emits == "changes" and query.bounds is None)
        # NULLs of a missing partner break the rules of an outer join's other side.
        rules: tuple[Rule, ...] = _possible((*of_left, *of_right, *pairs))
        if is_exact and query.kind in ("inner", "left", "semi", "anti"):
            rules += of_left
        if is_exact and query.kind in ("inner", "right"):
            rules += of_right
        if query.kind == "inner":
            rules += pairs
        keys = _keys_of_join(query, left, right, pairs) if is_exact else ()
        types = {**shown[0].types, **shown[1].types}
        is_replaced = left.is_replaced or right.is_replaced
        return Rows(columns, types, rules, keys, None, is_lasting, is_replaced)

    def _side(self, side: JoinSide) -> Rows:
        rows = self._read(side.source).without_lingering()
        if side.window is not None:
            start, end = next(self._next), next(self._next)
            rows = replace(rows, columns={**rows.columns, _START: start, _END: end})
            if not _grows(side.window):
                rules = (
                    Rule(frozenset({start}), frozenset({end}), Certainty.ALWAYS),
                    Rule(frozenset({end}), frozenset({start}), Certainty.ALWAYS),
                )
                rows = replace(rows, rules=(*rows.rules, *rules))
            if side.window.slide_micros != side.window.size_micros or side.window.grows:
                # A row is in several windows, once in each.
                keys = tuple(each | {end} for each in rows.keys)
                rows = replace(rows, keys=keys, grain=None)
        return rows

    def _reference_join(self, query: ReferenceJoin) -> Rows:
        rows, table = self._read(query.source), self._references[query.table.lower()]
        names = {each.name: next(self._next) for each in table.columns}
        there = Rows(names, {names[each.name]: each.type.lower() for each in table.columns})
        kept = self._projected(rows, query.columns)
        found = self._projected(there, query.found)
        columns = dict(kept.columns)
        if query.is_weighed:
            columns[WEIGHT] = next(self._next)
        kept = replace(kept, may_linger=self._may_linger(rows, query.table))
        if query.kind in ("semi", "anti"):
            return replace(kept, columns=columns)
        columns |= found.columns
        of_table = frozenset(names[each] for each in table.key)
        # Keys of one type, or whole numbers, are compared: a value matches at most one row.
        is_single = bool(table.key) and {*table.key} <= {*query.matches}
        rules = [*kept.rules]
        if is_single:
            certainty = Certainty.ALWAYS if _never_changes(table) else Certainty.POSSIBLE
            asked = [used_columns(expression_tree(each), each, rows) for each in query.keys]
            # The join keys determine every column of the table's row, or NULLs in a LEFT JOIN.
            if all(each is not None for each in asked) and not query.where:
                given = NOTHING.union(*(each for each in asked if each is not None))
                rules.append(Rule(given, frozenset(names.values()), certainty))
            keys = rows.keys
        else:
            keys = tuple(each | of_table for each in rows.keys) if table.key else ()
        types = {**kept.types, **found.types}
        return replace(
            kept,
            columns=columns,
            types=types,
            # In a LEFT JOIN a missing partner makes every column NULL, even COALESCE(x, 0).
            rules=(*rules, *(found.rules if query.kind == "inner" else _possible(found.rules))),
            keys=keys,
            grain=rows.grain if is_single else None,
        )

    def _may_linger(self, rows: Rows, table: str) -> bool:
        """Whether a retraction may join another partner than its row did, so that the row stays."""
        changes = not _never_changes(self._references[table.lower()])
        return rows.may_linger or (changes and not rows.is_lasting)

    def _fresh(self, rows: Rows) -> Rows:
        """The same rows with fresh attributes, so that a view may be joined with itself."""
        made: dict[int, int] = {}

        def of(attribute: int) -> int:
            if attribute not in made:
                made[attribute] = next(self._next)
            return made[attribute]

        def all_of(attributes: Attributes) -> Attributes:
            return frozenset(map(of, attributes))

        return replace(
            rows,
            columns={name: of(each) for name, each in rows.columns.items()},
            types={of(each): kind for each, kind in rows.types.items()},
            rules=tuple(
                Rule(all_of(each.given), all_of(each.follow), each.certainty) for each in rows.rules
            ),
            keys=tuple(map(all_of, rows.keys)),
            grain=all_of(rows.grain) if rows.grain is not None else None,
        )


def _is_of_several(source: SourceTable) -> bool:
    """Whether a source may read several tables, in each of which the key is unique by itself."""
    tables = source.options.get("tables", "") + source.options.get("topic", "")
    return bool(set(tables) & set(",*")) or "topic.pattern" in source.options


def _never_changes(table: ReferenceTable) -> bool:
    return table.options.get(REFRESH) == "never"


def _grows(window: Window | None) -> bool:
    return window is not None and window.grows


def _edges(
    query: Aggregation, keys: Attributes, start: int, end: int, rows: Rows
) -> Iterator[Rule]:
    """Rules between the edges of a window, and from event time to the edges."""
    window, starts, ends = query.window, frozenset({start}), frozenset({end})
    if window is None:
        # No two sessions of a key share a start or an end.
        yield Rule(keys | starts, ends, Certainty.NOW)
        yield Rule(keys | ends, starts, Certainty.NOW)
        return
    yield Rule(ends, starts, Certainty.ALWAYS)
    if window.grows:
        return
    yield Rule(starts, ends, Certainty.ALWAYS)
    time = used_columns(expression_tree(window.time), window.time, rows)
    if time is not None and window.size_micros == window.slide_micros:
        yield Rule(time, starts | ends, Certainty.ALWAYS)


def _may_change(query: Join) -> bool:
    """Whether a join may retract a row that it emitted, though its inputs have no retractions."""
    return query.emits == "changes" and query.kind not in ("inner", "semi")


def _equal_pairs(query: Join, left: Rows, right: Rows) -> tuple[Rule, ...]:
    """Rules between the columns of both sides that an equality of the join compares."""
    rules: list[Rule] = []
    for ours, theirs in zip(query.left.keys, query.right.keys, strict=True):
        trees = expression_tree(ours), expression_tree(theirs)
        one, other = plain_column(trees[0], left), plain_column(trees[1], right)
        if one is not None and other is not None:
            # Certain: the engine joins by values of one type, or by whole numbers.
            rules += equality(one, other, Certainty.ALWAYS)
            continue
        used = used_columns(trees[0], ours, left), used_columns(trees[1], theirs, right)
        if used[0] is not None and used[1] is not None:
            rules.append(Rule(used[0], used[1], Certainty.POSSIBLE))
            rules.append(Rule(used[1], used[0], Certainty.POSSIBLE))
    return tuple(rules)


def _keys_of_join(
    query: Join, left: Rows, right: Rows, pairs: tuple[Rule, ...]
) -> tuple[Attributes, ...]:
    """The keys of a join's rows: a row of either side comes once with each of its partners."""
    if query.kind in ("semi", "anti"):
        return left.keys
    if query.kind == "full":
        # NULL keys are ambiguous: a left row with NULL keys may equal a right row with NULL keys.
        return ()
    both = [one | other for one in left.keys[:4] for other in right.keys[:4]]
    joined = NOTHING.union(*(each.follow for each in pairs if each.certainty == Certainty.ALWAYS))
    # A row has at most one partner if the equalities cover a key of the other side.
    if query.kind in ("inner", "left") and any(each <= joined for each in right.keys):
        both = [*left.keys, *both]
    if query.kind in ("inner", "right") and any(each <= joined for each in left.keys):
        both = [*right.keys, *both]
    return tuple(dict.fromkeys(both))


def _possible(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    return tuple(replace(each, certainty=Certainty.POSSIBLE) for each in rules)
