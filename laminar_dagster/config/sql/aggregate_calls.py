"""Calls of aggregates, with FILTER and WITHIN GROUP, read into the model."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

from sqlglot import exp

from laminar_dagster.config.aggregate import Aggregate, AggregateFunction, Ordering
from laminar_dagster.config.sql import functions
from laminar_dagster.config.sql.aggregate_arguments import (
    ACCURACY,
    DEVIATION,
    arguments_in,
    number_of,
    shares_of,
)
from laminar_dagster.config.sql.dialect import Span, call_of
from laminar_dagster.config.sql.expressions import Expressions, argument_span
from laminar_dagster.config.sql.functions import aggregate_of, is_distinct
from laminar_dagster.config.sql.scope import Scope
from laminar_dagster.config.sql.text import quoted


class AggregateReader:
    """Reads the aggregates of one query, which have been checked before."""

    def __init__(self, expressions: Expressions, scope: Scope) -> None:
        """Take the query's expressions and its input."""
        self._expressions = expressions
        self._scope = scope

    def read(self, node: exp.Expr, window: exp.Expr | None) -> Aggregate | None:
        """Read an aggregate, without a name yet; None if its tokens are unknown.

        Args:
            node: The call, including FILTER and WITHIN GROUP around it.
            window: The window of GROUP BY, by whose time FIRST and LAST choose.
        """
        condition, order = "", tuple[Ordering, ...]()
        if isinstance(node, exp.Filter):
            condition = self._text(node.expression.this)
            node = node.this
        if isinstance(node, exp.WithinGroup):
            order = tuple(self._ordering(each) for each in node.expression.expressions)
            node = node.this
        span = self._expressions.span(node)
        if span is None:
            return None
        found = self._call(node, span, order, window)
        return _conditional(found, condition) if condition else found

    def _call(
        self,
        node: exp.Expr,
        span: Span,
        order: tuple[Ordering, ...],
        window: exp.Expr | None,
    ) -> Aggregate:
        function, given = aggregate_of(node), arguments_in(node)
        texts = [self._text(each) for each in given]
        argument: str | None = texts[0]
        if len(given) == 1:
            # The text inside the parentheses as written: existing state is named after it.
            is_star = isinstance(given[0], exp.Star)
            inside = argument_span(self._expressions.statement, span)
            argument = None if is_star else self._expressions.text(inside)
        distinct = is_distinct(node)
        match function:
            case "count_if":
                return _named("count", f"IF({argument}, 1, NULL)")
            case "any_value":
                return _named("min", argument)
            case "first" | "last":
                by = self._event_time(node, window)
                return Aggregate("", "min_by" if function == "first" else "max_by", argument, by)
            case "min_by" | "max_by":
                return Aggregate("", function, texts[0], texts[1])
            case "count" if distinct:
                others = tuple(texts[1:])
                return Aggregate("", "count_distinct", argument, others=others)
            case "sum" if distinct:
                return _named("sum_distinct", argument)
            case "collect_list" if distinct:
                return _named("collect_set", argument)
            case "string_agg":
                separator = given[1].name if len(given) == 2 else ""
                joined = Aggregate("", "string_agg", texts[0], order=order, separator=separator)
                return replace(joined, is_distinct=distinct)
            case "median":
                return Aggregate("", "percentile", argument, shares=(0.5,))
            case "percentile" | "approx_percentile":
                return _percentile(function, texts[0], given)
            case "percentile_cont" | "percentile_disc":
                kind = "percentile" if function == "percentile_cont" else function
                return _percentile(kind, order[0].sql, [given[0], given[0]])
            case "approx_count_distinct":
                deviation = number_of(given[1]) if len(given) == 2 else DEVIATION
                precision = max(4, math.ceil(2 * math.log2(1.04 / (deviation or DEVIATION))))
                hashed = f"IF({texts[0]} IS NULL, NULL, xxhash64({texts[0]}))"
                return Aggregate("", "approx_count_distinct", hashed, precision=precision)
            case _ if function in functions.OF_TWO:
                return replace(_named(function, texts[0]), others=(texts[1],))
            case _:
                return _named(function, argument)

    def _ordering(self, node: exp.Expr) -> Ordering:
        descending = bool(node.args.get("desc"))
        return Ordering(self._text(node.this), descending, bool(node.args.get("nulls_first")))

    def _text(self, node: exp.Expr) -> str:
        span = self._expressions.span(node)
        return self._expressions.text(span) if span is not None else "NULL"

    def _event_time(self, node: exp.Expr, window: exp.Expr | None) -> str:
        """The event time by which FIRST and LAST choose."""
        if window is not None and isinstance(window.expressions[0], exp.Column):
            return self._text(window.expressions[0])
        found = [each for each in self._scope.columns if self._scope.time(each)]
        if not found and not self._scope.output.unknown:
            name = call_of(node).upper()
            problem = f"{name} goes by event time, and {self._scope.description} has none"
            hint = "write MIN_BY(x, column) or MAX_BY(x, column)"
            self._expressions.report.add(self._expressions.where(node), problem, hint)
        if not found:
            return "NULL"
        self._scope.keep(found[0])
        return quoted(found[0])


def _percentile(function: str, argument: str, given: list[exp.Expr]) -> Aggregate:
    found = replace(
        _named(function, argument),
        shares=shares_of(given[1]),
        is_list=call_of(given[1]) == "array",
    )
    if function != "approx_percentile":
        return found
    accuracy = number_of(given[2]) if len(given) == 3 else ACCURACY
    return replace(found, precision=max(1, math.ceil(math.log2(accuracy or 1)) - 1))


def _conditional(found: Aggregate, condition: str) -> Aggregate:
    """Apply FILTER: arguments of rows that do not match become NULL, which aggregates ignore."""

    def only(text: str | None) -> str:
        return f"IF({condition}, {text or '1'}, NULL)"

    if found.by is not None:
        return replace(found, by=only(found.by))
    order = tuple(replace(each, sql=only(each.sql)) for each in found.order)
    others = tuple(only(each) for each in found.others)
    return replace(found, argument=only(found.argument), others=others, order=order)


def _named(function: str, argument: str | None) -> Aggregate:
    return Aggregate("", cast(AggregateFunction, function), argument)
