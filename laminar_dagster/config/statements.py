"""``SHOW``, ``DESCRIBE`` and ``DROP`` against a loaded pipeline, for ``laminar sql``.

A pipeline is its files: nothing is changed here, and ``DROP`` says what to remove where.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from laminar_dagster.config.mistakes import Report, listed, nearest
from laminar_dagster.config.model import (
    PipelineModel,
    Place,
    ReferenceTable,
    SinkTable,
    SourceTable,
    View,
)
from laminar_dagster.config.sql.intervals import spelled
from laminar_dagster.config.sql.reader import Reader
from laminar_dagster.config.sql.syntax import Describe, Drop, Name, ObjectKind, Show
from laminar_dagster.config.sql.text import SqlText
from laminar_dagster.config.variables import shown

_Object = SourceTable | ReferenceTable | View | SinkTable

STATEMENT: Final = "statement"
MAX_STATEMENT: Final = 10_000


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a statement: a table, and lines below it.

    Attributes:
        notes: The lines below, such as ``connector: kafka``; secrets are hidden.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def run_statement(text: str, model: PipelineModel) -> Answer:
    """Answer one SHOW, DESCRIBE or DROP.

    Raises:
        InvalidPipeline: The statement is wrong, or names something that does not exist; also for a
            DROP of something that files define, which says what to remove.
    """
    report = Report()
    if len(text) > MAX_STATEMENT:
        report.add(STATEMENT, f"it is longer than {MAX_STATEMENT} characters")
        report.raise_if_any()
    question = Reader({}, report).question(SqlText(STATEMENT, text))
    answer: Answer | None = None
    match question:
        case Show():
            answer = _show(question.kind, model)
        case Describe():
            found = _find(question.kind, question.name, model, report)
            answer = _describe(found) if found is not None else None
        case Drop():
            found = _find(question.kind, question.name, model, report)
            if found is not None:
                _refuse_drop(question, found, model, report)
        case None:
            pass
    report.raise_if_any()
    # Without an answer there is a mistake, which was raised above.
    assert answer is not None
    return answer


def _show(kind: ObjectKind, model: PipelineModel) -> Answer:
    if kind == "source":
        rows = [
            (str(each.source_id), each.connector, _watermark(each), str(each.place))
            for each in model.sources
        ]
        return Answer(("Source", "Connector", "Watermark", "Defined at"), tuple(rows))
    if kind == "reference table":
        tables = [
            (str(each.reference_id), each.connector, ", ".join(each.key), str(each.place))
            for each in model.references
        ]
        return Answer(("Reference table", "Connector", "Key", "Defined at"), tuple(tables))
    if kind == "sink":
        sinks = [
            (str(each.sink_id), str(each.view), each.connector, str(each.place))
            for each in model.sinks
        ]
        return Answer(("Sink", "View", "Connector", "Defined at"), tuple(sinks))
    views = [
        (str(each.name), ", ".join(each.reads), str(len(each.columns)), str(each.place))
        for each in model.views
    ]
    return Answer(("View", "Reads", "Columns", "Defined at"), tuple(views))


def _describe(found: _Object) -> Answer:
    match found:
        case SourceTable():
            rows = [
                (
                    each.name,
                    each.type.upper(),
                    "YES" if each.nullable else "NO",
                    _watermark(found) if _is_time(found, each.name) else "",
                )
                for each in found.columns
            ]
            key = (f"primary key: {', '.join(found.key)}",) if found.key else ()
            notes = (*key, f"connector: {found.connector}", *_options(found.written))
            return Answer(("Column", "Type", "Nullable", "Watermark"), tuple(rows), notes)
        case ReferenceTable():
            rows = [
                (
                    each.name,
                    each.type.upper(),
                    "YES" if each.nullable else "NO",
                    "YES" if each.name in found.key else "",
                )
                for each in found.columns
            ]
            notes = (f"connector: {found.connector}", *_options(found.written))
            return Answer(("Column", "Type", "Nullable", "Key"), tuple(rows), notes)
        case View():
            columns = tuple((each,) for each in found.columns)
            notes = (f"reads: {', '.join(found.reads)}", f"defined at: {found.place}", found.sql)
            return Answer(("Column",), columns, notes)
        case SinkTable():
            options = [("view", str(found.view)), ("connector", found.connector)]
            options += [(name, shown(name, text)) for name, text in found.written.items()]
            return Answer(("Option", "Value"), tuple(options), (f"defined at: {found.place}",))


def _refuse_drop(drop: Drop, found: _Object, model: PipelineModel, report: Report) -> None:
    name = _name_of(found)
    place: Place = found.place
    readers = _readers(name, model) if not isinstance(found, SinkTable) else ()
    hint = f"remove it from {place}"
    if readers:
        hint += f"; first, what reads it: {', '.join(readers)}"
    problem = f"{drop.kind} `{name}` is defined in a file and stays until it is removed there"
    report.add(drop.name.where, problem, hint)


def _readers(name: str, model: PipelineModel) -> Sequence[str]:
    views = [f"view {each.name}" for each in model.views if name in each.reads]
    return [*views, *(f"sink {each.sink_id}" for each in model.sinks if each.view == name)]


def _find(kind: ObjectKind, name: Name, model: PipelineModel, report: Report) -> _Object | None:
    kinds: Mapping[ObjectKind, Sequence[_Object]] = {
        "source": model.sources,
        "reference table": model.references,
        "view": model.views,
        "sink": model.sinks,
    }
    objects = kinds[kind]
    by_name = {_name_of(each).lower(): each for each in objects}
    found = by_name.get(name.text.lower())
    if found is None:
        names = [_name_of(each) for each in by_name.values()]
        hint = nearest(name.text, names, listed(names, f"{kind}s"))
        report.add(name.where, f"there is no {kind} `{name.text[:80]}`", hint)
    return found


def _name_of(found: _Object) -> str:
    match found:
        case SourceTable():
            return str(found.source_id)
        case ReferenceTable():
            return str(found.reference_id)
        case View():
            return str(found.name)
        case SinkTable():
            return str(found.sink_id)


def _watermark(source: SourceTable) -> str:
    watermark = source.watermark
    if watermark is None:
        return ""
    if not watermark.delay_micros:
        return watermark.column
    return f"{watermark.column} - {spelled(watermark.delay_micros)}"


def _is_time(source: SourceTable, column: str) -> bool:
    return source.watermark is not None and source.watermark.column == column


def _options(written: Mapping[str, str]) -> Iterable[str]:
    return (f"{name}: {shown(name, text)}" for name, text in written.items())
