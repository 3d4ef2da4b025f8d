"""``laminar recover``."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from laminar_dagster.cli import wording
from laminar_dagster.cli.numbers import EPOCH, HOW_MANY_OR_NONE
from laminar_dagster.cli.options import DurationType, PathType, json_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.pipelines import (
    find_model,
    open_history,
    open_pipeline,
    pipeline_argument,
    project_of,
)
from laminar_dagster.cli.plain_documents import plain_record
from laminar_dagster.cli.progress import recovery_progress
from laminar_dagster.cli.standing import describe_step
from laminar_dagster.cli.tables import Block, Column, Fields, Line, Table
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.recovery import Damage, RecoveryConfig, RecoveryResult, Repair, RepairKind
from laminar_dagster.runtime.recovery import RecoveryManager

if TYPE_CHECKING:
    from laminar_dagster.core.ports import CheckpointIndex

_SHOWN: Final = 20
_DEFAULTS: Final = RecoveryConfig()
_HOW: Final = {
    RepairKind.PUT_BACK: "put back",
    RepairKind.REBUILT: "rebuilt",
    RepairKind.MADE_ANEW: "made anew",
}


class _Names(click.ParamType[tuple[str, ...]]):
    """Names with commas between them."""

    name = "names"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Read them."""
        names = tuple(each.strip() for each in str(value).split(","))
        if not all(names):
            self.fail(f"{value!r} is not a list of names such as a,b", param, ctx)
        return names


@click.command("recover")
@pipeline_argument
@click.option(
    "--epoch",
    type=EPOCH,
    metavar="N",
    help="Restore the checkpoint of this epoch.  [default: the newest]",
)
@click.option(
    "--operators",
    type=_Names(),
    metavar="A,B",
    help="Restore the state of these operators only, to look at it.",
)
@click.option(
    "--into",
    type=PathType(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write the restored state to DIR/OPERATOR/PARTITION.arrow.",
)
@click.option(
    "--max-fallbacks",
    type=HOW_MANY_OR_NONE,
    metavar="N",
    help="Compute lost files again from N checkpoints back at most.  [default: no limit]",
)
@click.option(
    "--timeout",
    type=DurationType(),
    default=f"{_DEFAULTS.recovery_timeout:.0f}s",
    show_default=True,
    metavar="TIME",
    help="Give up after so long.",
)
@click.option(
    "--allow-operator-mismatch",
    is_flag=True,
    help="Restore a checkpoint of other operators or sources than the pipeline has now.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    pipeline: str | None,
    epoch: int | None,
    operators: tuple[str, ...] | None,
    into: Path | None,
    max_fallbacks: int | None,
    timeout: timedelta,
    allow_operator_mismatch: bool,
    dry_run: bool,
) -> None:
    """Read all that a pipeline needs to go on, and mend what is damaged.

    A crash needs no recovery: `laminar run` goes on by itself. This is for a store that has lost
    or damaged objects. Documents are put back from others that hold the same; files are made again
    by running the epochs that wrote them, and must come out with the hashes that they had. What
    cannot be mended is refused by name, and nothing is changed. Spark starts only when an epoch
    has to be run again.
    """
    if timeout <= timedelta(0):
        raise click.BadParameter("must be more than 0s", ctx, param_hint="'--timeout'")
    model = find_model(ctx, pipeline, builds_contracts=True)
    open_history(ctx, model.config)
    config = RecoveryConfig(
        max_fallback_attempts=max_fallbacks,
        recovery_timeout=timeout.total_seconds(),
        progress_report_interval=0.1 if sys.stderr.isatty() else _DEFAULTS.progress_report_interval,
        allow_operator_mismatch=allow_operator_mismatch,
    )
    with recovery_progress() as show, _dagster_index(ctx, model) as index:
        opened = open_pipeline(ctx, model)
        result = RecoveryManager(opened, config, index).recover(
            None if epoch is None else EpochNumber(epoch),
            operators,
            dry_run=dry_run,
            progress=show,
            into=into,
        )
    output_of(ctx).result(lambda: _document(result, model), lambda: _blocks(result, model, into))


@contextlib.contextmanager
def _dagster_index(ctx: click.Context, model: PipelineModel) -> Iterator[CheckpointIndex | None]:
    """What Dagster knows, when it has a home, and can be asked: a witness, and no more."""
    home = os.environ.get("DAGSTER_HOME")
    if not home:
        yield None
        return
    # Imported here: it takes seconds.
    from laminar_dagster.orchestration.errors import DagsterUnavailable
    from laminar_dagster.orchestration.recovery_index import DagsterIndex
    from laminar_dagster.orchestration.resident import open_home
    from laminar_dagster.orchestration.stream import Stream

    with contextlib.ExitStack() as stack:
        try:
            instance = stack.enter_context(open_home(home))
        except DagsterUnavailable as error:
            output_of(ctx).warn(f"{error}; what it knows of checkpoints is not compared")
            yield None
            return
        yield DagsterIndex(Stream(model, project_of(ctx)).names, instance)


# --- for programs -------------------------------------------------------------------------------


def _document(result: RecoveryResult, model: PipelineModel) -> dict[str, Any]:
    return {
        "pipeline": model.config.name,
        "is_dry_run": result.is_dry_run,
        "epoch": result.epoch or None,
        "checkpoint_id": result.checkpoint_id,
        "source_offsets": {
            source: [plain_record(each) for each in positions]
            for source, positions in result.source_offsets.items()
        },
        "operators": [
            {
                "operator": each.operator_id,
                "partitions": list(each.partitions_restored),
                "bytes": each.bytes_restored,
                "rows": each.rows,
                "seconds": round(each.restore_duration, 3),
            }
            for each in result.operator_results
        ],
        "bytes_downloaded": result.bytes_downloaded,
        "seconds": round(result.recovery_duration, 3),
        "fallback_attempts": result.fallback_attempts,
        "repairs": [
            {**_damage(each.damage), "repair": each.kind.value, "origin": each.origin}
            for each in result.repairs
        ],
        "not_repaired": [_damage(each) for each in result.not_repaired],
        "unfinished": [
            {
                "epoch": each.epoch,
                "next_step": type(each.next_step).__name__,
                "description": describe_step(each.next_step),
            }
            for each in result.unfinished
        ],
    }


def _damage(damage: Damage) -> dict[str, Any]:
    return {
        "key": damage.key,
        "epoch": damage.epoch,
        "kind": damage.problem.kind,
        "message": str(damage.problem),
    }


# --- for people ---------------------------------------------------------------------------------


def _blocks(result: RecoveryResult, model: PipelineModel, into: Path | None) -> Iterator[Block]:
    yield Fields(_fields(result, model))
    if result.repairs:
        title = "Would be mended" if result.is_dry_run else "Mended"
        yield _table(f"{title}: {wording.count(len(result.repairs), 'object')}", result.repairs)
        if len(result.repairs) > _SHOWN:
            yield Line(f"{len(result.repairs) - _SHOWN:,} more; --json shows every one.")
    if result.not_repaired:
        rows = [
            (each.key, "" if each.epoch is None else str(each.epoch), str(each.problem))
            for each in result.not_repaired[:_SHOWN]
        ]
        columns = (Column("object", folds=24), Column("epoch", right=True), Column("why", folds=24))
        yield Table(columns, rows, "Damaged, and not needed to go on")
    yield Line()
    name = model.config.name
    if into is not None:
        yield Line(f"The restored state is in {into}.")
    if result.is_dry_run:
        yield Line(f"Nothing was changed. `laminar recover {name}` does it.")
    elif result.epoch:
        yield Line(f"`laminar run {name}` goes on after epoch {_goes_on_after(result)}.")
    else:
        yield Line(f"`laminar run {name}` goes on.")


def _goes_on_after(result: RecoveryResult) -> int:
    return int(result.unfinished[0].epoch) - 1 if result.unfinished else int(result.epoch)


def _fields(result: RecoveryResult, model: PipelineModel) -> list[tuple[str, str]]:
    checkpoint = "no epoch is committed yet"
    if result.checkpoint_id:
        checkpoint = f"epoch {result.epoch}, {result.checkpoint_id}"
    partitions = sum(len(each.partitions_restored) for each in result.operator_results)
    operators = wording.count(len(result.operator_results), "operator")
    seconds = wording.duration(timedelta(seconds=result.recovery_duration))
    damaged = len(result.repairs) + len(result.not_repaired)
    rows = [
        ("pipeline", str(model.config.name)),
        ("checkpoint", checkpoint),
        ("state", f"{operators}, {wording.count(partitions, 'partition')} restored"),
        ("read", f"{wording.size(result.bytes_downloaded)}, every file against its hash"),
        ("took", seconds),
        (
            "sources",
            f"{wording.count(len(result.source_offsets), 'source')}, every position can be read",
        ),
        ("damaged", wording.count(damaged, "object") if damaged else "nothing"),
    ]
    if not result.source_offsets:
        rows = [row for row in rows if row[0] != "sources"]
    if result.fallback_attempts:
        back = wording.count(result.fallback_attempts, "checkpoint")
        rows.append(("went back", f"{back}, to compute lost files again"))
    unfinished = [
        f"epoch {each.epoch}, next: {describe_step(each.next_step)}" for each in result.unfinished
    ]
    return rows + [("unfinished", each) for each in unfinished or ["none"]]


def _table(title: str, repairs: tuple[Repair, ...]) -> Table:
    columns = (
        Column("object", folds=24),
        Column("epoch", right=True),
        Column("was", folds=16),
        Column("now", folds=20),
    )
    rows = [
        (
            each.damage.key,
            "" if each.damage.epoch is None else str(each.damage.epoch),
            "missing" if each.damage.problem.kind == "object_missing" else "damaged",
            f"{_HOW[each.kind]}: {each.origin}",
        )
        for each in repairs[:_SHOWN]
    ]
    return Table(columns, rows, title)
