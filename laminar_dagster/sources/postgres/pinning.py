"""Checks that a server and its slot are those of the last epoch, and hold the next range."""

from __future__ import annotations

from collections.abc import Mapping

from laminar_dagster.core.errors import (
    RetentionExpired,
    SlotNotFound,
    SourceReplaced,
    TimelineChanged,
)
from laminar_dagster.core.offsets import PostgresIdentity, PostgresTable
from laminar_dagster.sources.postgres.decoding import lsn_text
from laminar_dagster.sources.postgres.server_state import ServerState


def identity_of(
    state: ServerState, slot: str, tables: Mapping[str, PostgresTable] | None = None
) -> PostgresIdentity:
    """The identity that a plan pins."""
    return PostgresIdentity(
        system_id=state.system_id,
        timeline=state.timeline,
        slot=slot,
        database=state.database,
        tables=dict(tables or {}),
    )


def require_same(
    source_id: str, state: ServerState, slot: str, pinned: PostgresIdentity | None
) -> None:
    """Refuse another server, database, slot or timeline.

    Raises:
        SourceReplaced: Names what differs.
        TimelineChanged: Only the timeline differs.
    """
    if pinned is None:
        return
    found = identity_of(state, slot)
    for what in ("system_id", "slot", "database"):
        expected, actual = getattr(pinned, what), getattr(found, what)
        if expected is not None and expected != actual:
            name = what.replace("_", " ")
            raise SourceReplaced(source_id, f"{name} {expected}", f"{name} {actual}")
    if pinned.timeline != found.timeline:
        raise TimelineChanged(source_id, pinned.timeline, found.timeline)


def require_reached(source_id: str, state: ServerState, place: int) -> None:
    """Refuse a log that ends before a position that was read.

    Raises:
        SourceReplaced: The log ends before it.
    """
    if place > state.flushed:
        wanted = f"a log that reaches {lsn_text(place)}"
        raise SourceReplaced(source_id, wanted, f"a log that ends at {lsn_text(state.flushed)}")


def require_held(
    source_id: str, state: ServerState, slot: str, start: int, end: int | None = None
) -> None:
    """Refuse a slot that cannot send every transaction from a position on.

    Args:
        source_id: The source's name.
        state: The state of the server.
        slot: The slot's name.
        start: The position.
        end: Where the range ends, if that is known.

    Raises:
        SlotNotFound: The slot is gone.
        RetentionExpired: The slot was advanced, created anew, or invalidated by the server.
        SourceReplaced: The log ends before the position.
    """
    require_reached(source_id, state, max(start, end or 0))
    if state.slot is None:
        raise SlotNotFound(source_id, slot)
    wanted = f"the log of slot {slot} from {lsn_text(start)} on"
    if state.slot.is_lost:
        reason = "nothing: the server has given the slot up (`max_slot_wal_keep_size`)"
        raise RetentionExpired(source_id, wanted, reason)
    if state.slot.confirmed > start:
        moved = f"{lsn_text(state.slot.confirmed)}: the slot was moved, or made anew"
        raise RetentionExpired(source_id, wanted, moved)
