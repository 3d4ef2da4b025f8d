"""``laminar plan``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import click

from laminar_dagster.cli import wording
from laminar_dagster.cli.options import json_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.pipelines import find_model, pipeline_argument, project_of
from laminar_dagster.cli.tables import Block, Column, Fields, Line, Table
from laminar_dagster.config.definition import define
from laminar_dagster.config.fingerprint import declaration_of
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.core.deployment import OperatorChange
from laminar_dagster.core.errors import RefusedError
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.succession import replaced_versions
from laminar_dagster.runtime.assembly import existing_checkpoints
from laminar_dagster.runtime.deployment import changes_since
from laminar_dagster.runtime.survey import newest_manifest, survey

_SUMMARIES: Final = {
    "keep": "The next epoch goes on with this state.",
    "migrate": "The next epoch goes on with this state, and converts it as it is read.",
    "rescale": "Refused as yet: the state has to be spread over another number of buckets first. "
    "`laminar rescale` does it, in an epoch of its own.",
    "rebuild": "Refused: the next epoch cannot go on with this state. Undo the change, or give the "
    "changed view another name, under which it begins anew.",
}

_REPLACED: Final = (
    "Refused: a branch was promoted in place of this version. Load the project as it is now, or "
    "fork this version and promote it."
)


@dataclass(frozen=True, slots=True)
class _Deployment:
    """What would happen with the next epoch."""

    model: PipelineModel
    parent: CheckpointManifest | None
    operators: tuple[OperatorChange, ...]

    @property
    def verdict(self) -> str:
        """The gravest of the operators' verdicts."""
        found = {each.verdict for each in self.operators}
        return next((each for each in ("rebuild", "rescale", "migrate") if each in found), "keep")

    @property
    def is_replaced(self) -> bool:
        """Whether a branch took the place of this version: no epoch is for it, state or not."""
        return self.model.fingerprint in replaced_versions(self.parent)

    def others(self) -> Iterator[tuple[str, str, str]]:
        """Sources, tables and sinks that come, change or go: kind, name, what happens."""
        if self.parent is None:
            return
        before = {str(each.source_id) for each in self.parent.sources}
        now = {str(each.source_id) for each in self.model.sources}
        yield from _coming_and_going("source", before, now, "is read from its beginning")
        pinned = {str(each.reference_id): each.declaration for each in self.parent.references}
        declared = {str(each.reference_id): declaration_of(each) for each in self.model.references}
        yield from _coming_and_going("table", pinned, declared, "is copied for the next epoch")
        for name in sorted({*pinned} & {*declared}):
            if pinned[name] != declared[name]:
                yield "table", name, "declared otherwise: is copied anew for the next epoch"
        before = {str(each.sink_id) for each in self.parent.sinks}
        now = {str(each.sink_id) for each in self.model.sinks}
        yield from _coming_and_going("sink", before, now, "gets what later epochs put out")


@click.command("plan")
@pipeline_argument
@json_option
@click.pass_context
def command(ctx: click.Context, pipeline: str | None) -> int:
    """Show what the pipeline, as it is written now, would do to the state that is there.

    For each operator: keep, migrate, rescale or rebuild, and why. Nothing is run or changed. Exits
    with 3 when something would have to be rescaled or rebuilt before the next epoch, and for a
    version that a branch has replaced.
    """
    model = find_model(ctx, pipeline)
    checkpoints = existing_checkpoints(model.config, project_of(ctx))
    parent = newest_manifest(checkpoints, survey(checkpoints)) if checkpoints else None
    found = _Deployment(model, parent, changes_since(define(model), parent, checkpoints))
    output_of(ctx).result(lambda: _document(found), lambda: _blocks(found))
    is_refused = found.is_replaced or found.verdict in ("rescale", "rebuild")
    return RefusedError.exit_code if is_refused else 0


def _coming_and_going(
    kind: str, before: Iterable[str], now: Iterable[str], when_new: str
) -> Iterator[tuple[str, str, str]]:
    for name in sorted(set(now) - set(before)):
        yield kind, name, f"new: {when_new}"
    for name in sorted(set(before) - set(now)):
        yield kind, name, "no longer there; nothing is removed"


def _document(found: _Deployment) -> dict[str, Any]:
    parent = found.parent
    return {
        "pipeline": found.model.config.name,
        "fingerprint": found.model.fingerprint,
        "last_epoch": parent.epoch if parent else None,
        "last_fingerprint": parent.fingerprint if parent else None,
        "verdict": found.verdict,
        "is_replaced": found.is_replaced,
        "operators": [
            {
                "operator": each.operator_id,
                "verdict": each.verdict,
                "reasons": list(each.reasons),
            }
            for each in found.operators
        ],
        "others": [
            {"kind": kind, "name": name, "change": change} for kind, name, change in found.others()
        ],
    }


def _blocks(found: _Deployment) -> Iterator[Block]:
    yield Fields(
        [
            ("pipeline", str(found.model.config.name)),
            ("last epoch", str(found.parent.epoch) if found.parent else "no epoch yet"),
            ("fingerprint", _fingerprints(found)),
        ]
    )
    if found.operators:
        columns = (Column("operator"), Column("state"), Column("why", folds=30))
        rows = [
            (str(each.operator_id), each.verdict, "; ".join(each.reasons))
            for each in found.operators
        ]
        yield Table(columns, rows, "Operators with state")
    others = [*found.others()]
    if others:
        columns = (Column("kind"), Column("name"), Column("change", folds=30))
        yield Table(columns, others, "Sources, tables and sinks")
    yield Line()
    if found.parent is None:
        yield Line("Nothing to keep: the first epoch begins with empty state.")
    else:
        yield Line(_REPLACED if found.is_replaced else _SUMMARIES[found.verdict])


def _fingerprints(found: _Deployment) -> str:
    now = wording.short_hash(found.model.fingerprint)
    if found.parent is None:
        return now
    if found.parent.fingerprint == found.model.fingerprint:
        return f"{now}, as in the last epoch"
    return f"{now}, was {wording.short_hash(found.parent.fingerprint)}"
