"""Where transactions end in a log: the same for those who plan epochs and those who read them."""

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
# A payload is a whole transaction; an incident is a part of none, and nothing follows that ends it.
_ENDS: Final = frozenset(
    {Kind.FORMAT, Kind.XID, Kind.XA_PREPARE, Kind.TRANSACTION_PAYLOAD, Kind.INCIDENT}
)


def statement_of(event: Event) -> Statement | None:
    """The statement that an event holds; None if it holds none."""
    if event.kind == Kind.QUERY:
        return statement_in(event.body)
    # A file that was loaded as a statement is in the log as the statement that loads it.
    return statement_in(event.body, is_load=True) if event.kind == Kind.EXECUTE_LOAD else None


class Frame:
    """Follows the events of a log, and tells at which of them a transaction ends."""

    def __init__(self) -> None:
        """Begin between two transactions."""
        self._is_open = False

    def is_end(self, event: Event, effect: Effect | None) -> bool:
        """Take the next event.

        Args:
            event: The first of a file is an end too: what a server that died left without one
                was never committed.
            effect: Of its statement, if it is one.
        """
        kind = event.kind
        if kind == Kind.MARIADB_GTID:
            self._is_open = not event.body[12] & _STANDALONE
            return False
        if effect is not None:
            self._is_open = self._is_open or effect is Effect.BEGIN
            is_end = effect in (Effect.COMMIT, Effect.ROLLBACK) or not self._is_open
        elif kind == Kind.COMPRESSED_QUERY:
            # Too short to be compressed are those that begin or end a transaction.
            is_end = not self._is_open
        else:
            is_end = kind in _ENDS
        if is_end:
            self._is_open = False
        return is_end


def last_ends(events: Iterable[Event], before: int) -> dict[str, int] | None:
    """Where in each file the last transaction that is whole ends; what follows it is not.

    Args:
        events: From the end of a transaction on.
        before: The number of the file that is the first not to be looked at.

    Returns:
        None if the events end before that file begins: what is there is not known then.
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
