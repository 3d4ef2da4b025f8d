"""Files of Python in ``models/``: checked for determinism, then run to see what they declare.

The only module of the configuration that needs Arrow, so it is imported only if a pipeline has
such files.
"""

from __future__ import annotations

import ast

from laminar_dagster.config.determinism import DeterminismWarning
from laminar_dagster.config.mistakes import Report
from laminar_dagster.config.python_views import DeclaredOperator, DeclaredRows, ParsedModel
from laminar_dagster.config.relations import PythonFile
from laminar_dagster.core.ids import OperatorId
from laminar_dagster.models.code import ModelCode, declared, line_in
from laminar_dagster.models.declarations import Declared, RowModel
from laminar_dagster.models.purity import impurities


def findings_in(name: OperatorId, code: ModelCode, report: Report) -> list[DeterminismWarning]:
    """The calls of a file that are not deterministic; notes a mistake if it is not Python."""
    try:
        found = impurities(code.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        reason = getattr(error, "msg", None) or str(error) or type(error).__name__
        report.add(f"{code.file}:{line}", f"it is no Python: {reason}")
        return []
    return [
        DeterminismWarning(
            each.kind, name, each.call, f"{code.file}:{each.line}:{each.column}", each.instead
        )
        for each in found
    ]


def parse_model(name: OperatorId, code: ModelCode, report: Report) -> ParsedModel | None:
    """Run a file; None, and a mistake, if it declares no model."""
    try:
        found = declared(code)
    except Exception as error:
        line = line_in(code.file, error) or 1
        reason = str(error) or type(error).__name__
        # The text of a KeyError is only the key.
        reason = f"KeyError: {reason}" if isinstance(error, KeyError) else reason
        hint = "put @model or @keyed_operator before what makes the rows"
        report.add(f"{code.file}:{line}", reason, hint if "model" in reason else "")
        return None
    file = PythonFile(code.file, code.text, code.fingerprint)
    return ParsedModel(
        name, file, _line_of(found, code.text), _described(found), (found.reads.lower(),)
    )


def _described(found: Declared) -> DeclaredRows | DeclaredOperator:
    if isinstance(found, RowModel):
        return DeclaredRows(found.reads, tuple(found.columns.names), found.event_time)
    return DeclaredOperator(
        reads=found.reads,
        columns=tuple(found.columns.names),
        event_time=found.event_time,
        keys=found.keys,
        takes=found.takes,
        state=tuple((each.name, str(each.type)) for each in found.state),
        ttl_micros=found.ttl_micros,
        version=found.version,
    )


def _line_of(found: Declared, text: str) -> int:
    """The line where a model begins: its first decorator, or its function or class."""
    function = found.function if isinstance(found, RowModel) else found.on_rows
    code = getattr(function, "__code__", None)
    line = int(code.co_firstlineno) if code else 1
    for node in ast.walk(ast.parse(text)):
        is_around = isinstance(node, ast.ClassDef) and node.lineno <= line <= (node.end_lineno or 0)
        if isinstance(node, ast.ClassDef) and is_around and node.decorator_list:
            return node.decorator_list[0].lineno
    return line
