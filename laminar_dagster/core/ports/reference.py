"""The port for reference tables: streams join a copy, made when an epoch is planned."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from laminar_dagster.core.ids import ReferenceId


@dataclass(frozen=True, slots=True)
class ReferenceFreshness:
    """How old a copy may be.

    Attributes:
        refresh_after: How long after the last check, by the logical clock, the table is checked
            again; zero for every epoch, None for never.
        keeps_when_away: Whether an epoch uses the existing copy when the table is unavailable.
    """

    refresh_after: timedelta | None
    keeps_when_away: bool = False

    def next_look(self, checked_at: datetime) -> datetime | None:
        """When, by the logical clock, the table is to be checked again; None for never."""
        try:
            return None if self.refresh_after is None else checked_at + self.refresh_after
        except OverflowError:
            return None


@dataclass(frozen=True, slots=True)
class ReferenceRows:
    """All rows of a table at one moment, as files. The same rows give the same files.

    Attributes:
        version: The value of ``Reference.version`` at that moment.
        files: The number of rows of each file, and its bytes: Arrow IPC.
    """

    version: str
    files: tuple[tuple[int, bytes], ...]


class Reference(Protocol):
    """A table that can be read as a whole, consistent at one moment. It may change at any time.

    Every method raises ``ReferenceUnavailable`` if the table cannot be reached now, ``AuthFailed``
    if it refuses the credentials, and ``ReferenceUnfit`` if it is not what was declared.
    """

    @property
    def reference_id(self) -> ReferenceId:
        """Its name within the pipeline."""
        ...

    @property
    def address(self) -> str:
        """Its address, as a URL without secrets: the same in every pipeline that uses it."""
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
        """The table's version, if it is known without reading the rows; None otherwise.

        Equal versions have equal rows.
        """
        ...

    def read(self) -> ReferenceRows:
        """All rows, as they are at one moment, in an order that follows from the rows alone.

        Raises:
            ReferenceUnfit: Two rows have one key; a value is missing, or not of its type; a
                column is gone; there is no such table, or more of it than may be copied.
        """
        ...
