"""``laminar validate``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from laminar_dagster.cli import wording
from laminar_dagster.cli.connections import Finding, check_connections, check_queries
from laminar_dagster.cli.options import json_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.pipelines import (
    find_folder,
    find_folders,
    open_pipeline,
    pipeline_argument,
    project_of,
)
from laminar_dagster.cli.progress import live_line
from laminar_dagster.cli.tables import Block, Column, Line, Table
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.config.pipeline import config_file
from laminar_dagster.core.errors import LaminarError, RetryError
from laminar_dagster.runtime.assembly import Adapters
from laminar_dagster.runtime.loading import load_pipelines
from laminar_dagster.runtime.telemetry import require_exporters

_COLUMNS: Final = (
    Column("pipeline"),
    Column("sources", folds=12),
    Column("views", folds=12),
    Column("sinks", folds=12),
    Column("fingerprint", optional=1),
)


@dataclass(frozen=True, slots=True)
class Checked:
    """A pipeline whose files are right; ``findings`` of its services, when they were asked."""

    model: PipelineModel
    adapters: Adapters
    findings: tuple[Finding, ...] = ()


@click.command("validate")
@pipeline_argument
@click.option(
    "--connect",
    is_flag=True,
    help="Also try the store (which makes its folder), ask every source and sink, and have Spark "
    "look at the queries.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, pipeline: str | None, connect: bool) -> int:
    """Tell every mistake in the pipelines' files; of all pipelines, or of one.

    With --connect, what is away or refuses is told by name too, and every other part still tried.
    """
    output = output_of(ctx)
    project = project_of(ctx)
    folders = [find_folder(ctx, pipeline)] if pipeline else find_folders(ctx)
    checked = _check(folders, project)
    for each in checked:
        for warning in each.model.warnings:
            output.warn(warning)
    if connect:
        with live_line() as show:
            show("asking the services, and Spark")
            checked = [_with_findings(ctx, each) for each in checked]
    output.result(
        lambda: {"pipelines": [_document(each, connect) for each in checked]},
        lambda: _blocks(checked, connect),
    )
    findings = [found for each in checked for found in each.findings]
    for found in findings:
        if found.warning:
            output.warn(found.warning)
    if not output.as_json:
        for found in findings:
            if found.failure:
                found.failure.report(as_json=False)
    return _exit_code([found.error for found in findings if found.error])


def _check(folders: list[Path], project: Path) -> list[Checked]:
    """Read every pipeline.

    Raises:
        InvalidPipeline: Lists every mistake of every pipeline.
    """
    loaded = load_pipelines(folders, project)
    for each in loaded:
        config = each.model.config
        require_exporters(config.metrics, str(config_file(project, config.name)))
    return [Checked(each.model, each.adapters) for each in loaded]


def _with_findings(ctx: click.Context, checked: Checked) -> Checked:
    found = [*check_connections(checked.model, checked.adapters, project_of(ctx))]
    if found[0].error is None:
        # Without a store there is no engine.
        silent = [each.part for each in found if each.error]
        found += check_queries(
            checked.model, open_pipeline(ctx, checked.model, is_brief=lambda: True), silent
        )
    return Checked(checked.model, checked.adapters, tuple(found))


def _exit_code(errors: list[LaminarError]) -> int:
    """Of the first error; one that goes away by itself counts only where there is no other."""
    lasting = [error for error in errors if not isinstance(error, RetryError)]
    return next((error.exit_code for error in [*lasting, *errors]), 0)


def _document(checked: Checked, connect: bool) -> dict[str, Any]:
    model = checked.model
    document: dict[str, Any] = {
        "pipeline": model.config.name,
        "sources": [each.source_id for each in model.sources],
        "views": [each.name for each in model.views],
        "sinks": [each.sink_id for each in model.sinks],
        "fingerprint": model.fingerprint,
        "warnings": list(model.warnings),
    }
    if connect:
        document["connections"] = [
            {
                "part": each.part,
                "found": each.found or None,
                "where": each.where or None,
                "warning": each.warning or None,
                "error": each.failure.as_document() if each.failure else None,
            }
            for each in checked.findings
        ]
    return document


def _blocks(checked: list[Checked], connect: bool) -> Iterator[Block]:
    rows = [
        (
            str(model.config.name),
            ", ".join(each.source_id for each in model.sources),
            ", ".join(each.name for each in model.views),
            ", ".join(each.sink_id for each in model.sinks),
            wording.short_hash(model.fingerprint),
        )
        for model in (each.model for each in checked)
    ]
    yield Table(_COLUMNS, rows)
    if not connect:
        yield Line()
        yield Line(f"{wording.count(len(rows), 'pipeline')}, no mistake in the files.")
        return
    answers = [
        (
            str(each.model.config.name),
            found.part,
            "no" if found.error else "yes",
            "" if found.error else found.found,
        )
        for each in checked
        for found in each.findings
    ]
    columns = (Column("pipeline"), Column("part"), Column("answers"), Column("found", folds=20))
    yield Table(columns, answers, "Connections")
    yield Line()
    broken = sum(row[2] == "no" for row in answers)
    parts = wording.count(len(answers), "part")
    yield Line(f"{parts}, all of them answer." if not broken else f"{broken} of {parts} failed.")
