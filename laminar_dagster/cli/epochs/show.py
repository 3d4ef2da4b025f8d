"""``laminar epochs show``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import click

from laminar_dagster.cli import manifest_dossier, wording
from laminar_dagster.cli.epochs.ranges import ranges_table
from laminar_dagster.cli.numbers import EPOCH
from laminar_dagster.cli.options import json_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.pinned_tables import pin_document, pinned_tables
from laminar_dagster.cli.pipelines import (
    find_config,
    find_model,
    open_history,
    pipeline_argument,
    project_of,
)
from laminar_dagster.cli.plain_documents import plain_document
from laminar_dagster.cli.standing import describe_step
from laminar_dagster.cli.tables import Block, Fields, Line
from laminar_dagster.core.errors import NoEpochs, UnknownEpoch
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.protocol import Step
from laminar_dagster.core.reference import ReferencePin
from laminar_dagster.core.upkeep import describe_upkeep
from laminar_dagster.runtime.assembly import build_adapters
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.clock import SystemClock
from laminar_dagster.runtime.history import PastEpoch, confirmed_epoch, epoch_numbers, read_epoch
from laminar_dagster.runtime.ledgers import Ledgers
from laminar_dagster.runtime.standing import Look
from laminar_dagster.runtime.survey import newest_manifest, survey

_STATES: Final = {
    "done": "done: every sink has it",
    "collected": "done; its checkpoint is collected, its figures are kept",
    "committed": "committed, and not in every sink yet",
    "prepared": "prepared: its output is complete, and not committed yet",
    "planned": "planned, and not computed yet",
}


@click.command("show")
@click.argument("epoch", metavar="N", type=EPOCH)
@pipeline_argument
@click.option("--files", "every_row", is_flag=True, help="List every range and file.")
@json_option
@click.pass_context
def command(ctx: click.Context, epoch: int, pipeline: str | None, every_row: bool) -> None:
    """Show an epoch: what it read, counted, wrote and published, and what is left to do.

    With --json, its plan and its manifest are printed whole.
    """
    config = find_config(ctx, pipeline)
    checkpoints = open_history(ctx, config)
    number = EpochNumber(epoch)
    found = read_epoch(checkpoints, number, confirmed_epoch(checkpoints))
    if found is None:
        numbers = epoch_numbers(checkpoints)
        raise UnknownEpoch(epoch, numbers[0]) if numbers else NoEpochs(config.name)
    plan = checkpoints.plan(number)
    step = _next_step(ctx, checkpoints, found, pipeline) if found.is_unfinished else None
    output_of(ctx).result(
        lambda: _document(found, plan, step),
        lambda: _blocks(found, plan, step, SystemClock().now(), every_row),
    )


def _next_step(
    ctx: click.Context, checkpoints: CheckpointStore, found: PastEpoch, pipeline: str | None
) -> Step:
    if found.manifest is None or found.state == "prepared":
        # The sinks have no say before the manifest, so a mistake in the SQL is no obstacle.
        standing = survey(checkpoints)
        look = Look(standing, newest_manifest(checkpoints, standing), Ledgers())
    else:
        adapters = build_adapters(find_model(ctx, pipeline), project_of(ctx))
        look = Look.take(checkpoints, adapters.sinks)
    return look.next_step(found.epoch)


def _document(found: PastEpoch, plan: EpochPlan | None, step: Step | None) -> dict[str, Any]:
    return {
        "epoch": found.epoch,
        "state": found.state,
        "is_latest": found.is_latest,
        "next_step": type(step).__name__ if step else None,
        "description": describe_step(step) if step else None,
        "references": [pin_document(pin) for pin in _pins(found, plan)],
        "plan": plain_document(plan) if plan else None,
        "manifest": plain_document(found.manifest) if found.manifest else None,
    }


def _pins(found: PastEpoch, plan: EpochPlan | None) -> tuple[ReferencePin, ...]:
    """What the epoch sees of reference tables; its plan may be collected, or not carried out."""
    document = plan or found.manifest
    return document.references if document else ()


def _blocks(
    found: PastEpoch, plan: EpochPlan | None, step: Step | None, now: datetime, every_row: bool
) -> Iterator[Block]:
    manifest = found.manifest
    status = _STATES[found.state] + (", and it is the latest" if found.is_latest else "")
    rows = [("epoch", str(found.epoch)), ("status", status)]
    if step:
        rows.append(("next step", describe_step(step)))
    if plan:
        rows.append(("planned", f"{wording.timestamp(plan.clock)} UTC, its only clock"))
        if plan.upkeep:
            rows.append(("upkeep", f"{describe_upkeep(plan.upkeep)}; it read no record"))
    if manifest:
        rows.append(("checkpoint", manifest.checkpoint_id))
        rows += manifest_dossier.head_fields(manifest, now)
    elif plan:
        parent = plan.parent.checkpoint_id if plan.parent else "none"
        rows += [
            ("pipeline", plan.pipeline),
            ("fingerprint", plan.fingerprint),
            ("parent", parent),
            ("sinks", ", ".join(each.sink_id for each in plan.sinks) or "none"),
        ]
    yield Fields(rows)
    if plan:
        yield from ranges_table(plan, manifest, every_row=every_row)
    yield from pinned_tables(_pins(found, plan))
    if manifest is None:
        lost = [(each.source_id, gap) for each in plan.sources for gap in each.gaps] if plan else []
        yield from manifest_dossier.gaps(lost)
        return
    if not plan:
        yield from manifest_dossier.sources(manifest)
    yield from manifest_dossier.operators(manifest)
    yield from manifest_dossier.output(manifest)
    if found.state == "collected":
        yield Line()
        yield Line("Its files are collected, but for state that later epochs still use.")
    else:
        yield from manifest_dossier.files(manifest, every_file=every_row)
