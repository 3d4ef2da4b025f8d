"""``laminar status``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from laminar_dagster.cli import wording
from laminar_dagster.cli.failures import failure_of
from laminar_dagster.cli.manifest_dossier import with_zone
from laminar_dagster.cli.options import json_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.pipelines import find_model, pipeline_argument, project_of
from laminar_dagster.cli.plain_documents import plain_moment
from laminar_dagster.cli.reference_status import ReferenceStatus
from laminar_dagster.cli.source_status import SourceStatus
from laminar_dagster.cli.standing import describe_step, sink_document, sink_words
from laminar_dagster.cli.tables import Block, Column, Fields, Line, Table
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.core.errors import IntegrityError, LaminarError, NoCheckpointAvailable
from laminar_dagster.core.ids import GENESIS, BranchName
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.recovery import Standing
from laminar_dagster.core.upkeep import Promotion
from laminar_dagster.runtime.assembly import build_adapters, existing_checkpoints
from laminar_dagster.runtime.backlog import Backlog, measure
from laminar_dagster.runtime.clock import SystemClock
from laminar_dagster.runtime.health import ask_health
from laminar_dagster.runtime.ledgers import Ledgers
from laminar_dagster.runtime.standing import Look

_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Status:
    """All that is shown; ``url`` is None while there is no store.

    Attributes:
        promotes: The branch whose promotion is unfinished, and for another version than this.
    """

    model: PipelineModel
    url: str | None
    look: Look
    backlog: Backlog
    sources: SourceStatus
    references: ReferenceStatus
    promotes: BranchName | None = None

    @property
    def is_changed(self) -> bool | None:
        """Whether the pipeline computes something else than its last epoch did."""
        manifest = self.look.manifest
        return manifest.fingerprint != self.model.fingerprint if manifest else None

    @property
    def warnings(self) -> list[str]:
        """What somebody should do something about."""
        return self.sources.warnings() + self.references.warnings()


@dataclass(frozen=True, slots=True)
class Damaged:
    """What is shown of a store that is too damaged to tell how far the pipeline is."""

    model: PipelineModel
    url: str
    error: LaminarError
    ledgers: Ledgers

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        found = sorted(self.ledgers.found.items())
        return {
            "pipeline": self.model.config.name,
            "store": self.url,
            "error": failure_of(self.error).as_document(),
            "sinks": [{"sink": sink, "ledger": ledger} for sink, ledger in found],
        }

    def blocks(self) -> Iterator[Block]:
        """For people."""
        name = self.model.config.name
        ledgers = [
            (f"sink {sink}", "nothing committed yet" if each is None else f"at epoch {each}")
            for sink, each in sorted(self.ledgers.found.items())
        ]
        yield Fields(
            [
                ("pipeline", str(name)),
                ("store", self.url),
                ("damaged", f"{self.error} ({self.error.kind})"),
                *ledgers,
            ]
        )
        yield Line()
        yield Line(
            f"How far the pipeline is cannot be told. `laminar recover --dry-run {name}` says "
            f"what is damaged and what can be mended, `laminar recover {name}` mends it."
        )


@click.command("status")
@pipeline_argument
@json_option
@click.pass_context
def command(ctx: click.Context, pipeline: str | None) -> int:
    """Show how far a pipeline is: last epoch, what waits, the sinks' ledgers, what comes next.

    Looks, and changes nothing. Exits with 4 when the store is too damaged to tell.
    """
    model = find_model(ctx, pipeline)
    project = project_of(ctx)
    adapters = build_adapters(model, project)
    checkpoints = existing_checkpoints(model.config, project)
    unfinished: tuple[EpochPlan | None, ...] = ()
    if checkpoints is None:
        look = Look(Standing(GENESIS, ()), None, Ledgers.read(adapters.sinks))
        previous = None
    else:
        try:
            look = Look.take(checkpoints, adapters.sinks)
            previous = checkpoints.plan(look.manifest.epoch) if look.manifest else None
            unfinished = tuple(map(checkpoints.plan, look.standing.unfinished))
        except (IntegrityError, NoCheckpointAvailable) as error:
            damaged = Damaged(model, checkpoints.objects.url, error, Ledgers.read(adapters.sinks))
            output_of(ctx).result(damaged.document, damaged.blocks)
            return error.exit_code
    now = SystemClock().now()
    backlog = measure(adapters.sources, look.manifest, previous, now)
    sources = SourceStatus(
        backlog,
        ask_health(adapters.sources, look.manifest, backlog),
        look.manifest,
        model.config.checks.min_retention_headroom,
    )
    url = checkpoints.objects.url if checkpoints else None
    newest = unfinished[-1] if unfinished else look.manifest
    references = ReferenceStatus(
        adapters.references,
        {table.reference_id: table.connector for table in model.references},
        {pin.reference_id: pin for pin in (newest.references if newest else ())},
        now,
    )
    promotes = _promoted_elsewhere(unfinished, model.fingerprint)
    status = Status(model, url, look, backlog, sources, references, promotes)
    output_of(ctx).result(lambda: _document(status), lambda: _blocks(status))
    return 0


def _promoted_elsewhere(
    unfinished: Sequence[EpochPlan | None], fingerprint: str
) -> BranchName | None:
    """The branch whose promotion is unfinished, and may not be finished by this version."""
    planned = unfinished[0] if unfinished else None
    if planned and isinstance(planned.upkeep, Promotion) and planned.fingerprint != fingerprint:
        return planned.upkeep.branch
    return None


def _behind(micros: int | None, now: datetime) -> timedelta | None:
    """How far a watermark is behind the clock on the wall."""
    if micros is None:
        return None
    try:
        return now - (_UNIX_EPOCH + timedelta(microseconds=micros))
    except OverflowError:
        return None


# --- for programs -------------------------------------------------------------------------------


def _document(status: Status) -> dict[str, Any]:
    look, manifest, now = status.look, status.look.manifest, status.backlog.looked_at
    latest = look.standing.latest
    since = status.backlog.since_commit
    behind = _behind(manifest.watermark, now) if manifest else None
    return {
        "pipeline": status.model.config.name,
        "store": status.url,
        "last_epoch": None
        if manifest is None
        else {
            "epoch": manifest.epoch,
            "checkpoint_id": manifest.checkpoint_id,
            "is_latest": latest is not None and latest.checkpoint_id == manifest.checkpoint_id,
            "committed_at": plain_moment(manifest.completed_at),
            "age_seconds": since and round(since.total_seconds(), 3),
            "watermark": manifest.watermark,
            "watermark_lag_seconds": behind and round(behind.total_seconds(), 3),
        },
        "fingerprint": status.model.fingerprint,
        "is_changed": status.is_changed,
        "unfinished": [
            {
                "epoch": epoch,
                "next_step": type(look.next_step(epoch)).__name__,
                "description": describe_step(look.next_step(epoch)),
            }
            for epoch in look.standing.unfinished
        ],
        "sources": status.sources.documents(),
        "references": status.references.documents(),
        "sinks": [sink_document(each) for each in look.sinks()],
        "warnings": status.warnings,
    }


# --- for people ---------------------------------------------------------------------------------


def _blocks(status: Status) -> Iterator[Block]:
    yield Fields(_fields(status))
    manifest, newest = status.look.manifest, status.look.standing.newest_epoch
    yield from status.sources.blocks()
    yield from status.references.blocks()
    if status.look.sinks():
        yield Table(
            (Column("sink"), Column("ledger", right=True), Column("state", folds=24)),
            [
                (
                    str(each.sink_id),
                    "" if each.ledger is None else str(each.ledger),
                    sink_words(each, newest) if manifest or each.error else "nothing committed yet",
                )
                for each in status.look.sinks()
            ],
            "Sinks",
        )
    for warning in status.warnings:
        yield Line()
        yield Line(f"warning: {warning}")
    yield from _advice(status)


def _fields(status: Status) -> list[tuple[str, str]]:
    look, manifest, now = status.look, status.look.manifest, status.backlog.looked_at
    rows = [
        ("pipeline", str(status.model.config.name)),
        ("store", status.url or f"{status.model.config.store} (made by the first epoch)"),
    ]
    if manifest is None:
        rows.append(("last epoch", "no epoch yet"))
    else:
        committed = wording.timestamp(manifest.completed_at)
        ago = wording.ago(manifest.completed_at, now)
        latest = look.standing.latest
        confirmed = latest is not None and latest.checkpoint_id == manifest.checkpoint_id
        behind = _behind(manifest.watermark, now)
        lag = f", {wording.duration(behind)} behind now" if behind is not None else ""
        rows += [
            ("last epoch", f"{manifest.epoch}, committed {committed} UTC, {ago}"),
            (
                "checkpoint",
                f"{manifest.checkpoint_id}, "
                + ("every sink has it" if confirmed else "not every sink has it yet"),
            ),
            ("watermark", with_zone(manifest.watermark) + lag),
        ]
    rows.append(("fingerprint", _fingerprint(status)))
    unfinished = [
        f"epoch {epoch}, next: {describe_step(look.next_step(epoch))}"
        for epoch in look.standing.unfinished
    ]
    rows += [("unfinished", each) for each in unfinished or ["none"]]
    return rows


def _fingerprint(status: Status) -> str:
    shown = wording.short_hash(status.model.fingerprint)
    manifest = status.look.manifest
    match status.is_changed:
        case None:
            return shown
        case False:
            return f"{shown}, as in the last epoch"
        case True:
            assert manifest is not None
            return f"{shown}, changed: epoch {manifest.epoch} ran {manifest.fingerprint[:12]}"


def _advice(status: Status) -> Iterator[Block]:
    name = status.model.config.name
    if status.promotes:
        yield Line()
        yield Line(
            f"`laminar promote {name} {status.promotes}` finishes what is unfinished, with the "
            "project as it was when the branch was made."
        )
    elif status.look.standing.unfinished:
        yield Line()
        yield Line(f"`laminar run {name}` finishes what is unfinished.")
    elif not status.backlog.is_empty:
        yield Line()
        yield Line(f"`laminar run {name}` reads what waits.")
