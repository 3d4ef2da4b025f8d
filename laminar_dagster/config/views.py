"""The views of a pipeline, sorted topologically and read into the engine's model."""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from sqlglot import TokenType, exp

from laminar_dagster.config.determinism import DeterminismWarning
from laminar_dagster.config.fingerprint import relations
from laminar_dagster.config.mistakes import Report
from laminar_dagster.config.model import Place, View
from laminar_dagster.config.python_views import ParsedModel, read_model
from laminar_dagster.config.relations import (
    Join,
    KeyedAggregate,
    Query,
    Ranked,
    Relation,
    WindowAggregate,
)
from laminar_dagster.config.sql.dialect import SqlSyntaxError, TooIntricate, parse
from laminar_dagster.config.sql.join_refusals import JOINS
from laminar_dagster.config.sql.joins import MAX_JOINS
from laminar_dagster.config.sql.queries import QueryReader
from laminar_dagster.config.sql.refusals import RANKS
from laminar_dagster.config.sql.scope import BROKEN, Output
from laminar_dagster.config.sql.syntax import CreateView, Emit
from laminar_dagster.config.sql.text import Statement
from laminar_dagster.core.ids import OperatorId

_KEYWORDS: Final = (
    "SELECT FROM WHERE GROUP HAVING UNION ALL AS AND OR NOT CASE WHEN THEN ELSE END BETWEEN LIKE "
    "INTERVAL NULL IN BY CAST MINUTE SECOND HOUR DAY DISTINCT JOIN ON ORDER LIMIT WITH"
).split(" ")
_BEGINNINGS: Final = ("SELECT", "WITH", "(", "FROM", "VALUES")


@dataclass(frozen=True, slots=True)
class ParsedView:
    """A view whose query could be parsed."""

    name: OperatorId
    definition: CreateView
    tree: exp.Expr
    reads: tuple[str, ...]

    @property
    def where(self) -> str:
        """The place of the view's name, for mistakes."""
        return self.definition.name.where


def parse_view(name: OperatorId, definition: CreateView, report: Report) -> ParsedView | None:
    """Parse a view's query; None, and a mistake, if that is not possible."""
    query = definition.query
    if query.tokens[0].text.upper() not in _BEGINNINGS:
        where = query.where()
        shown = query.tokens[0].text[:40]
        report.add(where, f"a query cannot begin with `{shown}`", _keyword_near(query, 0))
        return None
    for number, token in enumerate(query.tokens):
        if token.text in ("{", "}", "$", "@", "?") and token.end == token.start:
            problem = f"`{token.text}` cannot stand in a query"
            hint = "${NAME} works in WITH (…) alone; there are no templates"
            report.add(query.where(number), problem, hint)
            return None
    if _has_too_many_joins(query, report):
        return None
    try:
        tree = parse(query.tokens, query.sql.text)
    except SqlSyntaxError as error:
        _report_syntax(query, error, report)
        return None
    except (RecursionError, TooIntricate):
        report.add(query.where(), "the query is nested too deeply", "split it into views")
        return None
    except Exception:
        # sqlglot raises errors of many types on invalid SQL; to an author they mean the same.
        report.add(query.where(), "the query cannot be read")
        return None
    names = dict.fromkeys(each.name.lower() for each in tree.find_all(exp.Table) if each.name)
    return ParsedView(name, definition, tree, tuple(names))


def _has_too_many_joins(query: Statement, report: Report) -> bool:
    """Refuse very many joins before parsing: sqlglot takes too long for them."""
    joins = (number for number in range(len(query.tokens)) if _is_join(query, number))
    beyond = next(islice(joins, MAX_JOINS, None), None)
    if beyond is not None:
        report.add(query.where(beyond), JOINS["many"].problem, JOINS["many"].instead)
    return beyond is not None


def _is_join(query: Statement, number: int) -> bool:
    """Whether a token is a JOIN, or begins a subquery of IN or EXISTS, which is one too."""
    kinds = [each.token_type for each in query.tokens[max(0, number - 2) : number + 1]]
    if kinds[-1] == TokenType.JOIN:
        return True
    is_subquery = kinds[-2:] == [TokenType.L_PAREN, TokenType.SELECT]
    return is_subquery and kinds[0] in (TokenType.IN, TokenType.EXISTS)


def read_views(
    parsed: Iterable[ParsedView | ParsedModel],
    tables: Mapping[str, tuple[str, Output]],
    report: Report,
) -> tuple[list[View], list[DeterminismWarning]]:
    """Read views in topological order: each after those it reads.

    Args:
        parsed: The views, in any order.
        tables: Sources and broken views by name in lower case.
        report: Where mistakes go.
    """
    by_name = {str(each.name).lower(): each for each in parsed}
    known: dict[str, tuple[str, Output]] = dict(tables)
    views: list[View] = []
    findings: list[DeterminismWarning] = []
    order, circular = _order(by_name)
    _report_circles(circular, by_name, report)
    for key in circular:
        known[key] = (str(by_name[key].name), BROKEN)
    # All names first, so that a mistyped name can be compared with every view.
    for key in order:
        known.setdefault(key, (str(by_name[key].name), BROKEN))
    for key in order:
        each = by_name[key]
        if isinstance(each, ParsedModel):
            view, output = read_model(each, known, report)
        else:
            view, output, found = _read(each, known, report)
            findings.extend(found)
        known[key] = (str(each.name), output)
        if view is not None:
            views.append(view)
    return views, findings


def _read(
    parsed: ParsedView, tables: Mapping[str, tuple[str, Output]], report: Report
) -> tuple[View | None, Output, list[DeterminismWarning]]:
    definition = parsed.definition
    reader = QueryReader(definition.query, str(parsed.name), tables, report, definition.emit)
    try:
        query, output = reader.read(parsed.tree)
    except RecursionError:
        report.add(definition.query.where(), "the query is nested too deeply", "split it")
        return None, BROKEN, []
    findings = reader.expressions.findings
    if query is None:
        return None, output, findings
    if output.rank:
        refused = RANKS["limit"]
        report.add(definition.query.where(), refused.problem, refused.instead)
    _check_emit(parsed, query, report)
    place = Place(definition.query.sql.file, definition.name.line)
    text = definition.query.raw(0, len(definition.query.tokens))
    reads = tuple(tables[each][0] for each in parsed.reads if each in tables)
    added = definition.emit.on_added if definition.emit else None
    view = View(parsed.name, query, text, place, output.columns, reads, added)
    return view, output, findings


def _check_emit(parsed: ParsedView, query: Query, report: Report) -> None:
    """Report an EMIT that does not apply to its query."""
    emit = parsed.definition.emit
    if emit is None or any(_is_put_out_by(emit, each) for each in relations(query)):
        return
    if emit.changes:
        hint = (
            "leave it out; it is for GROUP BY, DISTINCT, ROW_NUMBER and joins without an interval"
        )
        report.add(emit.where, f"view `{parsed.name}` has no groups that could change", hint)
    else:
        hint = "leave it out; it is for views with TUMBLE or the like"
        report.add(emit.where, f"view `{parsed.name}` has no window to close", hint)


def _is_put_out_by(emit: Emit, relation: Relation) -> bool:
    """Whether an EMIT applies to a relation."""
    if isinstance(relation, Join):
        return relation.emits == ("changes" if emit.changes else "close")
    return isinstance(relation, WindowAggregate | KeyedAggregate | Ranked)


def _order(views: Mapping[str, ParsedView | ParsedModel]) -> tuple[list[str], list[str]]:
    """Sort views topologically, by name among equals; returns those on a cycle apart."""
    waiting = {key: {name for name in each.reads if name in views} for key, each in views.items()}
    readers: dict[str, list[str]] = {}
    for key, needs in waiting.items():
        for name in needs:
            readers.setdefault(name, []).append(key)
    ready = [key for key, needs in waiting.items() if not needs]
    heapq.heapify(ready)
    order: list[str] = []
    while ready:
        key = heapq.heappop(ready)
        order.append(key)
        for reader in readers.get(key, ()):
            waiting[reader].discard(key)
            if not waiting[reader]:
                heapq.heappush(ready, reader)
    done = set(order)
    left = {key: each for key, each in views.items() if key not in done}
    circular = _on_circles(left)
    # Views that read from a cycle, but are not on it, are still read for their mistakes.
    order.extend(sorted(key for key in left if key not in circular))
    return order, circular


def _on_circles(views: Mapping[str, ParsedView | ParsedModel]) -> list[str]:
    return [key for key in sorted(views) if _circle(key, views)]


def _circle(start: str, views: Mapping[str, ParsedView | ParsedModel]) -> list[str]:
    """A shortest cycle through a view; empty if there is none."""
    came_from: dict[str, str] = {}
    queue = [start]
    for key in queue:
        for name in views[key].reads:
            if name == start:
                way = [key]
                while way[-1] != start:
                    way.append(came_from[way[-1]])
                return [*reversed(way), start]
            if name in views and name not in came_from:
                came_from[name] = key
                queue.append(name)
    return []


def _report_circles(
    circular: list[str], views: Mapping[str, ParsedView | ParsedModel], report: Report
) -> None:
    told: set[str] = set()
    only = {key: views[key] for key in circular}
    for key in circular:
        if key in told:
            continue
        way = _circle(key, only)
        told.update(way)
        shown = " → ".join(str(views[each].name) for each in way[:20])
        where = views[key].where
        report.add(where, f"views read each other in a circle: {shown}", "break it at one view")


def _report_syntax(query: Statement, error: SqlSyntaxError, report: Report) -> None:
    index = min(error.index, len(query.tokens))
    hint = _keyword_near(query, index) or _never_closed(query)
    if index >= len(query.tokens):
        last = query.tokens[-1].text[:40]
        report.add(query.where(index), f"the query ends too early, after `{last}`", hint)
        return
    shown = " ".join(query.raw(index, index + 1).split())[:40]
    report.add(query.where(index), f"`{shown}` cannot stand here", hint)


def _never_closed(query: Statement) -> str:
    opened: list[int] = []
    for number, token in enumerate(query.tokens):
        if token.text == "(" and token.start == token.end:
            opened.append(number)
        elif token.text == ")" and token.start == token.end and opened:
            opened.pop()
    return f"the ( at {query.where(opened[-1])} is never closed" if opened else ""


def _keyword_near(query: Statement, index: int) -> str:
    """A suggestion for the word near a syntax error that is probably a mistyped keyword."""
    for number in (index - 1, index, index - 2):
        if not 0 <= number < len(query.tokens):
            continue
        word = query.tokens[number].text.upper()
        close = difflib.get_close_matches(word[:20], _KEYWORDS, n=1, cutoff=0.7)
        if close and word not in _KEYWORDS and len(word) > 2 and " " not in word:
            return f"did you mean `{close[0]}` in place of `{query.tokens[number].text[:40]}`?"
    return ""
