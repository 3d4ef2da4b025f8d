"""``laminar checkpoints list``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Final

import click

from laminar_dagster.cli import wording
from laminar_dagster.cli.options import json_option, limit_option, store_option
from laminar_dagster.cli.output import Output, output_of
from laminar_dagster.cli.store import open_checkpoints
from laminar_dagster.cli.tables import Block, Column, Line, Table
from laminar_dagster.core.errors import (
    ChecksumMismatch,
    IntegrityError,
    InvalidManifest,
    LaminarError,
    MalformedDocument,
    UnsupportedVersion,
)
from laminar_dagster.core.ids import CheckpointId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.clock import SystemClock

_COLUMNS: Final = (
    Column("epoch", right=True),
    Column("checkpoint"),
    Column("committed (UTC)", optional=1),
    Column("age", right=True, optional=3),
    Column("state", right=True, optional=2),
    Column("files", right=True, optional=4),
    Column("sources", right=True, optional=7),
    Column("sinks", right=True, optional=6),
    Column("pipeline", optional=5),
    Column("note", folds=10),
)


@dataclass(frozen=True, slots=True)
class Row:
    """A checkpoint of the list; ``found`` is None for an attempt without a manifest."""

    checkpoint_id: CheckpointId
    found: CheckpointManifest | IntegrityError | None


@dataclass(frozen=True, slots=True)
class Listing:
    """The newest checkpoints, and how many attempts without a manifest stand among them."""

    rows: tuple[Row, ...]
    incomplete: int
    latest: CheckpointId | None


@click.command("list")
@limit_option(20, "to show at most")
@click.option(
    "--all", "with_incomplete", is_flag=True, help="Show attempts without a manifest too."
)
@store_option
@json_option
@click.pass_context
def command(
    ctx: click.Context, limit: int | None, with_incomplete: bool, store: str | None
) -> None:
    """List the checkpoints, newest first.

    A damaged checkpoint is listed as such, with the reason. Attempts without a manifest are not
    checkpoints; they are counted, and listed with --all.
    """
    output = output_of(ctx)
    checkpoints = open_checkpoints(ctx, store)
    latest = _latest(checkpoints, output)
    listing = read_listing(checkpoints, limit, latest, with_incomplete=with_incomplete)
    now = SystemClock().now()
    output.result(
        lambda: [_document(row, latest, now) for row in listing.rows],
        lambda: _blocks(listing, checkpoints.objects.url, now, limit, with_incomplete),
    )
    for row in listing.rows:
        if isinstance(row.found, IntegrityError):
            output.warn(f"checkpoint {row.checkpoint_id} is damaged: {reason_of(row.found)}")


def read_listing(
    checkpoints: CheckpointStore,
    limit: int | None,
    latest: CheckpointId | None,
    *,
    with_incomplete: bool,
) -> Listing:
    """Find the newest checkpoints.

    Raises:
        LaminarError: A manifest could not be fetched, which says nothing about the checkpoint.
    """
    # Listed first: a checkpoint that is committed meanwhile then counts as complete.
    ids = sorted(checkpoints.checkpoint_ids(), reverse=True)
    complete = []
    for candidate in checkpoints.candidates(limit):
        if isinstance(candidate.manifest, CheckpointManifest | IntegrityError):
            complete.append(Row(candidate.checkpoint_id, candidate.manifest))
        else:
            raise candidate.manifest
    known = {row.checkpoint_id for row in complete}
    # Of attempts older than the last row it is not known whether they have a manifest.
    oldest = complete[-1].checkpoint_id if limit is not None and len(complete) == limit else ""
    incomplete = [Row(each, None) for each in ids if each not in known and each > oldest]
    rows = _by_epoch(complete)
    if with_incomplete:
        rows = sorted(rows + incomplete, key=lambda row: row.checkpoint_id, reverse=True)
        rows = list(islice(_by_epoch(rows), limit))
    return Listing(tuple(rows), len(incomplete), latest)


def reason_of(error: LaminarError) -> str:
    """Why a manifest cannot be read, where the checkpoint is named already."""
    match error:
        case ChecksumMismatch():
            return "the manifest's bytes have changed"
        case MalformedDocument(reason=reason) | InvalidManifest(reason=reason):
            return reason
        case UnsupportedVersion(found=found, expected=expected):
            return f"format version {found}, this release reads version {expected}"
        case _:
            return str(error)


def _by_epoch(rows: list[Row]) -> list[Row]:
    """The same rows, the readable ones in the order of their epochs.

    Ids sort by the clocks of the machines that minted them; epochs are the truth.
    """
    manifests = [row.found for row in rows if isinstance(row.found, CheckpointManifest)]
    manifests.sort(key=lambda manifest: (manifest.epoch, manifest.checkpoint_id), reverse=True)
    ordered = iter(manifests)
    result = []
    for row in rows:
        if isinstance(row.found, CheckpointManifest):
            manifest = next(ordered)
            row = Row(manifest.checkpoint_id, manifest)
        result.append(row)
    return result


def _latest(checkpoints: CheckpointStore, output: Output) -> CheckpointId | None:
    try:
        pointer = checkpoints.latest()
    except IntegrityError as error:
        output.warn(f"{error}; no checkpoint is marked as the latest")
        return None
    return pointer.checkpoint_id if pointer else None


# --- for programs -------------------------------------------------------------------------------


def _document(row: Row, latest: CheckpointId | None, now: datetime) -> dict[str, Any]:
    head = {"checkpoint_id": row.checkpoint_id, "is_latest": row.checkpoint_id == latest}
    match row.found:
        case CheckpointManifest() as manifest:
            return head | {
                "status": "committed",
                "epoch": manifest.epoch,
                "pipeline": manifest.pipeline,
                "committed_at": _iso(manifest.completed_at),
                "age_seconds": round((now - manifest.completed_at).total_seconds(), 3),
                "state_bytes": manifest.total_size_bytes,
                "files": sum(1 for _ in manifest.files()),
                "sources": [entry.source_id for entry in manifest.sources],
                "sinks": [entry.sink_id for entry in manifest.sinks],
            }
        case None:
            return head | {"status": "incomplete", "begun_at": _iso(row.checkpoint_id.timestamp)}
        case error:
            return head | {
                "status": "damaged",
                "error": {"kind": error.kind, "message": str(error)},
            }


def _iso(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


# --- for people ---------------------------------------------------------------------------------


def _blocks(
    listing: Listing, url: str, now: datetime, limit: int | None, with_incomplete: bool
) -> Iterator[Block]:
    if listing.rows:
        yield Table(_COLUMNS, [_cells(row, listing.latest, now) for row in listing.rows])
    else:
        yield Line(f"No checkpoints in {url}.")
    if listing.incomplete and not with_incomplete:
        attempts = wording.count(listing.incomplete, "attempt")
        yield Line(f"{attempts} without a manifest not shown; --all shows them.")
    if limit is not None and len(listing.rows) == limit:
        yield Line(f"The newest {limit}; --limit all shows every one.")


def _cells(row: Row, latest: CheckpointId | None, now: datetime) -> tuple[str, ...]:
    match row.found:
        case CheckpointManifest() as manifest:
            return (
                str(manifest.epoch),
                row.checkpoint_id,
                wording.timestamp(manifest.completed_at),
                wording.age(manifest.completed_at, now),
                wording.size(manifest.total_size_bytes),
                str(sum(1 for _ in manifest.files())),
                str(len(manifest.sources)),
                str(len(manifest.sinks)),
                manifest.pipeline,
                "latest" if row.checkpoint_id == latest else "",
            )
        case None:
            begun = wording.age(row.checkpoint_id.timestamp, now)
            return ("", row.checkpoint_id, "", begun, "", "", "", "", "", "incomplete")
        case error:
            mark = "damaged, latest" if row.checkpoint_id == latest else "damaged"
            note = f"{mark}: {reason_of(error)}"
            begun = wording.age(row.checkpoint_id.timestamp, now)
            return ("", row.checkpoint_id, "", begun, "", "", "", "", "", note)
