"""How each reference table does, for ``laminar status``: which copy is used, and how old it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from laminar_dagster.cli import wording
from laminar_dagster.cli.pinned_tables import describe_absence, pin_document
from laminar_dagster.cli.plain_documents import plain_moment
from laminar_dagster.cli.tables import Block, Column, Table
from laminar_dagster.core.ids import ReferenceId
from laminar_dagster.core.ports import Reference
from laminar_dagster.core.reference import ReferencePin

_COLUMNS: Final = (
    Column("table"),
    Column("connector", optional=3),
    Column("rows", right=True),
    Column("size", right=True),
    Column("copied for epoch", right=True),
    Column("copied (UTC)", optional=2),
    Column("looked at (UTC)", optional=1),
    Column("next look", folds=12),
    Column("state", folds=24),
)


@dataclass(frozen=True, slots=True)
class ReferenceStatus:
    """All that is shown of the reference tables. Nobody is asked: the newest plan tells.

    Attributes:
        connectors: Of each table.
        pins: Of the newest plan, whether it is carried out or not.
    """

    tables: tuple[Reference, ...]
    connectors: Mapping[ReferenceId, str]
    pins: Mapping[ReferenceId, ReferencePin]
    now: datetime

    def documents(self) -> list[dict[str, Any]]:
        """For programs."""
        return [self._document(table) for table in self.tables]

    def blocks(self) -> Iterator[Block]:
        """For people."""
        if self.tables:
            yield Table(_COLUMNS, [self._row(table) for table in self.tables], "Reference tables")

    def warnings(self) -> list[str]:
        """What somebody should do something about."""
        return [
            f"reference table {pin.reference_id} has been away since "
            f"{wording.timestamp(pin.unavailable_since)} UTC: epochs go on with its copy "
            f"(on_unavailable = 'keep'), last found right {wording.ago(pin.checked_at, self.now)}"
            for table in self.tables
            if (pin := self._pin(table)) and pin.unavailable_since
        ]

    def _pin(self, table: Reference) -> ReferencePin | None:
        """The copy that the next plan may go on with."""
        pin = self.pins.get(table.reference_id)
        return pin if pin and pin.declaration == table.declaration else None

    def _document(self, table: Reference) -> dict[str, Any]:
        pin, due = self._pin(table), self._next_look(table)
        return {
            "reference": table.reference_id,
            "connector": self.connectors[table.reference_id],
            "copy": pin_document(pin) if pin else None,
            "age_seconds": round((self.now - pin.checked_at).total_seconds(), 3) if pin else None,
            "next_look_at": plain_moment(due) if due else None,
            "is_looked_at_next": pin is None or (due is not None and due <= self.now),
            "keeps_when_away": table.freshness.keeps_when_away,
        }

    def _next_look(self, table: Reference) -> datetime | None:
        pin = self._pin(table)
        return table.freshness.next_look(pin.checked_at) if pin else None

    def _row(self, table: Reference) -> tuple[str, ...]:
        name, pin = str(table.reference_id), self._pin(table)
        connector = self.connectors[table.reference_id]
        if pin is None:
            known = table.reference_id in self.pins
            state = "declared otherwise than its copy" if known else "not copied yet"
            return (name, connector, "", "", "", "", "", "with the next epoch", state)
        return (
            name,
            connector,
            f"{pin.rows:,}",
            wording.size(pin.size_bytes),
            str(pin.epoch),
            wording.timestamp(pin.copied_at),
            wording.timestamp(pin.checked_at),
            self._next_look_in_words(table),
            describe_absence(pin) or "answered at the last look",
        )

    def _next_look_in_words(self, table: Reference) -> str:
        due = self._next_look(table)
        if due is None:
            return "never"
        return "with the next epoch" if due <= self.now else wording.age(due, self.now)
