"""The rule of every sink's ledger: it moves from epoch N-1 to N, and in no other way."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from laminar_dagster.core.errors import LedgerMismatch
from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.core.ports import Published
from laminar_dagster.sinks.changes import Unwritable

# The ledger table of sinks in a database, with a row per sink.
LEDGER_TABLE: Final = "_laminar_ledger"

# The last epoch, and the table that holds it if any epoch had columns.
Standing = tuple[EpochNumber | None, str | None]


def standing(row: tuple[int, str | None] | None) -> Standing:
    """Parse a sink's ledger row. Epoch 0 is an empty row, added for locking before any commit."""
    return (EpochNumber(row[0]), row[1]) if row and row[0] else (None, None)


def attested(row: tuple[int, str] | None) -> Published | None:
    """The epoch and output digest in a sink's ledger row."""
    return Published(EpochNumber(row[0]), row[1]) if row and row[0] else None


class Decision(Enum):
    """What a sink does with an epoch it is asked to commit."""

    COMMIT = auto()
    SKIP = auto()


def decide(
    sink_id: SinkId, epoch: EpochNumber, joined_at: EpochNumber, ledger: EpochNumber | None
) -> Decision:
    """Whether to publish an epoch. Call it under the lock that the commit holds.

    Args:
        sink_id: Which sink, for the error.
        epoch: The epoch to commit.
        joined_at: The first epoch that the sink takes part in.
        ledger: The last epoch that it holds; None for a ledger that does not exist.

    Raises:
        LedgerMismatch: Publishing would leave a gap or duplicate an epoch.
    """
    if ledger is not None and ledger == epoch:
        return Decision.SKIP
    # Without a ledger, only the epoch in which the sink joined is accepted: if a later one were, a
    # lost ledger would look like a new sink.
    expected = joined_at.previous() if ledger is None else ledger
    if expected == epoch - 1:
        return Decision.COMMIT
    raise LedgerMismatch(sink_id, epoch, expected)


def require_kept(
    written_to: str | None, is_ours: Callable[[str], bool], is_there: Callable[[str], bool]
) -> None:
    """Refuse to go on if the epochs so far are in another table, or in one that was dropped.

    Args:
        written_to: The table that holds the epochs so far; None if none of them had columns.
        is_ours: Whether a name is that of the sink's table.
        is_there: Whether a table of that name exists.

    Raises:
        Unwritable: The epochs are in another table, or the table is gone.
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
