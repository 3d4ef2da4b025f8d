"""A query with GROUP BY or DISTINCT, read into the engine's model.

A window of event time is ``TUMBLE(ts, size)`` or the like in GROUP BY, or a table function in FROM
with ``GROUP BY window_start, window_end``. Without one, groups never close: they are emitted
whenever they change. Output and HAVING are rewritten by ``grouped_text.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import TokenType, exp

from laminar_dagster.config.relations import (
    Aggregation,
    KeyedAggregate,
    Projection,
    Query,
    Relation,
    Window,
    WindowAggregate,
)
from laminar_dagster.config.sql import changelog
from laminar_dagster.config.sql.changelog import WEIGHT
from laminar_dagster.config.sql.column_types import known, type_of
from laminar_dagster.config.sql.dialect import call_of, span_of
from laminar_dagster.config.sql.emit_options import LATENESS, TTL
from laminar_dagster.config.sql.expressions import Clause
from laminar_dagster.config.sql.functions import WINDOW_COLUMNS
from laminar_dagster.config.sql.group_items import (
    check_partition,
    is_told_by,
    is_window,
    items_of,
)
from laminar_dagster.config.sql.grouped_text import GroupedText
from laminar_dagster.config.sql.lifetimes import check_keys, clock_of
from laminar_dagster.config.sql.refusal import Refusal
from laminar_dagster.config.sql.refusals import ENDLESS, GROUPINGS, TABLE_WINDOWS
from laminar_dagster.config.sql.scope import EventTime, Output, Scope, plain_column
from laminar_dagster.config.sql.window_calls import (
    Session,
    check_window,
    edge_times,
    event_time,
    read_window,
)

if TYPE_CHECKING:
    from laminar_dagster.config.sql.queries import Item, QueryReader


class GroupReader:
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
        self._in_from = table_window is not None
        self._expressions = reader.expressions
        self._report = reader.report
        self._emits_changes = reader.emit is not None and reader.emit.changes
        self._text = GroupedText(
            reader.expressions, scope, reader.report, changes=self._emits_changes
        )
        self._text.window = table_window

    def read(self) -> tuple[Query | None, Output]:
        """The aggregation and its columns."""
        condition = self._reader.where_clause(self._node, self._scope)
        items = self._select_list()
        # First of all: the meaning of `window_start` in every other clause depends on it.
        self._find_window()
        is_whole = self._node.args.get("distinct") is not None
        if is_whole:
            self._distinct(items)
        else:
            self._group_by(items)
        self._check_session_in_from()
        window = self._window()
        columns: list[Projection] = []
        output: dict[str, str] = {}
        clause = Clause("SELECT", grouped=True, has_window=self._text.window is not None)
        for each in items:
            if not is_whole:
                self._expressions.check(each.node, self._scope, clause)
            text = self._text.rewritten(each.node, each.span, {})
            columns.append(Projection(each.name, text))
            output.setdefault(each.name.lower(), text)
            self._check_alias(each, text)
        names = [each.name for each in columns]
        self._reader.check_duplicates(names, self._node)
        having = self._having(output)
        if self._is_endless(window):
            return None, Output(tuple(names), unknown=True)
        if self._emits_changes:
            query, changing = self._changing(window, columns, condition, having)
            return query, replace(changing, types=self._types(items))
        changelog.check_aggregation(self._node, self._scope, names, self._expressions)
        times = self._times(columns, window)
        result = Output(tuple(names), times, types=self._types(items))
        return self._closing(window, columns, condition, having), result

    def _closing(
        self,
        window: Window | Session | None,
        columns: list[Projection],
        condition: str | None,
        having: str | None,
    ) -> Aggregation | None:
        """An aggregation that emits each window once, when it closes."""
        keys, aggregates = self._keys(), tuple(self._text.aggregates.values())
        match window:
            case None:
                return None
            case Window():
                return WindowAggregate(
                    self._relation,
                    window,
                    keys,
                    aggregates,
                    tuple(columns),
                    condition,
                    having,
                    self._weight(window),
                    self._lateness,
                )
            case Session():
                return KeyedAggregate(
                    self._relation,
                    "session",
                    "close",
                    keys,
                    aggregates,
                    tuple(columns),
                    time=window.time,
                    gap_micros=window.gap_micros,
                    weight=self._weight(window),
                    where=condition,
                    having=having,
                    lateness_micros=self._lateness,
                )

    def _types(self, items: list[Item]) -> dict[str, exp.DataType]:
        return known({each.name: type_of(each.node, self._scope) for each in items})

    @property
    def _lateness(self) -> int:
        return self._reader.emit.lateness_micros if self._reader.emit else 0

    def _changing(
        self,
        window: Window | Session | None,
        columns: list[Projection],
        condition: str | None,
        having: str | None,
    ) -> tuple[Query | None, Output]:
        """An aggregation that emits each change of a row."""
        emit = self._reader.emit
        assert emit is not None
        time, gap = None, None
        if window is not None and emit.ttl_where:
            problem = f"`{TTL}` is for groups without a window"
            self._report.add(emit.ttl_where, problem, "leave it out: a window ends by itself")
        if window is None and emit.lateness_where:
            problem = f"`{LATENESS}` is for windows and sessions"
            hint = "leave it out, or give the source's watermark more delay"
            self._report.add(emit.lateness_where, problem, hint)
        if isinstance(window, Session):
            time, gap = window.time, window.gap_micros
        elif window is None:
            time, gap = clock_of(emit, self._scope, self._report), emit.ttl_micros
        query = KeyedAggregate(
            self._relation,
            "session" if isinstance(window, Session) else "window" if window else "group",
            "changes",
            self._keys(),
            tuple(self._text.aggregates.values()),
            (*columns, Projection(WEIGHT, WEIGHT)),
            window if isinstance(window, Window) else None,
            time,
            gap,
            self._weight(window),
            condition,
            having,
            self._lateness,
        )
        # No column is event time for the next query: a row may still change at any time.
        return query, Output((*(each.name for each in columns), WEIGHT))

    def _weight(self, window: Window | Session | None) -> str | None:
        """The column that weighs rows of the input: added or retracted."""
        is_session = isinstance(window, Session)
        return changelog.weight_of(
            self._node, self._scope, self._expressions, is_session=is_session
        )

    def _keys(self) -> tuple[Projection, ...]:
        return tuple(Projection(name, text) for text, name in self._text.keys.items())

    def _is_endless(self, window: Window | Session | None) -> bool:
        """Refuse groups that never close, and keys whose state would never be deleted."""
        if window is not None or self._text.window is not None:
            return False
        emit = self._reader.emit
        if not self._emits_changes or emit is None:
            self._refuse(ENDLESS["distinct" if self._node.args.get("distinct") else "group"])
            return True
        if self._text.keys:
            check_keys(emit, self._report)
        return False

    def _distinct(self, items: list[Item]) -> None:
        distinct = self._node.args["distinct"]
        where = self._where((TokenType.DISTINCT,))
        if distinct.args.get("on"):
            self._report.add(where, "DISTINCT ON is not supported yet", "group by the columns")
        if self._node.args.get("group"):
            self._report.add(where, "DISTINCT stands with GROUP BY", "use a view between")
        for each in items:
            self._add_key(each.node)
        self._check_edges({self._text.edge_of(each.node) for each in items}, "distinct")

    def _check_session_in_from(self) -> None:
        call = self._text.window
        if not self._in_from or call is None or call_of(call) != "session":
            return
        check_partition(call, self._text.keys, self._scope, self._expressions)
        if self._node.args.get("where") is not None:
            # WHERE would drop rows that hold a session together.
            self._refuse(TABLE_WINDOWS["where"])

    def _select_list(self) -> list[Item]:
        items: list[Item] = []
        for each in self._node.expressions:
            star = each.this if isinstance(each, exp.Column) else each
            if isinstance(star, exp.Star):
                where = self._expressions.where(each)
                clause = "DISTINCT" if self._node.args.get("distinct") else "GROUP BY"
                self._report.add(where, f"SELECT * cannot stand with {clause}", "list the columns")
                continue
            item = self._reader.item(each, self._scope)
            if item is not None:
                items.append(item)
        return items

    def _group_by(self, items: list[Item]) -> None:
        group = self._node.args.get("group")
        if group is None and self._text.window is None:
            return
        if group is None:
            where = self._expressions.where(self._node)
            hint = "add GROUP BY window_start, window_end"
            self._report.add(where, "a window in FROM stands without GROUP BY", hint)
            return
        self._refuse_groupings(group)
        by_alias = {each.name.lower(): each for each in items}
        edges: set[str] = set()
        for each in items_of(group):
            if isinstance(each, exp.Cube | exp.Rollup | exp.GroupingSets):
                self._refuse(GROUPINGS[each.key], TokenType.GROUP_BY)
            elif not is_window(each):
                self._check_ambiguous(each)
                meant = self._grouped_by(each, items, by_alias)
                edges.add(self._text.edge_of(meant))
                self._add_key(meant)
        self._check_edges(edges, "group")

    def _check_edges(self, edges: set[str], clause: str) -> None:
        window = self._text.window
        if self._in_from and window is not None and not is_told_by(window, edges):
            self._refuse(TABLE_WINDOWS[clause])

    def _where(self, keywords: tuple[TokenType, ...], start: TokenType | None = None) -> str:
        """The place of the first of these keywords that occurs in this query."""
        statement = self._reader.statement
        first, end = span_of(self._node) or (0, len(statement.tokens))
        if start is not None:
            first = statement.find((start,), (first, end))
        return statement.where(statement.find(keywords, (first, end)))

    def _refuse(self, refused: Refusal, start: TokenType | None = None) -> None:
        self._report.add(self._where(refused.keywords, start), refused.problem, refused.instead)

    def _refuse_groupings(self, group: exp.Group) -> None:
        for key in GROUPINGS:
            if group.args.get(key):
                self._refuse(GROUPINGS[key], TokenType.GROUP_BY)

    def _find_window(self) -> None:
        group = self._node.args.get("group")
        for each in items_of(group) if group is not None else ():
            if is_window(each) and self._text.window is not None:
                where = self._expressions.where(each)
                self._report.add(where, "there is a second window", "a query has one")
            elif is_window(each):
                self._text.window = each

    def _check_ambiguous(self, node: exp.Expr) -> None:
        """Refuse ``GROUP BY TUMBLE(…), window_start`` if the input has such a column as well."""
        if self._in_from or not isinstance(node, exp.Column) or not self._text.edge_of(node):
            return
        scope, name = self._scope, node.name
        if scope.resolve([name]) is not None and not scope.output.unknown:
            problem = f"`{name}` is a column of the input, and an edge of the window"
            holders = [each for each in scope.aliases if each and scope.resolve([each, name])]
            hint = f"call the input t, and write `t.{name}` for the column"
            if holders:
                hint = f"write `{holders[0]}.{name}` for the column"
            hint += "; the window is grouped by without its edges"
            self._report.add(self._expressions.where(node), problem, hint)

    def _grouped_by(self, node: exp.Expr, items: list[Item], by_alias: dict[str, Item]) -> exp.Expr:
        """The expression of an item of GROUP BY; a position or an alias stands for SELECT's."""
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
        if self._text.edge_of(node):
            return
        self._expressions.check(node, self._scope, Clause("GROUP BY"))
        span = self._expressions.span(node)
        if span is not None:
            self._text.add_key(span)

    def _window(self) -> Window | Session | None:
        call = self._text.window
        if call is None:
            return None
        window = read_window(call, call_of(call), self._scope, self._expressions)
        if window is not None:
            check_window(call, window, self._scope, self._expressions, self._lateness)
        return window

    def _times(
        self, columns: list[Projection], window: Window | Session | None
    ) -> dict[str, EventTime]:
        call = self._text.window
        time = event_time(call.expressions[0], self._scope) if call is not None and window else None
        if time is None or window is None:
            return {}
        edges = edge_times(time, window, self._lateness)
        return {each.name.lower(): edges[each.sql] for each in columns if each.sql in edges}

    def _having(self, output: dict[str, str]) -> str | None:
        clause = self._node.args.get("having")
        if clause is None:
            return None
        has_window = self._text.window is not None
        inside = Clause("HAVING", grouped=True, aliases=output, has_window=has_window)
        self._expressions.check(clause.this, self._scope, inside)
        span = self._expressions.span(clause.this)
        return self._text.rewritten(clause.this, span, output) if span else None

    def _check_alias(self, item: Item, text: str) -> None:
        origin = text
        if self._text.window is None:
            origin = self._scope.written(plain_column(item.node, self._scope))
        if item.name.lower() in WINDOW_COLUMNS and origin.lower() != item.name.lower():
            hint = "it is for the edges of a window"
            self._report.add(item.where, f"the name `{item.name}` is reserved", hint)
