"""Checks the expressions of one query, and resolves their columns.

Reports unknown columns and functions, unsupported syntax and nondeterministic calls. Afterwards
``text`` returns any checked expression as Spark SQL over its input.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from sqlglot import TokenType, exp

from laminar_dagster.config.determinism import (
    DeterminismKind,
    DeterminismWarning,
    kind_of_call,
)
from laminar_dagster.config.mistakes import Report, listed, nearest
from laminar_dagster.config.sql import functions
from laminar_dagster.config.sql.aggregate_arguments import problem_of
from laminar_dagster.config.sql.allowed import unsupported
from laminar_dagster.config.sql.changelog import WEIGHT
from laminar_dagster.config.sql.dialect import Span, call_of, span_of
from laminar_dagster.config.sql.functions import aggregate_of, aggregate_within
from laminar_dagster.config.sql.generator_refusals import EXPLODING, GENERATORS
from laminar_dagster.config.sql.lambdas import LAMBDAS, is_hidden, refused_parameters
from laminar_dagster.config.sql.logical_clock import CLOCKS
from laminar_dagster.config.sql.moving_times import moving_times
from laminar_dagster.config.sql.refusal import Refusal
from laminar_dagster.config.sql.scope import Scope
from laminar_dagster.config.sql.text import Edits, Statement, quoted

_OR_TEXT: Final = (
    "use event time, or epoch_time() for the epoch's logical clock; where text is meant, write it "
    "in one piece, beside text: CAST(x AS STRING)"
)


@dataclass(frozen=True, slots=True)
class Clause:
    """The clause that an expression stands in, which decides what is allowed in it.

    Attributes:
        name: As in SQL, for errors.
        grouped: Aggregates may be used.
        aliases: Columns of the SELECT that may be used by their new name.
        has_window: ``window_start``, TUMBLE_START(…) and the like are edges of the query's own
            window. Without one, ``window_start`` is a column of the input like any other.
        is_beside_changes: Its value is added to rows that may be retracted, even if its own input
            has no retractions.
    """

    name: str
    grouped: bool = False
    aliases: Collection[str] = ()
    has_window: bool = False
    is_beside_changes: bool = False


class Expressions:
    """The expressions of one query."""

    def __init__(self, statement: Statement, view: str, report: Report) -> None:
        """Take the statement, the name of its view, and where to note mistakes."""
        self.statement = statement
        self.report = report
        self.findings: list[DeterminismWarning] = []
        # The columns with the values of scalar subqueries, by the subquery's tokens.
        self.values: dict[Span, str] = {}
        self._view = view
        self._edits: dict[int, tuple[int, str]] = {}
        self._verbatim: set[int] = set()
        self._refused: set[int] = set()
        self._numbers = {each.start: i for i, each in reversed(list(enumerate(statement.tokens)))}

    def text(self, span: Span, edits: Edits | None = None) -> str:
        """Canonical text of tokens that were checked; ``edits`` take precedence."""
        merged: Mapping[int, tuple[int, str]] = {**self._edits, **edits} if edits else self._edits
        return self.statement.canonical(span, merged, self._verbatim)

    def span(self, node: exp.Expr) -> Span | None:
        """The tokens of a node."""
        if isinstance(node, exp.Column) and all("start" in each.meta for each in node.parts):
            first, last = node.parts[0], node.parts[-1]
            return self._numbers[first.meta["start"]], self._numbers[last.meta["start"]] + 1
        return span_of(node)

    def where(self, node: exp.Expr) -> str:
        """The place of a node, or of the first node in it whose place is known."""
        for each in node.walk():
            found = span_of(each)
            if found is not None:
                return self.statement.where(found[0])
            if "start" in each.meta:
                return self.statement.sql.where(each.meta["start"])
        return self.where(node.parent) if node.parent else self.statement.where()

    def check(self, tree: exp.Expr, scope: Scope, clause: Clause) -> None:
        """Report the mistakes of an expression, and resolve its columns."""
        for each in moving_times(tree, scope):
            self._note_moving_time(each)
        stack: list[tuple[exp.Expr, bool]] = [(tree, False)]
        while stack:
            node, in_aggregate = stack.pop()
            before = len(self.report.mistakes)
            if not self._check_part(node, scope, clause, in_aggregate):
                if len(self.report.mistakes) > before:
                    self._refused.add(id(node))
                continue
            inside = in_aggregate or bool(aggregate_of(node))
            children: list[exp.Expr] = list(node.iter_expressions(reverse=True))
            if isinstance(node, exp.Kwarg | exp.Lambda | exp.Alias):
                self._keep_names(node)
                children = [node.expression if isinstance(node, exp.Kwarg) else node.this]
            elif isinstance(node, exp.Collate):
                children = [node.this]
            elif isinstance(node, exp.Filter):
                stack.append((node.expression.this, True))
                children = [node.this]
            elif isinstance(node, exp.WithinGroup):
                stack.extend((each.this, True) for each in node.expression.expressions)
                children = [node.this]
            elif isinstance(node, exp.Extract):
                children = [node.expression]
            elif call_of(node) in functions.WITH_UNIT and len(node.expressions) == 3:
                children = self._without_unit(node)
            stack.extend((each, inside) for each in children)

    def is_refused(self, node: exp.Expr) -> bool:
        """Whether a mistake was reported for a node, so that no other should follow from it."""
        return id(node) in self._refused

    def _check_part(self, node: exp.Expr, scope: Scope, clause: Clause, in_aggregate: bool) -> bool:
        """Check one node; False if its children need no check."""
        if isinstance(node, exp.Star) and _is_counted(node):
            return False
        if isinstance(node, exp.Alias) and node.parent and call_of(node.parent) == "struct":
            return True
        if isinstance(node, exp.Distinct):
            if aggregate_of(node.parent or node) in functions.DISTINCT:
                return True
        if isinstance(node, exp.WithinGroup) and aggregate_of(node.this) in functions.ORDERED:
            return True
        if isinstance(node, exp.Filter) and not aggregate_within(node):
            where = self.where(node)
            self.report.add(where, "FILTER (WHERE …) stands behind no aggregate", "use IF(…)")
            return False
        if isinstance(node, exp.Subquery) and self._value(node, clause):
            return False
        refused = unsupported(node)
        if refused:
            self._refuse(node, refused)
            return False
        if isinstance(node, exp.Column):
            self._column(node, scope, clause, in_aggregate)
            return False
        if isinstance(node, exp.DataType):
            # A field named like a keyword keeps its case: `date` does not become `DATE`.
            for each in node.find_all(exp.ColumnDef):
                self._keep_names(each)
            return False
        if isinstance(node, exp.Lambda):
            return self._lambda(node, scope, is_over_groups=clause.grouped and not in_aggregate)
        if isinstance(node, exp.Identifier):
            self._keep(node)
        elif isinstance(node, exp.Anonymous):
            return self._call(node, scope, clause, in_aggregate)
        elif call_of(node) in functions.WITHOUT_PARENTHESES:
            self._note_determinism(node, kind_of_call(call_of(node), ()), call_of(node))
        return True

    def _value(self, node: exp.Subquery, clause: Clause) -> bool:
        """Replace a scalar subquery by the column that holds its value, if there is one."""
        inside = span_of(node.this)
        span = (inside[0] - 1, inside[1] + 1) if inside else (0, 0)
        if span not in self.values or clause.grouped:
            return False
        self._edits[span[0]] = (span[1], self.values[span])
        return True

    def _column(self, node: exp.Column, scope: Scope, clause: Clause, in_aggregate: bool) -> None:
        parts = [each.name for each in node.parts]
        if isinstance(node.this, exp.Star):
            self.report.add(self.where(node), "* is not supported inside an expression yet")
            return
        if clause.has_window and not in_aggregate and len(parts) == 1:
            if parts[0].lower() in functions.WINDOW_COLUMNS:
                return
        found = scope.resolve(parts)
        if found is None:
            if parts[0].lower() in clause.aliases and len(parts) == 1 and not in_aggregate:
                return
            self._unknown_column(node, parts, scope, clause)
            return
        position, declared = found
        span = self.span(node)
        if span is None:
            return
        if is_hidden(node, declared):
            self._refuse(node, LAMBDAS["hidden"])
            return
        end = self._numbers[node.parts[position].meta["start"]] + 1
        text = quoted(declared)
        is_field = node.parent is not None and call_of(node.parent) == "struct"
        if is_field and position == len(parts) - 1 and parts[-1] != declared:
            # Spark names the struct's field after the column as the author wrote it.
            text = f"{text} AS {quoted(parts[-1])}"
        self._edits[span[0]] = (end, text)

    def _lambda(self, node: exp.Lambda, scope: Scope, *, is_over_groups: bool) -> bool:
        wrong = [*refused_parameters(node, scope, is_over_groups=is_over_groups)]
        for parameter, refused in wrong:
            self._refuse(parameter, refused)
        return not wrong

    def _refuse(self, node: exp.Expr, refused: Refusal) -> None:
        self.report.add(self.where(node), refused.problem, refused.instead)

    def _unknown_column(
        self, node: exp.Column, parts: list[str], scope: Scope, clause: Clause
    ) -> None:
        name = parts[0].lower()
        if len(parts) == 1 and name in functions.WITHOUT_PARENTHESES:
            self._note_determinism(node, kind_of_call(name, ()), name)
            return
        shown = ".".join(parts)[:80]
        choices = scope.choices(parts)
        if choices:
            problem = f"`{shown}` may be a column of several inputs"
            self.report.add(self.where(node), problem, f"write {' or '.join(choices)}")
            return
        if name in functions.WINDOW_COLUMNS:
            hint = "it exists in SELECT and HAVING of a query with GROUP BY TUMBLE(…) or the like"
            self.report.add(self.where(node), f"there is no `{shown}` in {clause.name} here", hint)
            return
        holders = [a for a in scope.aliases if len(parts) > 1 and scope.resolve([a, parts[1]])]
        if holders:
            hint = f"did you mean `{holders[0]}.{parts[1]}`?"
            self.report.add(self.where(node), f"there is no `{parts[0][:80]}` here", hint)
            return
        is_qualified = len(parts) > 1 and name in [each.lower() for each in scope.aliases]
        known = [scope.written(each) for each in scope.columns]
        hint = nearest(parts[is_qualified], known, listed(known, "columns"))
        self.report.add(self.where(node), f"{scope.description} has no column `{shown}`", hint)

    def _call(self, node: exp.Anonymous, scope: Scope, clause: Clause, in_aggregate: bool) -> bool:
        name, where = call_of(node), self.where(node)
        self._keep_names(node)
        if isinstance(node.parent, exp.Dot) and node.parent.expression is node:
            self.report.add(where, f"`{name}` is called with a qualifier", "call it by its name")
            return False
        if name in functions.WINDOWS or name in functions.WINDOW_EDGES:
            return self._window_call(name, where, clause, in_aggregate)
        if name == functions.LOGICAL_CLOCK:
            if node.expressions:
                self.report.add(where, "epoch_time() takes no argument")
            # Expressions over groups are checked later, when it is known which are keys.
            is_over_groups = clause.grouped and not in_aggregate
            is_weighed = WEIGHT in scope.columns and not is_over_groups
            if is_weighed or clause.is_beside_changes:
                self._refuse(node, CLOCKS["weighed"])
            return True
        kind = functions.spark_functions().get(name)
        if kind is None:
            hint = nearest(name, functions.suggestions(), "functions are those of Spark SQL")
            self.report.add(where, f"there is no function `{name[:80]}`", hint)
            return True
        if name in functions.ELSEWHERE:
            self.report.add(where, f"{name}() is not supported", functions.ELSEWHERE[name])
            return False
        if kind == "aggregate":
            return self._aggregate(node, name, where, clause, in_aggregate)
        if kind == "generator":
            self._refuse(node, GENERATORS["inside" if name in EXPLODING else "function"])
            return False
        if kind != "scalar":
            problem = f"{name}() looks at other rows: it is not supported yet"
            self.report.add(where, problem, "use TUMBLE")
            return False
        arguments = [each.name if _is_text(each) else None for each in node.expressions]
        self._note_determinism(node, kind_of_call(name, arguments), f"{name}()")
        return True

    def _window_call(self, name: str, where: str, clause: Clause, in_aggregate: bool) -> bool:
        if name in functions.WINDOWS:
            hint = f"use {name.upper()}_START, {name.upper()}_END, window_start or window_end"
            self.report.add(where, f"{name.upper()} stands in GROUP BY alone", hint)
        elif not clause.has_window or in_aggregate:
            hint = "it exists in SELECT and HAVING of a query with GROUP BY TUMBLE(…) or the like"
            self.report.add(where, f"{name.upper()} cannot be used in {clause.name} here", hint)
        return False

    def _aggregate(
        self, node: exp.Anonymous, name: str, where: str, clause: Clause, in_aggregate: bool
    ) -> bool:
        if not aggregate_of(node):
            hint = nearest(name, functions.AGGREGATES, "docs/sql.md lists those that are")
            self.report.add(where, f"the aggregate {name}() is not supported yet", hint)
            return False
        if in_aggregate:
            self.report.add(where, "an aggregate stands inside an aggregate", "use a view between")
            return False
        if not clause.grouped:
            hint = "add GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), or EMIT CHANGES"
            if clause.name != "SELECT":
                hint = "use HAVING" if clause.name == "WHERE" else "use a view between"
            self.report.add(where, f"{name.upper()} cannot be used in {clause.name} here", hint)
            return False
        problem = problem_of(node)
        if problem:
            self.report.add(where, *problem)
            return False
        return True

    def _note_moving_time(self, node: exp.Expr) -> None:
        around = node.parent if node.parent is not None and span_of(node.parent) else node
        shown, where = self._shown(around), self.where(node)
        found = DeterminismWarning("wall_clock", self._view, shown, where, _OR_TEXT)
        self.findings.append(found)

    def _note_determinism(self, node: exp.Expr, kind: DeterminismKind | None, call: str) -> None:
        if kind is not None:
            self.findings.append(DeterminismWarning(kind, self._view, call, self.where(node)))

    def _shown(self, node: exp.Expr) -> str:
        span = span_of(node)
        written = " ".join(self.statement.raw(*span).split()) if span else node.key
        return written if len(written) <= 60 else written[:59] + "…"

    def _without_unit(self, node: exp.Expr) -> list[exp.Expr]:
        unit, *others = node.expressions
        known = isinstance(unit, exp.Column | exp.Var) and unit.name.lower() in functions.UNITS
        return [*reversed(others)] if known else [*reversed(node.expressions)]

    def _keep_names(self, node: exp.Expr) -> None:
        """Keep names that are not columns as written, even if they look like keywords."""
        owned = (node.args.get("alias"), node.args.get("this"), *node.expressions)
        for each in owned:
            if isinstance(each, exp.Identifier):
                self._keep(each)

    def _keep(self, name: exp.Identifier) -> None:
        if "start" in name.meta:
            self._verbatim.add(self._numbers[name.meta["start"]])


def argument_span(statement: Statement, call: Span) -> Span:
    """The tokens between a call's parentheses, without a leading ALL or DISTINCT."""
    start = call[0] + 2
    if statement.tokens[start].token_type in (TokenType.ALL, TokenType.DISTINCT):
        start += 1
    return start, call[1] - 1


def _is_counted(star: exp.Star) -> bool:
    call = star.parent
    plain = not any(star.args.values())
    return plain and call is not None and call_of(call) == "count" and len(call.expressions) == 1


def _is_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and bool(node.is_string)
