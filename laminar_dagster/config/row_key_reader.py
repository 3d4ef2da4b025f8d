"""Finds out what the queries of a pipeline say of their rows; see ``row_keys``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Final, assert_never

from sqlglot import exp

from laminar_dagster.config.connectors import SourceTraits
from laminar_dagster.config.determinism import MOVING_TIMES, RANDOM, SIDE_EFFECT, WALL_CLOCK
from laminar_dagster.config.mistakes import Report
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
from laminar_dagster.config.row_keys import NOTHING, Attributes, Certainty, Rows, Rule
from laminar_dagster.config.sql.changelog import WEIGHT
from laminar_dagster.config.sql.dialect import call_of, parse_expression
from laminar_dagster.config.sql.functions import LOGICAL_CLOCK
from laminar_dagster.config.sql.join_conditions import conjuncts
from laminar_dagster.config.sql.text import SqlText
from laminar_dagster.core.ids import SourceId

_TABLE: Final = "_table"
_START, _END = "window_start", "window_end"
# Equal arguments do not make them equal.
_MOVING: Final = WALL_CLOCK | RANDOM | SIDE_EFFECT | MOVING_TIMES
_UNEQUAL: Final = _MOVING | {LOGICAL_CLOCK, "unix_timestamp", "aes_encrypt"}
_WORD: Final = re.compile(r"\w+")
_EXACT: Final = re.compile(r"[0-9.]+")
_COMPARISONS: Final = (exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
_NUMBERS: Final = (*_WHOLE, "integer", "long", "short", "byte", "decimal")
# A text that is compared with one of these is made one of them, which is a single value.
_READ_FROM_TEXT: Final = ("string", "date", "timestamp")
# Whose texts differ when they do.
_TOLD_BY_TEXT: Final = (*_NUMBERS, "string", "date", "timestamp", "boolean")


class RowReader:
    """Finds out what the queries of a pipeline say of their rows."""

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
            views: All of them, in any order.
            references: What they are joined with.
            traits: What connectors make of the sources; those without are of the plainest kind.
        """
        self._sources = {str(each.source_id).lower(): each for each in sources}
        self._views = {str(each.name).lower(): each for each in views}
        self._references = {str(each.reference_id).lower(): each for each in references}
        self._traits = traits or {}
        self._next = count()
        self._known: dict[str, Rows] = {}

    def of_view(self, name: str) -> Rows:
        """The rows of a view. A second time, they are known under attributes of their own."""
        key = name.lower()
        if key not in self._known:
            self._known[key] = self._read(self._views[key].query)
        return self._fresh(self._known[key])

    def is_lasting(self, relation: Relation) -> bool:
        """Whether no row of a relation is ever taken back."""
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
        # Of messages that anybody may write a key is what their reader says. It is counted, unless
        # a row may take the place of another: two rows of one key look the same as that.
        is_sure = traits.enforces_keys or traits.replaces_rows
        return replace(rows, keys=(key,) if is_sure else (), grain=key)

    # --- one input --------------------------------------------------------------------------------

    def _select(self, query: Select) -> Rows:
        rows = self._filtered(self._read(query.source), query.where)
        rows = self._projected(rows, query.columns)
        is_shown = any(each.name == WEIGHT for each in query.columns)
        if rows.is_lasting or (is_shown and WEIGHT not in _words(query.where or "")):
            return rows
        # A log of changes, or a choice among them: what was taken back is a row like any other.
        is_lasting = not is_shown or _chooses_arrivals(query.where)
        return replace(rows.as_history(), is_lasting=is_lasting)

    def _projected(self, rows: Rows, projections: Iterable[Projection]) -> Rows:
        columns: dict[str, int] = {}
        types, rules = dict(rows.types), [*rows.rules]
        for each in projections:
            # Most are columns: thousands of them are not parsed.
            is_word = _WORD.fullmatch(each.sql) is not None and each.sql.lower() not in _UNEQUAL
            plain = rows.columns.get(each.sql) if is_word else None
            tree = _tree(each.sql) if plain is None else None
            plain = _plain(tree, rows) if plain is None else plain
            if plain is not None:
                columns[each.name] = plain
                continue
            made = columns[each.name] = next(self._next)
            used = _used(tree, each.sql, rows)
            if used is not None:
                rules.append(Rule(used, frozenset({made}), Certainty.ALWAYS))
                # Of names, say, none of which differ in nothing but case.
                rules.append(Rule(frozenset({made}), used, Certainty.POSSIBLE))
            told = _told_by(tree, rows)
            if told is not None:
                column, types[made] = told
                rules.append(Rule(frozenset({made}), frozenset({column}), Certainty.ALWAYS))
        return replace(rows, columns=columns, types=types, rules=tuple(rules))

    def _filtered(self, rows: Rows, where: str | None) -> Rows:
        """What a condition says of all rows that meet it."""
        tree = _tree(where) if where else None
        if tree is None:
            return rows
        rules = [*rows.rules]
        for each in conjuncts(tree):
            rules += _rules_of(each.unnest(), rows)
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
            # What holds in one part may hold in all.
            rules += (*part.rules, *part.key_rules())
            for one, other in zip(columns.values(), part.columns.values(), strict=True):
                rules += _equal(one, other, Certainty.POSSIBLE)
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
        # The MAX of what it is grouped by, say.
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
        # An aggregate follows from its group, and so does what is computed of it: by the key.
        return self._projected(self._filtered(group, query.having), query.columns)

    def _ranked(self, query: Ranked) -> Rows:
        rows = self._filtered(self._read(query.source).without_lingering(), query.where)
        if query.weight is None:
            rows = rows.as_history()
        rows = replace(rows, rules=(*rows.rules, *rows.key_rules()))
        keys = self._projected(rows, query.keys)
        of_key = frozenset(keys.columns.values())
        # Both over the same attributes: what the rows are ranked by, and what is shown of them.
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
        # What is put out once stays when a row of it is taken back, and what is behind the time to
        # live is no longer known then.
        is_exact = is_lasting or (query.emits == "changes" and query.bounds is None)
        # The side without a partner is NULL, which says nothing.
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
        # The engine compares values of one type, or whole numbers: one value finds one row.
        is_single = bool(table.key) and {*table.key} <= {*query.matches}
        rules = [*kept.rules]
        if is_single:
            certainty = Certainty.ALWAYS if _never_changes(table) else Certainty.POSSIBLE
            asked = [_used(_tree(each), each, rows) for each in query.keys]
            # What finds a row of the table finds all of it; in a LEFT JOIN, or none at all.
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
            # Without a partner all of it is null, also what is computed of nulls otherwise.
            rules=(*rules, *(found.rules if query.kind == "inner" else _possible(found.rules))),
            keys=keys,
            grain=rows.grain if is_single else None,
        )

    def _may_linger(self, rows: Rows, table: str) -> bool:
        """Whether a row may be taken back with another partner than it came with, and so stay."""
        changes = not _never_changes(self._references[table.lower()])
        return rows.may_linger or (changes and not rows.is_lasting)

    def _fresh(self, rows: Rows) -> Rows:
        """The same with other attributes, so that a view may be joined with itself."""
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
    """Whether rows of several tables may come, each of which has the key once."""
    tables = source.options.get("tables", "") + source.options.get("topic", "")
    return bool(set(tables) & set(",*")) or "topic.pattern" in source.options


def _never_changes(table: ReferenceTable) -> bool:
    return table.options.get(REFRESH) == "never"


def _grows(window: Window | None) -> bool:
    return window is not None and window.grows


def _edges(
    query: Aggregation, keys: Attributes, start: int, end: int, rows: Rows
) -> Iterator[Rule]:
    """What the edges of a window say of each other, and event time of them."""
    window, starts, ends = query.window, frozenset({start}), frozenset({end})
    if window is None:
        # Sessions of one key neither begin together nor end together.
        yield Rule(keys | starts, ends, Certainty.NOW)
        yield Rule(keys | ends, starts, Certainty.NOW)
        return
    yield Rule(ends, starts, Certainty.ALWAYS)
    if window.grows:
        return
    yield Rule(starts, ends, Certainty.ALWAYS)
    time = _used(_tree(window.time), window.time, rows)
    if time is not None and window.size_micros == window.slide_micros:
        yield Rule(time, starts | ends, Certainty.ALWAYS)


def _may_change(query: Join) -> bool:
    """Whether a row that a join has put out may have to go, though its inputs only grow."""
    return query.emits == "changes" and query.kind not in ("inner", "semi")


def _equal_pairs(query: Join, left: Rows, right: Rows) -> tuple[Rule, ...]:
    """What is equal on both sides of a pair."""
    rules: list[Rule] = []
    for ours, theirs in zip(query.left.keys, query.right.keys, strict=True):
        trees = _tree(ours), _tree(theirs)
        one, other = _plain(trees[0], left), _plain(trees[1], right)
        if one is not None and other is not None:
            # The engine joins by values of one type, or by whole numbers.
            rules += _equal(one, other, Certainty.ALWAYS)
            continue
        used = _used(trees[0], ours, left), _used(trees[1], theirs, right)
        if used[0] is not None and used[1] is not None:
            rules.append(Rule(used[0], used[1], Certainty.POSSIBLE))
            rules.append(Rule(used[1], used[0], Certainty.POSSIBLE))
    return tuple(rules)


def _equal(one: int, other: int, certainty: Certainty) -> Iterator[Rule]:
    yield Rule(frozenset({one}), frozenset({other}), certainty)
    yield Rule(frozenset({other}), frozenset({one}), certainty)


def _keys_of_join(
    query: Join, left: Rows, right: Rows, pairs: tuple[Rule, ...]
) -> tuple[Attributes, ...]:
    """A row of either side comes once, or once with each of its partners."""
    if query.kind in ("semi", "anti"):
        return left.keys
    if query.kind == "full":
        # Null on both sides is no key: a row of the left may hold it, and one of the right.
        return ()
    both = [one | other for one in left.keys[:4] for other in right.keys[:4]]
    joined = NOTHING.union(*(each.follow for each in pairs if each.certainty == Certainty.ALWAYS))
    # A row has one partner at most where the equalities hold a key of the other side.
    if query.kind in ("inner", "left") and any(each <= joined for each in right.keys):
        both = [*left.keys, *both]
    if query.kind in ("inner", "right") and any(each <= joined for each in left.keys):
        both = [*right.keys, *both]
    return tuple(dict.fromkeys(both))


def _possible(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    return tuple(replace(each, certainty=Certainty.POSSIBLE) for each in rules)


def _rules_of(node: exp.Expr, rows: Rows) -> Iterator[Rule]:
    """What one condition of several says of the rows that meet it."""
    if isinstance(node, _COMPARISONS) and not _may_be_boolean(node, rows):
        return
    if isinstance(node, exp.Not) and isinstance(node.this.unnest(), exp.Is | exp.In | exp.Between):
        return
    single = _chosen_value(node, rows)
    if single is not None:
        yield Rule(NOTHING, frozenset({single}), Certainty.ALWAYS)
        return
    if isinstance(node, exp.EQ):
        one, other = _plain(node.left.unnest(), rows), _plain(node.right.unnest(), rows)
        if one is not None and other is not None:
            # 1 is equal to '1' and to '01', which are not equal to each other.
            kind = rows.types.get(one)
            is_same = kind is not None and kind == rows.types.get(other)
            yield from _equal(one, other, Certainty.ALWAYS if is_same else Certainty.POSSIBLE)
            return
    mentioned = frozenset(
        found
        for each in node.find_all(exp.Column)
        if (found := rows.find(each.parts[0].name)) is not None
    )
    yield Rule(NOTHING, mentioned, Certainty.POSSIBLE)


def _chosen_value(node: exp.Expr, rows: Rows) -> int | None:
    """The attribute of which a condition leaves one value, for certain."""
    inner = node.this.unnest() if isinstance(node, exp.Not) else node
    plain = _plain(inner, rows)
    if plain is not None:
        return plain if rows.types.get(plain) == "boolean" else None
    if not isinstance(inner, exp.EQ | exp.NEQ | exp.Is | exp.NullSafeEQ):
        return None
    sides = inner.left.unnest(), inner.right.unnest()
    for column, value in (sides, sides[::-1]):
        attribute = _plain(column, rows)
        if attribute is None:
            continue
        kind = rows.types.get(attribute, "")
        if isinstance(value, exp.Null) and isinstance(node, exp.Is | exp.NullSafeEQ):
            return attribute
        if isinstance(value, exp.Boolean) and kind == "boolean":
            # What is not <=> true is false or null.
            return None if isinstance(inner, exp.NullSafeEQ) and inner is not node else attribute
        if isinstance(value, exp.Literal) and isinstance(node, exp.EQ):
            return attribute if _is_one_value(value, kind) else None
    return None


def _may_be_boolean(node: exp.Binary, rows: Rows) -> bool:
    """Whether a comparison may leave one value of two."""
    columns = (_plain(each.unnest(), rows) for each in (node.left, node.right))
    return any(
        each is not None and rows.types.get(each, "boolean") == "boolean" for each in columns
    )


def _is_one_value(literal: exp.Expr, kind: str) -> bool:
    """Whether one value of a type at most is equal to a literal."""
    if literal.is_string:
        return kind.startswith(_READ_FROM_TEXT)
    # A number with an exponent is a float, which is equal to many large whole numbers.
    return kind.startswith(_NUMBERS) and _EXACT.fullmatch(literal.name) is not None


def _chooses_arrivals(where: str | None) -> bool:
    """Whether a condition leaves nothing but rows of weight 1."""
    tree = _tree(where) if where else None
    for each in conjuncts(tree) if tree is not None else ():
        node = each.unnest()
        if isinstance(node, exp.EQ):
            column, number = node.left.unnest(), node.right.unnest()
            if isinstance(column, exp.Column) and column.name.lower() == WEIGHT:
                return isinstance(number, exp.Literal) and number.name == "1"
    return False


def _tree(text: str) -> exp.Expr | None:
    """An expression of the model; None if it cannot be read, and nothing is known of it."""
    report = Report()
    for statement in SqlText("", text).statements(report):
        try:
            return parse_expression(statement.tokens, text).unnest()
        except Exception:
            # sqlglot fails in many ways on what is no SQL.
            return None
    return None


def _plain(tree: exp.Expr | None, rows: Rows) -> int | None:
    """The attribute that an expression is, if it is nothing but a column."""
    if isinstance(tree, exp.Column) and len(tree.parts) == 1:
        return rows.find(tree.name)
    return None


def _used(tree: exp.Expr | None, text: str, rows: Rows) -> Attributes | None:
    """What an expression is computed from; None if equal values may make it differ."""
    if tree is None or not _UNEQUAL.isdisjoint(_words(text)):
        return None
    found: set[int] = set()
    for each in tree.find_all(exp.Column):
        attribute = rows.find(each.parts[0].name)
        if attribute is None:
            # The parameter of a lambda, perhaps.
            return None
        found.add(attribute)
    return frozenset(found)


def _told_by(tree: exp.Expr | None, rows: Rows) -> tuple[int, str] | None:
    """The attribute whose value can be told from that of an expression, and the type of that."""
    if tree is not None and call_of(tree) == "unix_micros":
        times = [_plain(each, rows) for each in tree.iter_expressions()]
        is_time = times and times[0] is not None and rows.types.get(times[0]) == "timestamp"
        return (times[0], "bigint") if is_time and times[0] is not None else None
    if not isinstance(tree, exp.Cast | exp.TryCast):
        return None
    column, to = _plain(tree.this.unnest(), rows), tree.args.get("to")
    kind = rows.types.get(column, "") if column is not None else ""
    target = to.sql("spark").lower() if isinstance(to, exp.DataType) else ""
    is_text = target == "string" and kind.startswith(_TOLD_BY_TEXT)
    is_wider = kind in _WHOLE and target in _WHOLE[_WHOLE.index(kind) :]
    return (column, target) if column is not None and (is_text or is_wider) else None


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower()))
