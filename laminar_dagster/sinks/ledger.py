"""The one rule of every sink: its ledger moves from N-1 to N and in no other way."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from laminar_dagster.core.errors import LedgerMismatch
from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.core.ports import Published
from laminar_dagster.sinks.changes import Unwritable

# Of a sink in a database: in it, each sink has a row.
LEDGER_TABLE: Final = "_laminar_ledger"

# The last epoch, and the table that holds it if any epoch had columns.
Standing = tuple[EpochNumber | None, str | None]


def standing(row: tuple[int, str | None] | None) -> Standing:
    """What a sink's row says. Zero is the empty row of one who has not committed yet."""
    return (EpochNumber(row[0]), row[1]) if row and row[0] else (None, None)


def attested(row: tuple[int, str] | None) -> Published | None:
    """What a sink's row says of its output."""
    return Published(EpochNumber(row[0]), row[1]) if row and row[0] else None


class Decision(Enum):
    """What a sink does with an epoch it is asked to commit."""

    COMMIT = auto()
    SKIP = auto()


def decide(
    sink_id: SinkId, epoch: EpochNumber, joined_at: EpochNumber, ledger: EpochNumber | None
) -> Decision:
    """Whether to publish an epoch. To be asked under the lock that the commit holds.

    Args:
        sink_id: Which sink, for the error.
        epoch: The epoch to commit.
        joined_at: The first epoch that the sink takes part in.
        ledger: The last epoch that it holds; None for a ledger that does not exist.

    Raises:
        LedgerMismatch: Publishing would leave a gap or double an epoch.
    """
    if ledger is not None and ledger == epoch:
        return Decision.SKIP
    # A ledger that does not exist stands just before the epoch in which the sink joined, and for
    # that epoch only: taken for a later one, a lost ledger would pass for a new sink.
    expected = joined_at.previous() if ledger is None else ledger
    if expected == epoch - 1:
        return Decision.COMMIT
    raise LedgerMismatch(sink_id, epoch, expected)


def require_kept(
    written_to: str | None, is_ours: Callable[[str], bool], is_there: Callable[[str], bool]
) -> None:
    """A ledger that goes on over an empty table would hide that the epochs below are gone.

    Args:
        written_to: The table that holds the epochs so far; None if none of them had columns.
        is_ours: Whether a name is that of the sink's table.
        is_there: Whether there is a table of a name.

    Raises:
        Unwritable: The epochs are elsewhere, or gone.
    """
    if written_to is None:
        return
    if not is_ours(written_to):
        raise Unwritable(
            f"its epochs so far are in table `{written_to}`;"
            " for another table, give the sink another name"
        )
    if not is_there(written_to):
        raise Unwritable(f"table `{written_to}`, which held its epochs so far, is gone")
