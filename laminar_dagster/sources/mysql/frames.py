"""Where transactions end in a log; planning and reading must agree on it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from laminar_dagster.sources.mysql.events import Event, Kind
from laminar_dagster.sources.mysql.server_log import number_of
from laminar_dagster.sources.mysql.statements import (
    Effect,
    Statement,
    effect_of,
    statement_in,
)

_STANDALONE: Final = 0x01
# A payload is a whole transaction; an incident belongs to none, and no end follows it.
_ENDS: Final = frozenset(
    {Kind.FORMAT, Kind.XID, Kind.XA_PREPARE, Kind.TRANSACTION_PAYLOAD, Kind.INCIDENT}
)


def statement_of(event: Event) -> Statement | None:
    """The statement in an event; None if there is none."""
    if event.kind == Kind.QUERY:
        return statement_in(event.body)
    # LOAD DATA, logged as a statement, is in an event of its own kind.
    return statement_in(event.body, is_load=True) if event.kind == Kind.EXECUTE_LOAD else None


class Frame:
    """Follows the events of a log, and finds the ends of transactions."""

    def __init__(self) -> None:
        """Start between two transactions."""
        self._is_open = False

    def is_end(self, event: Event, effect: Effect | None) -> bool:
        """Whether the next event ends a transaction.

        Args:
            event: The first event of a file counts as an end: a transaction that a crashed server
                left open before it was never committed.
            effect: The effect of the event's statement, if it has one.
        """
        kind = event.kind
        if kind == Kind.MARIADB_GTID:
            self._is_open = not event.body[12] & _STANDALONE
            return False
        if effect is not None:
            self._is_open = self._is_open or effect is Effect.BEGIN
            is_end = effect in (Effect.COMMIT, Effect.ROLLBACK) or not self._is_open
        elif kind == Kind.COMPRESSED_QUERY:
            # BEGIN and COMMIT are too short to be compressed: this is an ordinary statement.
            is_end = not self._is_open
        else:
            is_end = kind in _ENDS
        if is_end:
            self._is_open = False
        return is_end


def last_ends(events: Iterable[Event], before: int) -> dict[str, int] | None:
    """The end of the last complete transaction in each file; what follows it was not committed.

    Args:
        events: Starting at the end of a transaction.
        before: The number of the file at which to stop.

    Returns:
        None if the events end before that file begins, so that the ends are not known.
    """
    frame, found = Frame(), dict[str, int]()
    for event in events:
        if number_of(event.file) >= before:
            return found
        statement = statement_of(event)
        effect = effect_of(statement, ())[0] if statement is not None else None
        if frame.is_end(event, effect):
            found[event.file] = event.end
    return None
