"""Reads the statements of an SQL file. A broken one is a mistake; the others are still read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import TokenType, exp

from laminar_dagster.config.mistakes import Report, nearest
from laminar_dagster.config.model import Column
from laminar_dagster.config.sql import intervals
from laminar_dagster.config.sql.cursor import Cursor, WrongSyntax
from laminar_dagster.config.sql.dialect import SqlSyntaxError, TooIntricate, parse_expression
from laminar_dagster.config.sql.emit_options import EMIT_WORDS, read_emit_options
from laminar_dagster.config.sql.syntax import (
    CreateReference,
    CreateSink,
    CreateSource,
    CreateView,
    Definition,
    Describe,
    Drop,
    Emit,
    Name,
    ObjectKind,
    Options,
    Question,
    Show,
    WatermarkFor,
)
from laminar_dagster.config.sql.text import SqlText, Statement
from laminar_dagster.config.sql.types import read_type
from laminar_dagster.config.variables import fill

_KINDS: Mapping[str, ObjectKind] = {
    "SOURCE": "source",
    "SOURCE TABLE": "source",
    "REFERENCE": "reference table",
    "REFERENCE TABLE": "reference table",
    "MATERIALIZED VIEW": "view",
    "VIEW": "view",
    "SINK": "sink",
}
_SHOWN: Mapping[str, ObjectKind] = {
    "SOURCES": "source",
    "REFERENCE TABLES": "reference table",
    "SINKS": "sink",
    "MATERIALIZED VIEWS": "view",
    "VIEWS": "view",
}
_HEADS = ("CREATE", "SELECT", "SHOW", "DESCRIBE", "DESC", "DROP", "WITH", "(")
_DEFINE = "CREATE SOURCE TABLE, CREATE REFERENCE TABLE, CREATE MATERIALIZED VIEW or CREATE SINK"


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads statements, and reports their mistakes."""

    environment: Mapping[str, str]
    report: Report

    def definitions(self, sql: SqlText, model_name: Name | None = None) -> Iterator[Definition]:
        """The definitions of a file; ``model_name`` names a bare query, in ``models/``."""
        for statement in sql.statements(self.report):
            try:
                yield self._definition(Cursor(statement), model_name)
            except WrongSyntax as error:
                self.report.add(error.where, error.problem, error.suggestion)

    def question(self, sql: SqlText) -> Question | None:
        """The one SHOW, DESCRIBE or DROP of a text."""
        found: Question | None = None
        for statement in sql.statements(self.report):
            cursor = Cursor(statement)
            if found is not None:
                self.report.add(cursor.where, "one statement at a time")
                return None
            try:
                found = _question(cursor)
            except WrongSyntax as error:
                self.report.add(error.where, error.problem, error.suggestion)
                return None
        if found is None and not self.report.mistakes:
            self.report.add(sql.file, "there is no statement", "for example SHOW SOURCES")
        return found

    def _definition(self, cursor: Cursor, model_name: Name | None) -> Definition:
        word = cursor.word()
        if word in ("SELECT", "WITH", "(", "FROM", "VALUES"):
            if model_name is None:
                cursor.fail("a query needs a name", "put CREATE MATERIALIZED VIEW … AS before it")
            return self._view(cursor, Name(model_name.text, cursor.where, cursor.line))
        if word in ("SHOW", "DESCRIBE", "DESC", "DROP"):
            cursor.fail(f"{word} defines nothing", f'ask it with `laminar sql "{word} …"`')
        if not cursor.accept("CREATE"):
            suggestion = nearest(word, _HEADS, f"a pipeline is made of {_DEFINE}")
            cursor.fail(f"a statement cannot begin with {cursor.shown()}", suggestion)
        cursor.accept("OR", "REPLACE")
        kind = self._kind_of_definition(cursor)
        cursor.accept("IF", "NOT", "EXISTS")
        if kind == "source":
            return self._source(cursor)
        if kind == "reference table":
            return self._reference(cursor)
        if kind == "sink":
            return self._sink(cursor)
        name = cursor.name("the view")
        if cursor.word() == "(":
            cursor.fail("a view takes no list of columns", "name them in the query, with AS")
        cursor.expect("AS")
        return self._view(cursor, name)

    def _kind_of_definition(self, cursor: Cursor) -> ObjectKind:
        for words, kind in _KINDS.items():
            if cursor.accept(*words.split(" ")):
                if kind in ("source", "reference table"):
                    cursor.accept("TABLE")
                return kind
        if cursor.word() == "TABLE":
            cursor.fail("CREATE TABLE is not supported", "did you mean CREATE SOURCE TABLE?")
        suggestion = nearest(cursor.word(), ("SOURCE", "REFERENCE", "MATERIALIZED", "VIEW", "SINK"))
        cursor.fail(f"{cursor.shown()} cannot be created: {_DEFINE}", suggestion)

    def _source(self, cursor: Cursor) -> CreateSource:
        name = cursor.name("the source")
        found: list[WatermarkFor] = []
        keys: list[tuple[Name, ...]] = []

        def watermark() -> bool:
            if cursor.word() != "WATERMARK" or cursor.word(1) != "FOR":
                return self._reads_key(cursor, keys)
            at = cursor.where
            found.append(self._watermark(cursor))
            if len(found) > 1:
                self.report.add(at, "there is a second WATERMARK", "a source has one")
            return True

        columns = self._columns(cursor, name, "source", watermark)
        options = self._options(cursor, f"source `{name.text}`")
        watermark_for = found[0] if found else None
        return CreateSource(name, columns, watermark_for, options, keys[0] if keys else ())

    def _reference(self, cursor: Cursor) -> CreateReference:
        name = cursor.name("the reference table")
        found: list[tuple[Name, ...]] = []

        def key() -> bool:
            if cursor.word() == "WATERMARK" and cursor.word(1) == "FOR":
                hint = "a join has the event time of its stream"
                cursor.fail("a reference table has no WATERMARK", hint)
            return self._reads_key(cursor, found)

        columns = self._columns(cursor, name, "reference table", key)
        options = self._options(cursor, f"reference table `{name.text}`")
        return CreateReference(name, columns, found[0] if found else (), options)

    def _reads_key(self, cursor: Cursor, found: list[tuple[Name, ...]]) -> bool:
        """Read a PRIMARY KEY if one follows; returns whether it did."""
        at = cursor.where
        if not cursor.accept("PRIMARY KEY") and not cursor.accept("PRIMARY", "KEY"):
            return False
        cursor.expect("(")
        names = [cursor.name("a column of the key")]
        while cursor.accept(","):
            names.append(cursor.name("a column of the key"))
        cursor.expect(")")
        found.append(tuple(names))
        if len(found) > 1:
            self.report.add(at, "there is a second PRIMARY KEY", "a table has one")
        return True

    def _columns(
        self, cursor: Cursor, name: Name, kind: ObjectKind, takes_other: Callable[[], bool]
    ) -> tuple[Column, ...]:
        """The columns in parentheses; ``takes_other`` tries to read an item that is no column."""
        if not cursor.accept("("):
            cursor.fail(f"the columns of `{name.text}` are expected here", "in parentheses")
        columns: list[Column] = []
        while True:
            start = cursor.token
            try:
                if not takes_other() and (cursor.word() != ")" or columns):
                    columns.append(_column(cursor))
            except WrongSyntax as error:
                self.report.add(error.where, error.problem, error.suggestion)
                if start is not None:
                    # Keep a column with a wrong type, or every use of it would be a mistake.
                    columns.append(Column(start.text, "timestamp"))
                cursor.skip_to(TokenType.COMMA)
            if cursor.accept(")"):
                break
            if not cursor.accept(","):
                cursor.fail(f"a comma or ) is expected here, not {cursor.shown()}")
        self._check_columns(name, kind, columns)
        return tuple(columns)

    def _check_columns(self, name: Name, kind: ObjectKind, columns: list[Column]) -> None:
        if not columns:
            self.report.add(name.where, f"{kind} `{name.text}` has no columns")
        seen: set[str] = set()
        for each in columns:
            if each.name.lower() in seen:
                problem = f"{kind} `{name.text}` has two columns `{each.name}`"
                self.report.add(name.where, problem, "upper and lower case are the same to Spark")
            seen.add(each.name.lower())

    def _watermark(self, cursor: Cursor) -> WatermarkFor:
        cursor.expect("WATERMARK", "FOR")
        name = cursor.name("the column of event time")
        if cursor.word() in (",", ")"):
            return WatermarkFor(name, None)
        cursor.expect("AS")
        start = cursor.index
        cursor.skip_to(TokenType.COMMA)
        where = cursor.statement.where(start)
        form = f"write {name.text} - INTERVAL '5' SECOND"
        tree = _expression(cursor.statement.part(start, cursor.index), form)
        column, delay = (tree.this, tree.expression) if isinstance(tree, exp.Sub) else (tree, None)
        if not isinstance(column, exp.Column) or column.name.lower() != name.text.lower():
            raise WrongSyntax(where, f"a watermark is `{name.text}` minus an INTERVAL", form)
        try:
            micros = intervals.micros(delay) if delay is not None else 0
        except intervals.NoInterval as error:
            raise WrongSyntax(where, str(error), form) from None
        return WatermarkFor(name, micros)

    def _sink(self, cursor: Cursor) -> CreateSink:
        name = cursor.name("the sink")
        if cursor.word() == "AS":
            cursor.fail("a sink takes its rows FROM a view", "make the query a view first")
        cursor.expect("FROM")
        view = cursor.name("the view")
        return CreateSink(name, view, self._options(cursor, f"sink `{name.text}`"))

    def _view(self, cursor: Cursor, name: Name) -> CreateView:
        statement, start = cursor.statement, cursor.index
        end: int = len(statement.tokens)
        emit: Emit | None = None
        for index in range(start, end):
            at = Cursor(statement)
            at.index = index
            if at.word() == "EMIT" and at.word(1) in EMIT_WORDS:
                emit, end = self._emit(at), index
                break
        if start >= end:
            cursor.fail("a query is expected here")
        return CreateView(name, statement.part(start, end), emit)

    def _emit(self, cursor: Cursor) -> Emit:
        where = cursor.where
        cursor.expect("EMIT")
        if cursor.accept("ON"):
            cursor.expect("WINDOW", "CLOSE")
            emit, owner = Emit(where), "EMIT ON WINDOW CLOSE"
        elif cursor.accept("CHANGES"):
            emit, owner = Emit(where, changes=True), "EMIT CHANGES"
        else:
            hint = "EMIT ON WINDOW CLOSE and EMIT CHANGES are"
            cursor.fail(f"EMIT {cursor.word()} is not supported yet", hint)
        if cursor.word() != "WITH":
            cursor.expect_end()
            return emit
        return read_emit_options(emit, self._options(cursor, owner), self.report)

    def _options(self, cursor: Cursor, owner: str) -> Options:
        start = cursor.where
        if not cursor.accept("WITH"):
            cursor.fail(
                f"{owner} needs WITH (connector = '…', …), not {cursor.shown()}",
                nearest(cursor.word(), ["WITH"]),
            )
        cursor.expect("(")
        values: dict[str, str] = {}
        written: dict[str, str] = {}
        places: dict[str, str] = {}
        while not cursor.accept(")"):
            where = cursor.where
            key = _option_name(cursor)
            if not cursor.accept("="):
                cursor.fail(f"= is expected after the option `{key}`, not {cursor.shown()}")
            text = _option_value(cursor, key)
            if key.lower() in {each.lower() for each in written}:
                self.report.add(where, f"the option `{key}` stands here twice")
            written[key], places[key] = text, where
            values[key] = self._filled(text, where)
            if not cursor.accept(",") and cursor.word() != ")":
                cursor.fail(f"a comma or ) is expected here, not {cursor.shown()}")
        cursor.expect_end()
        return Options(values, written, places, start)

    def _filled(self, text: str, where: str) -> str:
        def missing(name: str) -> None:
            self.report.add(where, f"the environment has no {name}", f"set {name}")

        return fill(text, self.environment, missing)


def read_column_type(sql: SqlText, report: Report) -> tuple[str, bool] | None:
    """A type on its own, and whether it may be null: ``TIMESTAMP NOT NULL``."""
    for statement in sql.statements(report):
        cursor = Cursor(statement)
        try:
            kind = read_type(cursor)
            nullable = not cursor.accept("NOT", "NULL")
            cursor.expect_end()
        except WrongSyntax as error:
            report.add(sql.file, error.problem, error.suggestion)
            return None
        return kind, nullable
    report.add(sql.file, "a type is expected here", "such as BIGINT or STRING")
    return None


def _column(cursor: Cursor) -> Column:
    name = cursor.name("a column")
    kind = read_type(cursor)
    nullable = True
    while cursor.word() not in (",", ")", ""):
        if cursor.accept("NOT", "NULL"):
            nullable = False
        elif cursor.accept("COMMENT") and cursor.token:
            cursor.index += 1
        elif not cursor.accept("NULL"):
            cursor.fail(
                f"{cursor.shown()} cannot follow the type of `{name.text}`",
                nearest(cursor.word(), ("NOT NULL", "COMMENT"), "NOT NULL or COMMENT '…' may"),
            )
    return Column(name.text, kind, nullable)


def _expression(statement: Statement, form: str) -> exp.Expr:
    if not statement.tokens:
        raise WrongSyntax(statement.sql.file, "an expression is missing", form)
    try:
        return parse_expression(statement.tokens, statement.sql.text)
    except SqlSyntaxError as error:
        raise WrongSyntax(statement.where(error.index), "this cannot be read", form) from None
    except (RecursionError, TooIntricate):
        raise WrongSyntax(statement.where(), "this is nested too deeply", form) from None


def _option_name(cursor: Cursor) -> str:
    token = cursor.token
    if token is None:
        cursor.fail("an option or ) is expected here, not the end of the statement")
    cursor.index += 1
    parts = [token.text]
    if token.token_type != TokenType.STRING:
        # a.b = '…' is the same as 'a.b' = '…'.
        while cursor.word() == "." and cursor.token is not None:
            cursor.index += 1
            parts.append(cursor.token.text if cursor.token else "")
            cursor.index += 1
    name = ".".join(parts)
    if not name or len(name) > 200 or not name.isprintable():
        cursor.fail("this is not the name of an option")
    return name


def _option_value(cursor: Cursor, key: str) -> str:
    token = cursor.token
    if token is None:
        cursor.fail(f"the value of `{key}` is expected here, not the end of the statement")
    if token.token_type == TokenType.PARAMETER:
        cursor.fail(f"the value of `{key}` has to be in quotes", f"{key} = '${{NAME}}'")
    text, end = token.text, token.end
    if token.token_type in (TokenType.STRING, TokenType.RAW_STRING):
        cursor.index += 1
        # sqlglot splits 'it''s' into two adjacent string tokens.
        while (more := cursor.token) and more.token_type == TokenType.STRING:
            if more.start != end + 1:
                cursor.fail(f"a comma or ) is expected after the value of `{key}`")
            text, end = text + "'" + more.text, more.end
            cursor.index += 1
        return text
    negative = "-" if cursor.accept("-") else ""
    value = cursor.token
    if value is not None and (
        value.token_type == TokenType.NUMBER or value.text.upper() in ("TRUE", "FALSE")
    ):
        cursor.index += 1
        return negative + value.text
    cursor.fail(f"the value of `{key}` has to be in quotes", f"{key} = '…'")


def _question(cursor: Cursor) -> Question:
    word = cursor.expect_one_of("SHOW", "DESCRIBE", "DESC", "DROP")
    if word == "SHOW":
        shown = Show(_SHOWN[cursor.expect_one_of(*_SHOWN)])
        cursor.expect_end()
        return shown
    kind = _KINDS[cursor.expect_one_of(*sorted(_KINDS, key=len, reverse=True))]
    if word == "DROP":
        cursor.accept("IF", "EXISTS")
    name = cursor.name(f"the {kind}")
    cursor.expect_end()
    return Drop(kind, name) if word == "DROP" else Describe(kind, name)
