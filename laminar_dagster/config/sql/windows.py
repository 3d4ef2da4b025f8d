"""A query with GROUP BY over a window of event time, read into the engine's model.

The window is ``TUMBLE(ts, size)`` or ``HOP(ts, slide, size)`` in GROUP BY, or a table function in
FROM with ``GROUP BY window_start, window_end``. Output and HAVING are rewritten to be over
``_k0`` … (the other items of GROUP BY), ``_a0`` … (each distinct aggregate) and the window's edges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sqlglot import TokenType, exp

from laminar_dagster.config.model import (
    Aggregate,
    Projection,
    Query,
    Relation,
    Window,
    WindowAggregate,
)
from laminar_dagster.config.sql import changelog
from laminar_dagster.config.sql.dialect import call_of, span_of
from laminar_dagster.config.sql.expressions import Clause, aggregate_of, argument_span
from laminar_dagster.config.sql.functions import WINDOW_COLUMNS, WINDOW_EDGES, WINDOWS
from laminar_dagster.config.sql.refusals import GROUPINGS
from laminar_dagster.config.sql.scope import EventTime, Output, Scope
from laminar_dagster.config.sql.text import quoted
from laminar_dagster.config.sql.window_calls import (
    check_window,
    event_time,
    parts_of,
    read_window,
)

if TYPE_CHECKING:
    from typing import Literal

    from laminar_dagster.config.sql.queries import Item, QueryReader

    AggregateName = Literal["count", "sum", "min", "max", "avg"]

_EXAMPLE = "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)"


class WindowReader:
    """Reads one grouped SELECT."""

    def __init__(
        self,
        reader: QueryReader,
        node: exp.Select,
        relation: Relation,
        scope: Scope,
        table_window: exp.Expr | None,
    ) -> None:
        """Take the query, its input, and the window function of its FROM if there is one."""
        self._reader = reader
        self._node = node
        self._relation = relation
        self._scope = scope
        self._call = table_window
        self._in_from = table_window is not None
        self._expressions = reader.expressions
        self._report = reader.report
        self._keys: dict[str, str] = {}
        self._aggregates: dict[tuple[str, str | None], Aggregate] = {}

    def read(self) -> tuple[Query | None, Output]:
        """The aggregation and its columns."""
        condition = self._reader.where_clause(self._node, self._scope)
        items = self._select_list()
        self._group_by(items)
        window = self._window()
        columns: list[Projection] = []
        output: dict[str, str] = {}
        clause = Clause("SELECT", grouped=True)
        for each in items:
            self._expressions.check(each.node, self._scope, clause)
            text = self._rewritten(each.node, each.span, {})
            columns.append(Projection(each.name, text))
            output.setdefault(each.name.lower(), text)
            self._check_alias(each, text)
        self._reader.check_duplicates([each.name for each in columns], self._node)
        having = self._having(output)
        names = [each.name for each in columns]
        changelog.check_aggregation(self._node, self._scope, names, self._expressions)
        result = Output(tuple(each.name for each in columns), self._times(columns, window))
        if window is None:
            return None, result
        keys = tuple(Projection(name, text) for text, name in self._keys.items())
        aggregates = tuple(self._aggregates.values())
        query = WindowAggregate(
            self._relation, window, keys, aggregates, tuple(columns), condition, having
        )
        return query, result

    def _select_list(self) -> list[Item]:
        items: list[Item] = []
        for each in self._node.expressions:
            star = each.this if isinstance(each, exp.Column) else each
            if isinstance(star, exp.Star):
                where = self._expressions.where(each)
                self._report.add(where, "SELECT * cannot stand with GROUP BY", "list the columns")
                continue
            item = self._reader.item(each, self._scope)
            if item is not None:
                items.append(item)
        return items

    def _group_by(self, items: list[Item]) -> None:
        group = self._node.args.get("group")
        if group is None:
            where = self._expressions.where(self._node)
            hint = "add GROUP BY window_start, window_end"
            self._report.add(where, "a window in FROM stands without GROUP BY", hint)
            return
        self._refuse_groupings(group)
        by_alias = {each.name.lower(): each for each in items}
        named_edges = False
        for each in group.expressions:
            name = call_of(each) if isinstance(each, exp.Anonymous) else ""
            where = self._expressions.where(each)
            if isinstance(each, exp.Cube | exp.Rollup | exp.GroupingSets):
                self._refuse_grouping(each.key)
            elif name in (*WINDOWS, "session", "cumulate"):
                self._take_window(each, name, where)
            elif _is_edge(each):
                named_edges = True
            else:
                self._add_key(self._grouped_by(each, items, by_alias))
        if self._call is None:
            where = self._reader.statement.where(self._group_index())
            hint = f"a window says when a group is complete: {_EXAMPLE}"
            self._report.add(where, "GROUP BY without a window is not supported yet", hint)
        elif self._in_from and not named_edges:
            where = self._reader.statement.where(self._group_index())
            hint = "add window_start, window_end to GROUP BY"
            self._report.add(where, "the window in FROM is missing in GROUP BY", hint)

    def _group_index(self) -> int:
        span = span_of(self._node) or (0, len(self._reader.statement.tokens))
        return self._reader.statement.find((TokenType.GROUP_BY,), span)

    def _refuse_groupings(self, group: exp.Group) -> None:
        for key in GROUPINGS:
            if group.args.get(key):
                self._refuse_grouping(key)

    def _refuse_grouping(self, key: str) -> None:
        refused = GROUPINGS[key]
        index = self._reader.statement.find(refused.keywords, (self._group_index(), self._end()))
        where = self._reader.statement.where(index)
        self._report.add(where, refused.problem, refused.instead)

    def _end(self) -> int:
        span = span_of(self._node)
        return span[1] if span else len(self._reader.statement.tokens)

    def _take_window(self, node: exp.Expr, name: str, where: str) -> None:
        if self._call is not None:
            self._report.add(where, "there is a second window", "a query has one")
        self._call = self._call or node

    def _grouped_by(self, node: exp.Expr, items: list[Item], by_alias: dict[str, Item]) -> exp.Expr:
        """What an item of GROUP BY stands for; a position or an alias is one of SELECT's."""
        if isinstance(node, exp.Literal) and node.is_number:
            position = int(node.name) if node.name.isdigit() and len(node.name) < 6 else 0
            if not 1 <= position <= len(items):
                where = self._expressions.where(node)
                self._report.add(where, f"SELECT has no column number {node.name[:20]}")
                return node
            return items[position - 1].node
        if isinstance(node, exp.Column) and len(node.parts) == 1:
            known = self._scope.resolve([node.name])
            if known is None and node.name.lower() in by_alias:
                return by_alias[node.name.lower()].node
        return node

    def _add_key(self, node: exp.Expr) -> None:
        if _is_edge(node) or call_of(node) in WINDOW_EDGES:
            return
        self._expressions.check(node, self._scope, Clause("GROUP BY"))
        span = self._expressions.span(node)
        if span is not None:
            self._keys.setdefault(self._expressions.text(span), f"_k{len(self._keys)}")

    def _window(self) -> Window | None:
        call = self._call
        if call is None:
            return None
        name, where = call_of(call), self._expressions.where(call)
        if name not in WINDOWS:
            self._report.add(
                where, f"{name.upper()} windows are not supported yet", "TUMBLE and HOP are"
            )
            return None
        window = read_window(call, name, self._scope, self._expressions)
        if window is None:
            return None
        check_window(call, window, self._scope, self._expressions)
        return window

    def _times(self, columns: list[Projection], window: Window | None) -> dict[str, EventTime]:
        time = event_time(self._call.expressions[0], self._scope) if self._call and window else None
        if time is None or window is None:
            return {}
        whole = window.size_micros == window.slide_micros
        edges = {
            "window_start": EventTime(time.sources, window.size_micros, whole),
            "window_end": EventTime(time.sources),
        }
        return {each.name.lower(): edges[each.sql] for each in columns if each.sql in edges}

    def _having(self, output: dict[str, str]) -> str | None:
        clause = self._node.args.get("having")
        if clause is None:
            return None
        self._expressions.check(
            clause.this, self._scope, Clause("HAVING", grouped=True, aliases=output)
        )
        span = self._expressions.span(clause.this)
        return self._rewritten(clause.this, span, output) if span else None

    def _check_alias(self, item: Item, text: str) -> None:
        if item.name.lower() in WINDOW_COLUMNS and text != item.name.lower():
            hint = "it is for the edges of a window"
            self._report.add(item.where, f"the name `{item.name}` is reserved", hint)

    def _rewritten(self, tree: exp.Expr, span: tuple[int, int], aliases: dict[str, str]) -> str:
        """An expression over ``_k0`` …, ``_a0`` … and the window's edges."""
        edits: dict[int, tuple[int, str]] = {}
        stack: list[exp.Expr] = [tree]
        while stack:
            node = stack.pop()
            if self._expressions.is_refused(node):
                continue
            found = self._expressions.span(node)
            text = self._replacement(node, found, aliases) if found else None
            if text is not None and found is not None:
                edits[found[0]] = (found[1], self._as_field(node, text))
            elif isinstance(node, exp.Kwarg):
                stack.append(node.expression)
            elif isinstance(node, exp.Lambda | exp.Alias | exp.Collate):
                stack.append(node.this)
            elif not isinstance(node, exp.DataType | exp.Column):
                stack.extend(node.iter_expressions())
        return self._expressions.text(span, edits)

    def _replacement(
        self, node: exp.Expr, span: tuple[int, int], aliases: dict[str, str]
    ) -> str | None:
        if aggregate_of(node):
            return self._aggregate(node, span)
        if call_of(node) in WINDOW_EDGES:
            return self._edge(node)
        if _is_edge(node):
            return node.name.lower()
        if isinstance(node, exp.Column):
            return self._column(node, span, aliases)
        return self._keys.get(self._expressions.text(span)) if self._keys else None

    def _column(
        self, node: exp.Column, span: tuple[int, int], aliases: dict[str, str]
    ) -> str | None:
        parts = parts_of(node)
        key = self._keys.get(self._expressions.text(span))
        alias = aliases.get(parts[0].lower()) if len(parts) == 1 else None
        where = self._expressions.where(node)
        if alias is not None and key is not None and alias != key:
            problem = f"`{parts[0]}` is both a column of the input and a column of SELECT"
            self._report.add(where, problem, "give the column of SELECT another name")
        if key is not None:
            return key
        if alias is not None:
            return f"({alias})"
        found = self._scope.resolve(parts)
        if found is None:
            return None
        # A field of a struct that is grouped by as a whole.
        whole = self._keys.get(quoted(found[1]))
        if whole is not None and found[0] < len(parts) - 1:
            return ".".join([whole, *(quoted(each) for each in parts[found[0] + 1 :])])
        hint = "add it to GROUP BY, or aggregate it"
        if not self._scope.output.unknown:
            problem = f"`{'.'.join(parts)[:80]}` is neither grouped by nor aggregated"
            self._report.add(where, problem, hint)
        return None

    def _aggregate(self, node: exp.Expr, span: tuple[int, int]) -> str:
        name = aggregate_of(node)
        inside = argument_span(self._reader.statement, span)
        counted = bool(node.expressions) and isinstance(node.expressions[0], exp.Star)
        argument = None if counted else self._expressions.text(inside)
        found = self._aggregates.get((name, argument))
        if found is None:
            function = cast("AggregateName", name)
            found = Aggregate(f"_a{len(self._aggregates)}", function, argument)
            self._aggregates[name, argument] = found
        return found.name

    def _edge(self, node: exp.Expr) -> str:
        kind, column = WINDOW_EDGES[call_of(node)]
        where = self._expressions.where(node)
        if self._call is None:
            return column
        before = len(self._report.mistakes)
        mine = read_window(node, kind, self._scope, self._expressions)
        if len(self._report.mistakes) == before:
            group = read_window(self._call, call_of(self._call), self._scope, self._expressions)
            if call_of(self._call) != kind or mine != group:
                problem = f"{call_of(node).upper()} is of another window than the one in GROUP BY"
                self._report.add(where, problem, f"write {column}")
        return column

    def _as_field(self, node: exp.Expr, text: str) -> str:
        """Inside ``struct(…)`` the name of a field comes from its expression: keep it."""
        parent = node.parent
        name = call_of(parent) if parent else ""
        if parent is None or name not in ("struct", "arrays_zip"):
            return text
        if name == "arrays_zip":
            hint = "use a view between, which names its columns"
            where = self._expressions.where(node)
            self._report.add(where, "arrays_zip() of grouped columns is not supported yet", hint)
            return text
        if isinstance(node, exp.Column):
            return f"{text} AS {quoted(node.name)}"
        position = next(i for i, each in enumerate(parent.expressions, 1) if each is node)
        return f"{text} AS col{position}"


def _is_edge(node: exp.Expr) -> bool:
    """Whether a part is ``window_start`` or ``window_end``, of this query's own window."""
    return (
        isinstance(node, exp.Column)
        and len(node.parts) == 1
        and node.name.lower() in WINDOW_COLUMNS
    )
