"""``laminar checkpoints verify``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from laminar_dagster.cli import wording
from laminar_dagster.cli.checkpoints.inspection import Inspection, inspect_checkpoints
from laminar_dagster.cli.checkpoints.selection import LATEST, find_checkpoint, read_checkpoint
from laminar_dagster.cli.options import TEXT, json_option, store_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.store import known_sinks, open_checkpoints
from laminar_dagster.cli.tables import Block, Column, Line, Table
from laminar_dagster.core.errors import IntegrityError
from laminar_dagster.core.recovery import Candidate
from laminar_dagster.runtime.checkpoints import CheckpointStore

_DAMAGED: Final = IntegrityError.exit_code
_REMEDY: Final = "`laminar recover` mends what a pipeline needs to go on."
_COLUMNS: Final = (
    Column("epoch", right=True, optional=2),
    Column("checkpoint", optional=1),
    Column("problem", folds=40),
)


@click.command("verify")
@click.argument("checkpoint", type=TEXT, metavar="[ID]", required=False)
@store_option
@json_option
@click.pass_context
def command(ctx: click.Context, checkpoint: str | None, store: str | None) -> int:
    """Read everything that a store keeps, or one checkpoint, and compare it with what was written.

    Without ID: every file of every checkpoint against size and SHA-256, and every document beside
    them (plans, winners, manifests, attempts, the pointer to the latest checkpoint), also of
    branches; a gap in the line of epochs counts too. The sinks of a pipeline of the project are
    asked how far they are. ID is an id, the beginning of one, or
    `latest`. Exits with 4 when anything is damaged or missing.
    """
    output = output_of(ctx)
    checkpoints = open_checkpoints(ctx, store)
    with_latest = checkpoint is not None and checkpoint.strip().lower() == LATEST
    candidates = (
        list(checkpoints.candidates())
        if checkpoint is None
        else [_candidate(checkpoints, checkpoint)]
    )
    found = inspect_checkpoints(
        checkpoints,
        candidates,
        with_latest=with_latest,
        with_records=checkpoint is None,
        sinks=known_sinks(ctx, store) if checkpoint is None else (),
    )
    output.result(lambda: _document(found), lambda: _blocks(found, checkpoints.objects.url))
    for gone in found.collected:
        output.warn(f"checkpoint {gone} was collected meanwhile; it is not counted")
    return _DAMAGED if found.problems else 0


def _candidate(checkpoints: CheckpointStore, wanted: str) -> Candidate:
    checkpoint = find_checkpoint(checkpoints, wanted)
    try:
        return Candidate(checkpoint, read_checkpoint(checkpoints, checkpoint, wanted))
    except IntegrityError as error:
        return Candidate(checkpoint, error)


def _document(found: Inspection) -> dict[str, Any]:
    return {
        "is_whole": not found.problems,
        "checkpoints": found.checkpoints,
        "files": found.files,
        "bytes": found.size_bytes,
        "problems": [
            {
                "checkpoint_id": problem.checkpoint_id,
                "epoch": problem.epoch,
                "key": problem.key,
                "kind": problem.error.kind,
                "message": str(problem.error),
                "hint": _REMEDY,
            }
            for problem in found.problems
        ],
    }


def _blocks(found: Inspection, url: str) -> Iterator[Block]:
    if not found.checkpoints and not found.problems:
        yield Line(f"No checkpoints in {url}.")
        return
    read = f"{wording.count(found.files, 'file')}, {wording.size(found.size_bytes)} read"
    total = wording.count(found.checkpoints, "checkpoint")
    if not found.problems:
        yield Line(f"{total}, {read}: everything is as it was written.")
        return
    rows = [
        (
            "" if problem.epoch is None else str(problem.epoch),
            problem.checkpoint_id or "",
            str(problem.error),
        )
        for problem in found.problems
    ]
    yield Table(_COLUMNS, rows)
    damaged = len({each.checkpoint_id for each in found.problems if each.checkpoint_id})
    problems = wording.count(len(rows), "problem")
    yield Line(f"{problems}: {damaged} of {total} damaged. {read}.")
    yield Line(_REMEDY)
