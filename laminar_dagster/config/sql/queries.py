"""A query of a view, read into the engine's model.

A query reads a source, a view, a query in parentheses, or a join of these (``from_clause.py``). It
is a projection and filter, an aggregation (``groups.py``), or a UNION ALL of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import TokenType, exp

from laminar_dagster.config.mistakes import Report
from laminar_dagster.config.relations import Projection, Query, Select, UnionAll
from laminar_dagster.config.sql import changelog
from laminar_dagster.config.sql.column_types import known, type_of
from laminar_dagster.config.sql.dialect import Span, span_of
from laminar_dagster.config.sql.expressions import Clause, Expressions
from laminar_dagster.config.sql.from_clause import FromReader
from laminar_dagster.config.sql.functions import WINDOW_COLUMNS, aggregates_in
from laminar_dagster.config.sql.generators import generated_items, read_generated
from laminar_dagster.config.sql.join_columns import with_used_columns
from laminar_dagster.config.sql.join_conditions import all_of, conjuncts
from laminar_dagster.config.sql.joins import Input
from laminar_dagster.config.sql.ranks import RankReader, limited, row_number_of
from laminar_dagster.config.sql.refusal import Refusal
from laminar_dagster.config.sql.refusals import CLAUSES, RANKS
from laminar_dagster.config.sql.scalar_subqueries import with_values
from laminar_dagster.config.sql.scope import BROKEN, EventTime, Output, Scope, Star, plain_column
from laminar_dagster.config.sql.subqueries import without_subqueries
from laminar_dagster.config.sql.syntax import Emit
from laminar_dagster.config.sql.text import Statement, quoted
from laminar_dagster.config.sql.unions import (
    Part,
    common_times,
    common_types,
    refused_set_operation,
    renamed,
)

_TAKEN = {"this", "expressions", "from_", "joins", "where", "group", "having", "alias", "distinct"}
_TAKEN |= {"with_"}
_SET_ARGUMENTS = {"this", "expression", "distinct", "by_name", "side", "kind", "on"}

Tables = Mapping[str, tuple[str, Output]]


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a SELECT list: the expression, and the name of its column."""

    node: exp.Expr
    span: Span
    name: str
    where: str


class QueryReader:
    """Reads one query. Mistakes go to its report; after one, the result must not be used."""

    def __init__(
        self,
        statement: Statement,
        view: str,
        tables: Tables,
        report: Report,
        emit: Emit | None = None,
    ) -> None:
        """Take the query's tokens, its view's name, the tables by name in lower case, its EMIT."""
        self.statement = statement
        self.report = report
        self.emit = emit
        self.expressions = Expressions(statement, view, report)
        self.tables = tables
        self.named: dict[str, tuple[Query | None, Output]] = {}
        # True in all but the first query of a UNION ALL, which names the columns.
        self.may_lack_names = False

    def read(self, node: exp.Expr) -> tuple[Query | None, Output]:
        """The query and its columns; None for the query if mistakes prevent building it."""
        node = self._unwrapped(node)
        outer = self.named
        self.named = {**outer, **self._common_tables(node)}
        try:
            return self._query(node)
        finally:
            self.named = outer

    def read_named(self, node: exp.Expr) -> tuple[Query | None, Output]:
        """A query whose columns all need names, because another one reads it."""
        outer, self.may_lack_names = self.may_lack_names, False
        try:
            return self.read(node)
        finally:
            self.may_lack_names = outer

    def _common_tables(self, node: exp.Expr) -> dict[str, tuple[Query | None, Output]]:
        """The queries of a WITH, by name in lower case; each may read those before it."""
        clause = node.args.get("with_")
        outer, found = self.named, dict[str, tuple[Query | None, Output]]()
        if clause is None:
            return found
        for each in clause.expressions:
            name, where = each.alias, self.expressions.where(each.args["alias"])
            if clause.args.get("recursive"):
                refused = CLAUSES["recursive"]
                self.report.add(where, refused.problem, refused.instead)
            if name.lower() in found or name.lower() in self.tables:
                problem = f"there is already a source, view or query `{name[:80]}`"
                self.report.add(where, problem, "give this one another name")
            if each.args["alias"].args.get("columns"):
                self.report.add(where, "a list of columns is not supported here", "use AS in it")
            self.named = {**outer, **found}
            found[name.lower()] = self.read(each.this)
        self.named = outer
        return found

    def _query(self, node: exp.Expr) -> tuple[Query | None, Output]:
        if isinstance(node, exp.SetOperation):
            return self._union(node)
        if isinstance(node, exp.Select):
            return self._select(node)
        name = "VALUES" if isinstance(node, exp.Values) else node.key.upper()
        self.report.add(self.expressions.where(node), f"{name} is not supported as a query")
        return None, BROKEN

    def _unwrapped(self, node: exp.Expr) -> exp.Expr:
        while isinstance(node, exp.Subquery):
            self.refuse_clauses(node)
            node = node.this
        return node

    def _union(self, node: exp.Expr) -> tuple[Query | None, Output]:
        outputs: list[Output] = []
        parts: list[Part] = []
        places: list[str] = []
        outer = self.may_lack_names
        for number, each in enumerate(self._branches(node)):
            # Only the first query has to name its columns.
            self.may_lack_names = outer or number > 0
            query, output = self.read(each)
            self.may_lack_names = outer
            outputs.append(output)
            places.append(self.expressions.where(each))
            if output.rank:
                self.report.add(places[-1], RANKS["limit"].problem, RANKS["limit"].instead)
            names = outputs[0].columns
            if isinstance(query, UnionAll):
                parts.extend(renamed(part, names) for part in query.parts)
            elif query is not None:
                parts.append(renamed(query, names))
        first = outputs[0]
        for output, place in zip(outputs, places, strict=True):
            if not (first.unknown or output.unknown) and len(output.columns) != len(first.columns):
                problem = (
                    f"this query of a UNION ALL has {len(output.columns)} columns, "
                    f"the first has {len(first.columns)}"
                )
                self.report.add(place, problem, "each has the same columns in the same order")
        if any(each.unknown for each in outputs):
            return UnionAll(tuple(parts)), BROKEN
        odd = changelog.misplaced(outputs)
        if odd is not None:
            problem = f"this query of a UNION ALL has `{changelog.WEIGHT}` in another place"
            self.report.add(places[odd], problem, "it stands at the same place in each")
        lacking = next((each.lacks_retractions for each in outputs if each.lacks_retractions), "")
        return UnionAll(tuple(parts)), Output(
            first.columns,
            common_times(outputs),
            lacks_retractions=lacking,
            types=common_types(outputs),
        )

    def _branches(self, node: exp.Expr) -> Iterator[exp.Expr]:
        """The queries of a chain of set operations, first to last."""
        chain: list[exp.Expr] = []
        while isinstance(node, exp.SetOperation):
            self._check_set_operation(node)
            chain.append(node.expression)
            node = self._unwrapped(node.this)
        yield node
        yield from reversed(chain)

    def _check_set_operation(self, node: exp.SetOperation) -> None:
        self.refuse_clauses(node, also=_SET_ARGUMENTS)
        # The keyword of the operator is the token before its second query.
        second = span_of(node.expression)
        where = self.expressions.where(node.expression)
        if second:
            at = second[0] - 1
            while at > 0 and self.statement.tokens[at].token_type in (
                TokenType.ALL,
                TokenType.L_PAREN,
                TokenType.DISTINCT,
            ):
                at -= 1
            where = self.statement.where(at)
        refused = refused_set_operation(node)
        if refused:
            self.report.add(where, refused.problem, refused.instead)

    def _select(self, node: exp.Select) -> tuple[Query | None, Output]:
        number = row_number_of(node)
        self.refuse_clauses(node, also={"laterals", *(("qualify",) if number is not None else ())})
        node, subqueries = without_subqueries(node, self)
        found = FromReader(self).read(node, subqueries)
        if found is None or found.relation is None:
            return None, BROKEN
        relation, scope, window = found.relation, found.scope, found.window
        if scope.output.rank:
            relation = limited(self, node, relation, scope)
        is_plain = number is None and window is None and not self._is_grouped(node)
        read = with_values(self, node, Input(relation, scope, window), is_plain=is_plain)
        if read is None:
            return None, BROKEN
        generated = generated_items(node)
        if generated and is_plain:
            return read_generated(self, node, generated, read)
        return self.selected(node, read, number)

    def selected(
        self, node: exp.Select, read: Input, number: exp.Expr | None
    ) -> tuple[Query | None, Output]:
        """A query over its input, whose joins keep only the columns that it uses."""
        query, output = self._over(node, read, number)
        return (with_used_columns(query, read.scope) if query else None), output

    def _over(
        self, node: exp.Select, read: Input, number: exp.Expr | None
    ) -> tuple[Query | None, Output]:
        """A query over its input: grouped, with a ROW_NUMBER, or a projection."""
        relation, scope, window = read.relation, read.scope, read.window
        assert relation is not None
        if window is not None or self._is_grouped(node):
            # Imported here because a grouped query is read with this reader's help.
            from laminar_dagster.config.sql.groups import GroupReader

            if number is not None and node.args.get("qualify") is not None:
                self._refuse(node, RANKS["groups"])
            return GroupReader(self, node, relation, scope, window).read()
        having = node.args.get("having")
        if having is not None:
            where = self.statement.where(self._keyword(node, TokenType.HAVING))
            self.report.add(where, "HAVING stands without GROUP BY", "use WHERE")
        if number is not None:
            return RankReader(self, node, relation, scope).read(number)
        condition = self.where_clause(node, scope)
        columns: list[Projection] = []
        times: dict[str, EventTime] = {}
        required: set[str] = set()
        types: dict[str, exp.DataType | None] = {}
        for each in self.items(node, scope):
            if isinstance(each, Star):
                columns.append(Projection(each.name, each.sql))
                origin = each.origin
                types[each.name] = scope.output.types.get(origin)
            else:
                self.expressions.check(each.node, scope, Clause("SELECT"))
                columns.append(Projection(each.name, self.expressions.text(each.span)))
                types[each.name] = type_of(each.node, scope)
                origin = plain_column(each.node, scope)
                self._check_alias(each, scope.written(origin))
            required |= {columns[-1].name} if origin in scope.output.required else set()
            time = scope.time(origin) if origin else None
            if time is not None:
                times[columns[-1].name.lower()] = time
        self.check_duplicates([each.name for each in columns], node)
        if self._emits_changes and changelog.is_carried(node, scope, [c.name for c in columns]):
            columns.append(Projection(changelog.WEIGHT, changelog.WEIGHT))
        names = tuple(each.name for each in columns)
        changelog.check_projection(node, scope, names, self.expressions)
        lacking = scope.output.lacks_retractions
        # The event times of a broken input are not known.
        output = Output(
            names,
            times,
            lacks_retractions=lacking,
            required=frozenset(required),
            types=known(types),
        )
        output = BROKEN if scope.output.unknown else output
        return Select(relation, tuple(columns), condition), output

    @property
    def _emits_changes(self) -> bool:
        return self.emit is not None and self.emit.changes

    def _is_grouped(self, node: exp.Select) -> bool:
        if node.args.get("group") or node.args.get("distinct"):
            return True
        # Aggregates without GROUP BY: one row over everything, which never stops changing.
        return self._emits_changes and any(aggregates_in(each) for each in node.expressions)

    def where_clause(self, node: exp.Select, scope: Scope) -> str | None:
        """The condition of WHERE over the input's columns."""
        clause = node.args.get("where")
        if clause is None:
            return None
        self.expressions.check(clause.this, scope, Clause("WHERE"))
        span = self.expressions.span(clause.this)
        # A condition that a subquery was removed from has no tokens, but its operands have.
        spans = [span] if span else map(self.expressions.span, conjuncts(clause.this))
        return all_of([self.expressions.text(each) for each in spans if each])

    def item(self, node: exp.Expr, scope: Scope) -> Item | None:
        """An item of a SELECT list that is no ``*``."""
        expression = node.this if isinstance(node, exp.Alias) else node
        span, where = self.expressions.span(expression), self.expressions.where(node)
        if span is None:
            self.report.add(where, "this cannot be read as an expression")
            return None
        if isinstance(node, exp.Alias):
            alias = node.args["alias"]
            where = self.expressions.where(alias) if isinstance(alias, exp.Expr) else where
            name = node.alias
        elif isinstance(expression, exp.Column):
            name = expression.name
        elif isinstance(expression, exp.Dot) and isinstance(expression.expression, exp.Identifier):
            name = expression.name
        else:
            name = f"column at {where}"
            if self.may_lack_names:
                return Item(expression, span, name, where)
            written = self.statement.raw(*span)
            shown = " ".join(written.split())
            shown = shown if len(shown) <= 40 else shown[:39] + "…"
            self.report.add(where, f"`{shown}` needs a name", "add AS and a name")
            return Item(expression, span, name, where)
        origin = plain_column(expression, scope)
        name = self.checked_name(name, scope.written(origin), where)
        return Item(expression, span, name, where)

    def check_duplicates(self, names: list[str], node: exp.Expr) -> None:
        """Refuse two columns of the same name."""
        seen: set[str] = set()
        for each in names if not self.may_lack_names else ():
            if each.lower() in seen:
                where = self.expressions.where(node)
                self.report.add(where, f"two columns are called `{each}`", "rename one with AS")
            seen.add(each.lower())

    def items(self, node: exp.Select, scope: Scope) -> Iterator[Item | Star]:
        """The items of a SELECT list; a ``*`` as the columns it stands for."""
        for each in node.expressions:
            star = each.this if isinstance(each, exp.Column) else each
            if isinstance(star, exp.Star):
                yield from self._star(each, star, scope)
            else:
                item = self.item(each, scope)
                if item is not None:
                    yield item

    def _star(self, node: exp.Expr, star: exp.Star, scope: Scope) -> Iterator[Star]:
        where = self.expressions.where(node)
        if any(star.args.values()):
            self.report.add(where, "* with EXCEPT or REPLACE is not supported yet", "list them")
        qualifiers = [each.name for each in node.parts[:-1]] if isinstance(node, exp.Column) else []
        qualifier = ".".join(qualifiers) if qualifiers else None
        found = scope.star(qualifier)
        if found is None:
            hint = f"the input is called {' or '.join(f'`{each}`' for each in scope.aliases)}"
            self.report.add(where, f"there is no `{qualifier}` here"[:120], hint)
        for name, column in found if found is not None else scope.star() or ():
            yield Star(name, quoted(column), column)

    def checked_name(self, name: str, origin: str, where: str) -> str:
        """The name of a column; a leading underscore is allowed only in a connector's columns."""
        if name.startswith("_") and name.lower() == origin.lower():
            return origin
        if name.startswith("_"):
            self.report.add(where, f"the name `{name[:80]}` is reserved", "begin it with a letter")
        elif not name or len(name) > 200 or not name.isprintable():
            self.report.add(where, "this is not the name of a column")
        return name

    def _check_alias(self, item: Item, origin: str) -> None:
        name = item.name.lower()
        if name in WINDOW_COLUMNS and origin.lower() != name:
            hint = "it is for the edges of a window"
            self.report.add(item.where, f"the name `{item.name}` is reserved", hint)

    def refuse_clauses(self, node: exp.Expr, also: set[str] | None = None) -> None:
        """Report the clauses of a node that are not supported."""
        taken = _TAKEN | (also or set())
        for key, value in node.args.items():
            if not value or key in taken:
                continue
            self._refuse(node, CLAUSES.get(key, Refusal(key.strip("_").upper())))

    def _refuse(self, node: exp.Expr, refused: Refusal) -> None:
        where = self.statement.where(self._keyword(node, *refused.keywords))
        self.report.add(where, refused.problem, refused.instead)

    def _keyword(self, node: exp.Expr, *kinds: TokenType) -> int:
        span = span_of(node) or (0, len(self.statement.tokens))
        if isinstance(node, exp.Table | exp.SetOperation):
            span = (span[0], len(self.statement.tokens))
        return self.statement.find(kinds, span)
