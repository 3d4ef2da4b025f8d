"""Models in Python as views: their declarations, checked against the relation they read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from laminar_dagster.config.mistakes import Report, listed, nearest
from laminar_dagster.config.model import Place, View
from laminar_dagster.config.relations import (
    Projection,
    PythonFile,
    PythonKeyed,
    PythonRows,
    TableInput,
)
from laminar_dagster.config.sql.changelog import WEIGHT
from laminar_dagster.config.sql.functions import WINDOW_COLUMNS
from laminar_dagster.config.sql.join_refusals import REFERENCES
from laminar_dagster.config.sql.scope import BROKEN, EventTime, Output
from laminar_dagster.config.sql.text import quoted
from laminar_dagster.core.ids import OperatorId


@dataclass(frozen=True, slots=True)
class DeclaredRows:
    """The arguments of ``@model``."""

    reads: str
    columns: tuple[str, ...]
    event_time: str | None


@dataclass(frozen=True, slots=True)
class DeclaredOperator:
    """The arguments of ``@keyed_operator``; the types of ``state`` as Arrow spells them."""

    reads: str
    columns: tuple[str, ...]
    event_time: str
    keys: tuple[str, ...]
    takes: tuple[str, ...] | None
    state: tuple[tuple[str, str], ...]
    ttl_micros: int | None
    version: str


@dataclass(frozen=True, slots=True)
class ParsedModel:
    """A file of Python that declares a model.

    Attributes:
        line: Where the model begins.
        reads: The names of the relations it reads, in lower case.
    """

    name: OperatorId
    python: PythonFile
    line: int
    declared: DeclaredRows | DeclaredOperator
    reads: tuple[str, ...]

    @property
    def where(self) -> str:
        """``file:line``, for mistakes."""
        return f"{self.python.file}:{self.line}"


def read_model(
    parsed: ParsedModel, tables: Mapping[str, tuple[str, Output]], report: Report
) -> tuple[View | None, Output]:
    """Check a model against the relation it reads; None, and mistakes, if they do not fit."""
    declared = parsed.declared
    found = tables.get(declared.reads.lower())
    if found is None:
        names = [name for name, output in tables.values() if not output.reference]
        hint = nearest(declared.reads, names, listed(names, "sources and views"))
        problem = f"model `{parsed.name}` reads `{declared.reads[:80]}`, which does not exist"
        report.add(parsed.where, problem, hint)
        return None, BROKEN
    name, given = found
    if given.reference:
        problem = f"model `{parsed.name}` reads `{name}`: {REFERENCES['alone'].problem}"
        report.add(parsed.where, problem, "read a view of SQL that joins a stream with it")
        return None, BROKEN
    if given.unknown:
        return None, BROKEN
    reader = _Reader(parsed, name, given, report)
    before = len(report.mistakes)
    if isinstance(declared, DeclaredRows):
        query: PythonRows | PythonKeyed = reader.rows(declared)
        output = reader.output_of_rows(declared)
    else:
        query = reader.operator(declared)
        output = reader.output_of_operator(declared, query.columns)
    if len(report.mistakes) > before:
        return None, BROKEN
    place = Place(parsed.python.file, parsed.line)
    view = View(parsed.name, query, parsed.python.text, place, query.columns, (name,))
    return view, output


@dataclass(frozen=True, slots=True)
class _Reader:
    parsed: ParsedModel
    name: str
    given: Output
    report: Report

    def _wrong(self, problem: str, hint: str = "") -> None:
        self.report.add(self.parsed.where, problem, hint)

    # --- functions of rows ------------------------------------------------------------------------

    def rows(self, declared: DeclaredRows) -> PythonRows:
        self._check_names(declared.columns)
        carried = WEIGHT in declared.columns
        if WEIGHT in self.given.columns and not carried:
            problem = f"`{WEIGHT}` of `{self.name}` is left out: deletes would look like rows"
            hint = f"declare and hand on `{WEIGHT}` too, or read a view with WHERE {WEIGHT} = 1"
            self._wrong(problem, hint)
        if carried and WEIGHT not in self.given.columns:
            self._wrong(f"`{self.name}` has no `{WEIGHT}` to hand on", "leave it out")
        return PythonRows(TableInput(self.name), self.parsed.python, declared.columns)

    def output_of_rows(self, declared: DeclaredRows) -> Output:
        time = declared.event_time
        times = {} if time is None else {time.lower(): self._time(time)}
        return Output(declared.columns, times, lacks_retractions=self.given.lacks_retractions)

    # --- operators with state ---------------------------------------------------------------------

    def operator(self, declared: DeclaredOperator) -> PythonKeyed:
        self._check_names(declared.columns)
        known = {each.lower(): each for each in self.given.columns}
        keys = [self._column(each, known) for each in declared.keys]
        own = {each.lower() for each in (*keys, declared.event_time)}
        if declared.takes is None:
            takes = [each for each in self.given.columns if each.lower() not in own]
        else:
            takes = [self._column(each, known) for each in declared.takes]
        if WEIGHT in self.given.columns and WEIGHT not in (declared.takes or ()):
            problem = f"`{self.name}` takes rows back, and the operator would not see which"
            hint = f"name `{WEIGHT}` in `takes`, or read a view with WHERE {WEIGHT} = 1"
            self._wrong(problem, hint)
        time = self._time(declared.event_time)
        if time.window_micros:
            problem = f"rows of `{self.name}` come only when a window after their time has closed"
            self._wrong(problem, "use the end of the window for event time")
        return PythonKeyed(
            source=TableInput(self.name),
            python=self.parsed.python,
            keys=tuple(Projection(f"_k{place}", quoted(key)) for place, key in enumerate(keys)),
            time=quoted(declared.event_time),
            takes=tuple(takes),
            state=declared.state,
            columns=(*declared.keys, declared.event_time, *declared.columns),
            ttl_micros=declared.ttl_micros,
            version=declared.version,
            lateness_micros=time.delay_micros,
        )

    def output_of_operator(self, declared: DeclaredOperator, columns: tuple[str, ...]) -> Output:
        return Output(columns, {declared.event_time.lower(): self._time(declared.event_time)})

    # --- both -------------------------------------------------------------------------------------

    def _check_names(self, columns: Iterable[str]) -> None:
        for name in columns:
            reserved = name.startswith("_") and name != WEIGHT
            if reserved or name.lower() in WINDOW_COLUMNS:
                self._wrong(
                    f"the name `{name}` is reserved", "choose one that begins with a letter"
                )

    def _column(self, name: str, known: Mapping[str, str]) -> str:
        if name.lower() not in known:
            hint = nearest(name, self.given.columns, listed(self.given.columns, "columns"))
            self._wrong(f"`{self.name}` has no column `{name}`", hint)
        return known.get(name.lower(), name)

    def _time(self, name: str) -> EventTime:
        time = self.given.times.get(name.lower())
        if time is None or name not in self.given.columns:
            hint = listed(self.given.times, "event times") or "WATERMARK FOR names one in a source"
            self._wrong(f"`{name}` is no event time of `{self.name}`", hint)
            return EventTime(())
        return time
