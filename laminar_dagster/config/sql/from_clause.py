"""Reads FROM: a source, a view, a query in parentheses, or a join of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from laminar_dagster.config.mistakes import listed, nearest
from laminar_dagster.config.relations import TableInput
from laminar_dagster.config.sql import changelog
from laminar_dagster.config.sql.dialect import TVF_NAMES, call_of, window_of
from laminar_dagster.config.sql.generators import Generator, exploded, generator_of
from laminar_dagster.config.sql.join_refusals import REFERENCES, SUBQUERIES
from laminar_dagster.config.sql.join_terms import JoinTerms, terms_of
from laminar_dagster.config.sql.joins import Input, JoinReader
from laminar_dagster.config.sql.refusal import Refusal
from laminar_dagster.config.sql.scope import Scope

if TYPE_CHECKING:
    from laminar_dagster.config.sql.queries import QueryReader


class FromReader:
    """Reads the FROM clause of one SELECT."""

    def __init__(self, reader: QueryReader) -> None:
        """Take the reader of the query, which knows the tables by name."""
        self._reader = reader
        self._expressions = reader.expressions
        self._report = reader.report

    def read(self, node: exp.Select, subqueries: Sequence[JoinTerms]) -> Input | None:
        """The input of a query, joined with its subqueries; None, and a mistake, without one."""
        clause = node.args.get("from_")
        if clause is None:
            where = self._expressions.where(node)
            self._report.add(where, "the query has no FROM", "name the source or view it reads")
            return None
        found = self._item(clause.this)
        joins = node.args.get("joins") or ()
        if found and found.scope.output.reference and not joins:
            self._refuse(clause.this, REFERENCES["alone"])
            return None
        for join in (*joins, *(node.args.get("laterals") or ())):
            generator = generator_of(join)
            if generator is not None:
                found = self._exploded(found, generator, join)
            else:
                found = self._joined(found, terms_of(join, self._reader), join.this)
        if subqueries and found and changelog.mentions_weight(node, found.scope):
            self._refuse(subqueries[0].table, SUBQUERIES["weight"])
        for terms in subqueries:
            found = self._joined(found, terms, terms.table)
        return found

    def _joined(self, left: Input | None, terms: JoinTerms | None, table: exp.Expr) -> Input | None:
        right = self._item(table)
        if left is None or right is None or terms is None:
            return None
        return JoinReader(self._reader, terms, left, right).read()

    def _exploded(
        self, left: Input | None, generator: Generator | Refusal, node: exp.Expr
    ) -> Input | None:
        if isinstance(generator, Refusal):
            self._refuse(node, generator)
            return None
        where = self._expressions.where(node)
        return exploded(self._reader, left, generator, where) if left else None

    def _item(self, table: exp.Expr) -> Input | None:
        where = self._expressions.where(table)
        alias, is_known = table.args.get("alias"), isinstance(table, exp.Table | exp.Subquery)
        if is_known and alias is not None and alias.args.get("columns"):
            self._report.add(where, "an alias with columns is not supported")
        if isinstance(table, exp.Subquery):
            self._reader.refuse_clauses(table)
            query, output = self._reader.read_named(table.this)
            return Input(query, Scope(table.alias, output, "the query in FROM"))
        if not isinstance(table, exp.Table):
            problem = f"{table.key.upper()} in FROM is not supported yet"
            hint = "name a source or a view; UNNEST and LATERAL come after it"
            self._report.add(where, problem, hint)
            return None
        return self._table(table, where)

    def _table(self, table: exp.Table, where: str) -> Input | None:
        self._reader.refuse_clauses(table, also={"db", "catalog"})
        if not isinstance(table.this, exp.Identifier):
            name = call_of(table.this) or table.this.key
            hint = "name a source or a view"
            if name.upper() in TVF_NAMES:
                hint = "write TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
            self._report.add(where, f"{name.upper()} in FROM is not supported", hint)
            return None
        if table.args.get("db"):
            problem = "a table's name has one part"
            self._report.add(where, problem, "leave out what is before the dot")
            return None
        named, tables = self._reader.named, self._reader.tables
        if table.name.lower() in named:
            query, output = named[table.name.lower()]
            scope = Scope(table.alias or table.name, output, f"`{table.name}`")
            return Input(query, scope, window_of(table))
        found = tables.get(table.name.lower())
        if found is None:
            known = [*(each[0] for each in tables.values()), *named]
            hint = nearest(table.name, known, listed(known, "sources and views"))
            problem = f"there is no source or view `{table.name[:80]}`"
            self._report.add(where, problem, hint)
            return None
        name, output = found
        scope = Scope(table.alias or name, output, f"`{name}`")
        return Input(TableInput(name), scope, window_of(table))

    def _refuse(self, node: exp.Expr, refused: Refusal) -> None:
        where = self._expressions.where(node)
        self._report.add(where, refused.problem, refused.instead)
