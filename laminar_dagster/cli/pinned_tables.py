"""Reference tables as an epoch has pinned them, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from laminar_dagster.cli import wording
from laminar_dagster.cli.plain_documents import plain_moment
from laminar_dagster.cli.tables import Block, Column, Table
from laminar_dagster.core.reference import ReferencePin

_COLUMNS: Final = (
    Column("table"),
    Column("copied for epoch", right=True),
    Column("copied (UTC)", optional=2),
    Column("rows", right=True),
    Column("size", right=True),
    Column("looked at (UTC)", optional=1),
    Column("copy", optional=3),
    Column("version", folds=12, optional=4),
    Column("note", folds=24),
)


def pinned_tables(pins: Iterable[ReferencePin]) -> Iterator[Block]:
    """Which copy of each table an epoch sees; nothing where it sees none."""
    rows = [
        (
            str(pin.reference_id),
            str(pin.epoch),
            wording.timestamp(pin.copied_at),
            f"{pin.rows:,}",
            wording.size(pin.size_bytes),
            wording.timestamp(pin.checked_at),
            pin.copy_id,
            pin.version,
            describe_absence(pin),
        )
        for pin in pins
    ]
    if rows:
        yield Table(_COLUMNS, rows, "Reference tables: which copy it sees of each")


def describe_absence(pin: ReferencePin) -> str:
    """That a table was away and an older copy was kept; empty where it answered."""
    if pin.unavailable_since is None:
        return ""
    return f"kept: away since {wording.timestamp(pin.unavailable_since)} UTC"


def pin_document(pin: ReferencePin) -> dict[str, Any]:
    """A pin in figures; the files one by one are in the plan and the manifest."""
    since = pin.unavailable_since
    return {
        "reference": pin.reference_id,
        "version": pin.version,
        "epoch": pin.epoch,
        "copy_id": pin.copy_id,
        "copied_at": plain_moment(pin.copied_at),
        "rows": pin.rows,
        "size_bytes": pin.size_bytes,
        "files": len(pin.files),
        "checked_at": plain_moment(pin.checked_at),
        "is_kept": pin.is_kept,
        "unavailable_since": plain_moment(since) if since else None,
    }
