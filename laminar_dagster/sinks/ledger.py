"""The one rule of every sink: its ledger moves from N-1 to N and in no other way."""

from __future__ import annotations

from enum import Enum, auto

from laminar_dagster.core.errors import LedgerMismatch
from laminar_dagster.core.ids import EpochNumber, SinkId


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
