"""The rule that both sinks ask before they publish."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.core.errors import LedgerMismatch
from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.sinks.ledger import Decision, decide

SINK = SinkId("table")


@given(
    st.integers(1, 9).map(EpochNumber),
    st.integers(1, 9).map(EpochNumber),
    st.none() | st.integers(1, 9).map(EpochNumber),
)
def test_an_epoch_is_published_once_and_in_order(
    epoch: EpochNumber, joined_at: EpochNumber, ledger: EpochNumber | None
) -> None:
    if ledger is None:
        expected = Decision.COMMIT if epoch == joined_at else None
    else:
        expected = {ledger: Decision.SKIP, ledger + 1: Decision.COMMIT}.get(epoch)
    if expected is not None:
        assert decide(SINK, epoch, joined_at, ledger) is expected
        return
    with pytest.raises(LedgerMismatch) as caught:
        decide(SINK, epoch, joined_at, ledger)
    assert caught.value.epoch == epoch
    assert caught.value.ledger == (joined_at - 1 if ledger is None else ledger)
