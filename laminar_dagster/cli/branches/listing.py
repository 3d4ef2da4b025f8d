"""``laminar branch list``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import click

from laminar_dagster.cli import wording
from laminar_dagster.cli.options import json_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.pipelines import find_config, open_history, pipeline_argument
from laminar_dagster.cli.tables import Block, Column, Line, Table
from laminar_dagster.core.branch import BranchRecord
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.runtime.branches.promoting import promoted_at
from laminar_dagster.runtime.branches.records import find_branches, replayed_until
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.survey import survey

State = Literal["behind", "caught up", "being promoted", "promoted", "being dropped"]


@dataclass(frozen=True, slots=True)
class BranchStanding:
    """How far a branch is.

    Attributes:
        at: The last epoch that it has replayed, or begins with.
        behind: How many epochs its pipeline is ahead.
        promoted: The epoch in which it took the pipeline's place.
    """

    record: BranchRecord
    at: EpochNumber
    behind: int
    state: State
    promoted: EpochNumber | None

    @property
    def words(self) -> str:
        """The state for people."""
        match self.state:
            case "behind":
                return f"{wording.count(self.behind, 'epoch')} behind"
            case "promoted" | "being promoted":
                return f"{self.state} in epoch {self.promoted}"
            case _:
                return self.state


def standing_of(main: CheckpointStore, record: BranchRecord) -> BranchStanding:
    """How far a branch is, from what is in the store."""
    if record.dropped_at:
        return BranchStanding(record, record.from_epoch, 0, "being dropped", None)
    newest, at = survey(main), replayed_until(main, record)
    promoted = promoted_at(main, record.name)
    state: State
    if promoted:
        state = "promoted" if promoted <= newest.confirmed else "being promoted"
        return BranchStanding(record, at, 0, state, promoted)
    behind = newest.newest_epoch - at
    return BranchStanding(record, at, behind, "behind" if behind else "caught up", None)


@click.command("list")
@pipeline_argument
@json_option
@click.pass_context
def command(ctx: click.Context, pipeline: str | None) -> None:
    """List the branches of a pipeline, and how far each is.

    While a branch is there, no checkpoint of the pipeline is collected from where it begins.
    """
    config = find_config(ctx, pipeline)
    main = open_history(ctx, config)
    found = [standing_of(main, record) for record in find_branches(main.objects)]
    output_of(ctx).result(
        lambda: {"pipeline": config.name, "branches": [_document(each) for each in found]},
        lambda: _blocks(found, str(config.name)),
    )


def _document(each: BranchStanding) -> dict[str, Any]:
    record = each.record
    return {
        "branch": record.name,
        "state": each.state,
        "from_epoch": record.from_epoch,
        "at_epoch": each.at,
        "behind": each.behind,
        "promoted_in": each.promoted,
        "fingerprint": record.fingerprint,
        "created_at": record.created_at.isoformat().replace("+00:00", "Z"),
        "sinks": [str(sink.sink_id) for sink in record.sinks],
    }


def _blocks(found: list[BranchStanding], pipeline: str) -> Iterator[Block]:
    if not found:
        yield Line(f"Pipeline {pipeline} has no branch; `laminar fork` makes one.")
        return
    columns = (
        Column("branch"),
        Column("from epoch", right=True),
        Column("at epoch", right=True),
        Column("state"),
        Column("version", optional=2),
        Column("made (UTC)", optional=1),
    )
    rows = [
        (
            str(each.record.name),
            str(each.record.from_epoch),
            str(each.at),
            each.words,
            wording.short_hash(each.record.fingerprint),
            wording.timestamp(each.record.created_at),
        )
        for each in found
    ]
    yield Table(columns, rows)
