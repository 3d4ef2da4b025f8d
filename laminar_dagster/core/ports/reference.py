"""Tables that a stream is joined with: looked at when an epoch is planned, and copied."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from laminar_dagster.core.ids import ReferenceId


@dataclass(frozen=True, slots=True)
class ReferenceFreshness:
    """How old a copy may be.

    Attributes:
        refresh_after: On the logical clock, so long after the last look, the table is looked at
            again; zero for every epoch, None for never.
        keeps_when_away: Whether an epoch goes on with the copy there is when the table is away.
    """

    refresh_after: timedelta | None
    keeps_when_away: bool = False

    def next_look(self, checked_at: datetime) -> datetime | None:
        """From when on, on the logical clock, a table is looked at again; None for never."""
        try:
            return None if self.refresh_after is None else checked_at + self.refresh_after
        except OverflowError:
            return None


@dataclass(frozen=True, slots=True)
class ReferenceRows:
    """All rows of a table at one moment, as files. The same rows give the same files.

    Attributes:
        version: As ``Reference.version`` tells it of that moment.
        files: The rows of each file, and its bytes: Arrow IPC.
    """

    version: str
    files: tuple[tuple[int, bytes], ...]


class Reference(Protocol):
    """A table that can be read as a whole, at one moment. It may be another a moment later.

    Every method raises ``ReferenceUnavailable`` where the table cannot be reached now,
    ``AuthFailed`` where it never will be this way, and ``ReferenceUnfit`` where it is not what was
    declared.
    """

    @property
    def reference_id(self) -> ReferenceId:
        """Its name within the pipeline."""
        ...

    @property
    def address(self) -> str:
        """Where it is, as a URL without secrets: the same for everybody who uses it."""
        ...

    @property
    def declaration(self) -> str:
        """SHA-256 of what decides which rows and columns are read."""
        ...

    @property
    def freshness(self) -> ReferenceFreshness:
        """How old a copy of it may be."""
        ...

    def version(self) -> str | None:
        """What tells this state of the table from others, if that is known without reading it.

        The same version is the same rows. None where only the rows themselves tell.
        """
        ...

    def read(self) -> ReferenceRows:
        """All rows, as they are at one moment, in an order that follows from the rows alone.

        Raises:
            ReferenceUnfit: Two rows have one key; a value is missing, or not of its type; a
                column is gone; there is no such table, or more of it than may be copied.
        """
        ...
