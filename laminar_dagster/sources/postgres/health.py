"""Health of a PostgreSQL source: how far it is behind, and how much log the slot retains."""

from __future__ import annotations

from collections.abc import Mapping

from laminar_dagster.core.errors import LaminarError, SlotNotFound
from laminar_dagster.core.health import HealthReport, PartitionHealth
from laminar_dagster.core.offsets import PostgresPosition
from laminar_dagster.sources.postgres.server_state import ServerState


def report(
    source_id: str,
    state: ServerState,
    slot: str,
    position: PostgresPosition | None,
    seconds: float | None,
    details: Mapping[str, str],
) -> HealthReport:
    """The health of a source whose server answered.

    Args:
        source_id: The source's name.
        state: The state of the server.
        slot: The slot's name.
        position: Where the next epoch begins; None before the first.
        seconds: How long ago the oldest unread change was committed; None if there is none.
        details: What is known of the source without asking the server.
    """
    known = {**details, "server_version": state.version, "timeline": str(state.timeline)}
    lag = 0 if position is None else max(0, state.flushed - position.lsn)
    headroom: float | None = None
    problem: LaminarError | None = None
    message = f"connected, {lag:,} bytes of the log behind"
    if seconds is not None:
        known["lag_seconds"] = f"{seconds:.1f}"
        message += f", {seconds:,.0f} s"
    if state.slot is None:
        message += "; the slot is not there"
        if position is not None and position.snapshot is None:
            problem = SlotNotFound(source_id, slot)
    elif state.slot.restart is not None:
        retained = max(0, state.flushed - state.slot.restart)
        known["retained_bytes"] = str(retained)
        message += f"; the slot keeps {retained:,} bytes"
        if state.slot.safe_bytes is not None:
            safe = max(0, state.slot.safe_bytes)
            headroom = safe / (safe + retained) if safe + retained else 0.0
    return HealthReport(
        healthy=problem is None and not (state.slot is not None and state.slot.is_lost),
        message=message,
        details=known,
        partitions=(PartitionHealth(f"slot {slot}", lag, headroom),),
        error=problem,
    )
