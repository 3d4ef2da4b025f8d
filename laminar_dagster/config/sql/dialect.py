"""sqlglot's dialect of Spark SQL, changed in two ways.

Functions stay as they are written. sqlglot would turn many into its own kinds of nodes, which it
writes back differently; here a call is a name with arguments, whose meaning only Spark knows.

Every node knows its tokens: ``span_of(node)`` is a half-open range into the statement's tokens.
Text that goes to Spark is cut from what the author wrote (see ``text.py``), never generated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final, NoReturn

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, ParseError
from sqlglot.parsers.spark import SparkParser

Span = tuple[int, int]

# Calls whose arguments are not a plain list: CAST(x AS t), TRIM(BOTH x FROM y), …
_SPECIAL_CALLS: Final = (
    "CAST",
    "TRY_CAST",
    "EXTRACT",
    "TRIM",
    "SUBSTRING",
    "SUBSTR",
    "POSITION",
    "OVERLAY",
)
_ATTEMPTS_PER_TOKEN: Final = 50
_SPAN: Final = "span"
_NAME: Final = "call"
_WINDOW: Final = "window"
_PARTITION: Final = "partition"
_AROUND_CALLS: Final = (exp.Filter, exp.Window, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)
TVF_NAMES: Final = frozenset({"TUMBLE", "HOP", "SESSION", "CUMULATE"})


class TooIntricate(Exception):
    """Parsing takes too long."""


class StreamParser(SparkParser):
    """Parses queries: functions by name only, token ranges on expressions, window functions."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: SparkParser.FUNCTION_PARSERS[name] for name in _SPECIAL_CALLS
    }
    FUNC_TOKENS: ClassVar[set[TokenType]] = SparkParser.FUNC_TOKENS | {TokenType.SESSION}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: SparkParser.NO_PAREN_FUNCTION_PARSERS[name] for name in ("ANY", "CASE")
    }

    def reset(self) -> None:
        """Begin a new statement."""
        super().reset()
        self._attempts = 0
        self._calls: list[tuple[int, str]] = []

    def _parse_types(
        self,
        check_func: bool = False,
        schema: bool = False,
        allow_identifiers: bool = True,
        with_collation: bool = False,
    ) -> exp.Expr | None:
        # `date(x)` is a call. Trying it as a type first would double the work at every level of
        # nesting.
        if check_func and self._next and self._next.token_type == TokenType.L_PAREN:
            return None
        return super()._parse_types(check_func, schema, allow_identifiers, with_collation)

    def _parse_disjunction(self) -> exp.Expr | None:
        start = self._attempt()
        return self._mark(super()._parse_disjunction(), start)

    def _parse_equality(self, *args: Any, **options: Any) -> exp.Expr | None:
        # Mark the operands of AND with their tokens: ON is split into them.
        start = self._index
        return self._mark(super()._parse_equality(*args, **options), start)

    def _parse_bitwise(self) -> exp.Expr | None:
        # Mark the operands of comparisons with their tokens.
        start = self._index
        return self._mark(super()._parse_bitwise(), start)

    def _parse_select(self, *args: Any, **options: Any) -> exp.Expr | None:
        start = self._attempt()
        return self._mark(super()._parse_select(*args, **options), start)

    def _parse_function_call(self, *args: Any, **options: Any) -> exp.Expr | None:
        start, name = self._index, self._curr.text if self._curr else ""
        self._calls.append((start, name))
        try:
            node = super()._parse_function_call(*args, **options)
        finally:
            self._calls.pop()
        if node is not None and not isinstance(node, _AROUND_CALLS):
            node.meta.setdefault(_NAME, name)
        return self._mark(node, start)

    def _parse_window(self, this: exp.Expr | None, *args: Any, **options: Any) -> exp.Expr | None:
        # Mark the call now: a FILTER (WHERE …) after it becomes a node around it.
        if isinstance(this, exp.Anonymous) and self._calls:
            start, name = self._calls[-1]
            this.meta.setdefault(_NAME, name)
            self._mark(this, start)
        return super()._parse_window(this, *args, **options)

    def _parse_table(self, *args: Any, **options: Any) -> exp.Expr | None:
        start = self._attempt()
        node = self._parse_window_table() or super()._parse_table(*args, **options)
        return self._mark(node, start)

    def _parse_window_table(self) -> exp.Expr | None:
        """Parse ``TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) [AS alias]``.

        The table of a SESSION may have keys: ``TABLE t PARTITION BY a``, or ``(a, b)``.
        """
        start = self._index
        wrapped = self._match_text_seq("TABLE", "(")
        name = self._curr.text.upper() if self._curr else ""
        if name not in TVF_NAMES or not self._match_text_seq(name, "(", "TABLE"):
            self._retreat(start)
            return None
        # Parsed as a table's name, which may be a keyword.
        table = self._parse_table_parts()
        partition = self._parse_session_keys() if name == "SESSION" else []
        if table is None or not self._match(TokenType.COMMA):
            self.raise_error("a table and a comma are expected here")
        if not self._match_text_seq("DESCRIPTOR", "("):
            self.raise_error("DESCRIPTOR(column) is expected here")
        time = self._parse_column()
        self._match_r_paren()
        if not self._match(TokenType.COMMA):
            self.raise_error("an INTERVAL is expected here")
        lengths = self._parse_csv(self._parse_disjunction)
        self._match_r_paren()
        if wrapped:
            self._match_r_paren()
        window = self._mark(exp.Anonymous(this=name, expressions=[time, *lengths]), start)
        assert window is not None
        window.meta[_NAME] = name
        window.meta[_PARTITION] = partition
        table.meta[_WINDOW] = window
        alias = self._parse_table_alias(alias_tokens=self.TABLE_ALIAS_TOKENS)
        if alias:
            table.set("alias", alias)
        return table

    def _parse_session_keys(self) -> list[exp.Expr]:
        if not self._match(TokenType.PARTITION_BY):
            return []
        # Without parentheses there is one key: the next comma precedes DESCRIPTOR.
        is_list = self._match(TokenType.L_PAREN)
        keys = self._parse_csv(self._parse_column) if is_list else [self._parse_column()]
        if is_list:
            self._match_r_paren()
        found = [each for each in keys if isinstance(each, exp.Column)]
        if len(found) != len(keys) or not found:
            self.raise_error("a column is expected here")
        return [*found]

    def _attempt(self) -> int:
        """The parser's position. Counts its attempts, as it backtracks on some texts for ever."""
        self._attempts += 1
        if self._attempts > _ATTEMPTS_PER_TOKEN * (self._tokens_size + 1):
            raise TooIntricate
        return self._index

    def _mark(self, node: exp.Expr | None, start: int) -> exp.Expr | None:
        if node is not None and _SPAN not in node.meta:
            node.meta[_SPAN] = (start, self._index)
        return node

    def raise_error(self, message: str, token: Any = None) -> NoReturn:
        """Stop at a syntax error, and say at which token."""
        raise SqlSyntaxError(message, self._index)


class SqlSyntaxError(ParseError):
    """A syntax error at a token of a statement."""

    def __init__(self, message: str, index: int) -> None:
        """Take sqlglot's message and the number of the token."""
        # sqlglot modifies the first dict of a ParseError's list, so there has to be one.
        super().__init__(message, [{}])
        self.index = index


class StreamDialect(Spark):
    """Spark's dialect with this parser."""

    class Tokenizer(Spark.Tokenizer):
        """Splits ``SHOW …`` into tokens like any other statement."""

        COMMANDS: ClassVar[set[TokenType]] = set()

    Parser = StreamParser


def parse(tokens: Sequence[Token], text: str) -> exp.Expr:
    """Parse the tokens of one query.

    Raises:
        SqlSyntaxError: It is none.
        RecursionError: It is nested too deeply.
        TooIntricate: sqlglot finds no end.
    """
    trees = StreamDialect().parser(error_level=ErrorLevel.IMMEDIATE).parse(list(tokens), text)
    if len(trees) != 1 or trees[0] is None:
        raise SqlSyntaxError("a query is expected here", 0)
    return trees[0]


def parse_expression(tokens: Sequence[Token], text: str) -> exp.Expr:
    """Parse the tokens of one expression.

    Raises:
        SqlSyntaxError: It is none.
        RecursionError: It is nested too deeply.
        TooIntricate: sqlglot finds no end.
    """
    parser = StreamDialect().parser(error_level=ErrorLevel.IMMEDIATE)
    try:
        trees = parser.parse_into(exp.Condition, list(tokens), text)
    except SqlSyntaxError:
        raise
    except ParseError as error:
        raise SqlSyntaxError(str(error), 0) from None
    if len(trees) != 1 or trees[0] is None:
        raise SqlSyntaxError("an expression is expected here", 0)
    return trees[0]


def span_of(node: exp.Expr) -> Span | None:
    """The tokens of its statement that a node consists of; None if unknown."""
    span: Span | None = node.meta.get(_SPAN)
    return span


def call_of(node: exp.Expr) -> str:
    """The name of the function that a node calls, in lower case; empty if it is no call."""
    return str(node.meta.get(_NAME, "")).lower()


def bare(node: exp.Expr) -> exp.Expr:
    """A node without the parentheses around it."""
    # Not sqlglot's `unnest`, which also replaces a subquery by the query in it.
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def window_of(table: exp.Expr) -> exp.Expr | None:
    """The window function around a table, for ``TABLE(TUMBLE(TABLE t, …))``."""
    window: exp.Expr | None = table.meta.get(_WINDOW)
    return window


def partition_of(window: exp.Expr) -> tuple[exp.Expr, ...]:
    """The columns by which a SESSION in FROM partitions its table; none for any other window."""
    return tuple(window.meta.get(_PARTITION, ()))
