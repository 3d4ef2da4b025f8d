"""Rewrites expressions of a grouped query over its keys, aggregates and window edges.

The columns are then ``_k0`` … (the items of GROUP BY), ``_a0`` … (each distinct aggregate),
``window_start`` and ``window_end``.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from laminar_dagster.config.aggregate import Aggregate
from laminar_dagster.config.mistakes import Report
from laminar_dagster.config.sql.aggregate_calls import AggregateReader
from laminar_dagster.config.sql.dialect import Span, call_of
from laminar_dagster.config.sql.expressions import Expressions
from laminar_dagster.config.sql.functions import (
    LOGICAL_CLOCK,
    WINDOW_COLUMNS,
    WINDOW_EDGES,
    aggregate_within,
)
from laminar_dagster.config.sql.logical_clock import CLOCKS
from laminar_dagster.config.sql.scope import Scope
from laminar_dagster.config.sql.text import quoted
from laminar_dagster.config.sql.window_calls import parts_of, read_window


class GroupedText:
    """Rewrites the expressions of one grouped query, and collects its keys and aggregates."""

    def __init__(
        self, expressions: Expressions, scope: Scope, report: Report, *, changes: bool
    ) -> None:
        """Take the query's expressions and its input; ``changes`` if it emits retractions."""
        self._expressions = expressions
        self._scope = scope
        self._report = report
        self._changes = changes
        self.window: exp.Expr | None = None
        self.keys: dict[str, str] = {}
        self.aggregates: dict[Aggregate, Aggregate] = {}
        self._calls = AggregateReader(expressions, scope)

    def add_key(self, span: Span) -> None:
        """Add an item of GROUP BY."""
        self.keys.setdefault(self._expressions.text(span), f"_k{len(self.keys)}")

    def rewritten(self, tree: exp.Expr, span: tuple[int, int], aliases: dict[str, str]) -> str:
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
            elif self._changes and call_of(node) == LOGICAL_CLOCK:
                refused = CLOCKS["changing"]
                where = self._expressions.where(node)
                self._report.add(where, refused.problem, refused.instead)
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
        if aggregate_within(node):
            return self._aggregate(node)
        edge = self.edge_of(node)
        if edge:
            self._check_edge(node)
            return edge
        if isinstance(node, exp.Column):
            return self._column(node, span, aliases)
        return self.keys.get(self._expressions.text(span)) if self.keys else None

    def _column(
        self, node: exp.Column, span: tuple[int, int], aliases: dict[str, str]
    ) -> str | None:
        parts = parts_of(node)
        key = self.keys.get(self._expressions.text(span))
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
        # A field of a struct which is a key as a whole.
        whole = self.keys.get(quoted(found[1]))
        if whole is not None and found[0] < len(parts) - 1:
            return ".".join([whole, *(quoted(each) for each in parts[found[0] + 1 :])])
        hint = "add it to GROUP BY, or aggregate it"
        if not self._scope.output.unknown:
            problem = f"`{'.'.join(parts)[:80]}` is neither grouped by nor aggregated"
            self._report.add(where, problem, hint)
        return None

    def _aggregate(self, node: exp.Expr) -> str | None:
        """The column of an aggregate; equal ones share it."""
        found = self._calls.read(node, self.window)
        if found is None:
            return None
        named = replace(found, name=f"_a{len(self.aggregates)}")
        return self.aggregates.setdefault(found, named).name

    def edge_of(self, node: exp.Expr) -> str:
        """The edge of this query's own window that a node stands for; empty if it is none.

        Without a window of its own, ``window_start`` is a column of the input, and a key like any
        other: taken for an edge, it would not be one, and groups of several windows would merge.
        """
        if self.window is None:
            return ""
        if call_of(node) in WINDOW_EDGES:
            return WINDOW_EDGES[call_of(node)][1]
        name = node.name.lower() if isinstance(node, exp.Column) and len(node.parts) == 1 else ""
        return name if name in WINDOW_COLUMNS else ""

    def _check_edge(self, node: exp.Expr) -> None:
        """Refuse TUMBLE_START(…) and the like if they repeat another window than GROUP BY's."""
        if self.window is None or call_of(node) not in WINDOW_EDGES:
            return
        kind, column = WINDOW_EDGES[call_of(node)]
        where = self._expressions.where(node)
        before = len(self._report.mistakes)
        mine = read_window(node, kind, self._scope, self._expressions)
        if len(self._report.mistakes) == before:
            group = read_window(self.window, call_of(self.window), self._scope, self._expressions)
            if call_of(self.window) != kind or mine != group:
                problem = f"{call_of(node).upper()} is of another window than the one in GROUP BY"
                self._report.add(where, problem, f"write {column}")

    def _as_field(self, node: exp.Expr, text: str) -> str:
        """Add ``AS name`` inside ``struct(…)``: rewriting would change the field's name."""
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
