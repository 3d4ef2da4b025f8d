"""How many transactions of the stream an epoch reads, within its limits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from laminar_dagster.clients.postgres.server import Connection
from laminar_dagster.core.errors import LaminarError
from laminar_dagster.core.ports import Admission
from laminar_dagster.sources.postgres.database import Database, Transaction
from laminar_dagster.sources.postgres.pinned_tables import PinnedTables, Pins

# How many more messages than the limit are fetched, since not all messages are changes.
_MORE: Final = 1000
# How many changes are fetched first where only bytes are limited.
_FEW: Final = 10_000
_ALL: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Admitted:
    """The transactions that an epoch reads.

    Attributes:
        end: The position after the last of them; None if there are none.
        pins: The state of the tables at the end.
        is_all: Whether no transaction is left.
    """

    end: int | None
    pins: Pins
    is_all: bool


def admitted_transactions(
    database: Database,
    connection: Connection,
    start: int,
    limits: Admission,
    tables: PinnedTables,
    pins: Pins,
) -> Admitted:
    """Choose the transactions that an epoch reads.

    At least one transaction is taken, however large it is. The epoch ends before the first
    transaction in which a table no longer matches its pin.

    Args:
        database: The database.
        connection: A session.
        start: Transactions that were committed before this position are skipped.
        limits: The epoch's limits.
        tables: Compares tables with their pins.
        pins: The state of the tables at the start.

    Raises:
        LaminarError: A table does not match its pin in the very first transaction.
    """
    if limits.max_records is None and limits.max_bytes is None:
        return _all(database, connection, start, tables, pins)
    most = (limits.max_records or _FEW) + _MORE
    while True:
        found, may_be_more = database.transactions(connection, most)
        new = [each for each in found if each.lsn >= start]
        readable, problem = _readable(new, tables, pins)
        end, is_full = within([each for each, _ in readable], limits)
        if end is None and problem is not None:
            raise problem
        if is_full or problem is not None or not may_be_more or most >= _ALL:
            taken = [after for each, after in readable if end is not None and each.end <= end]
            is_all = not is_full and problem is None and not may_be_more
            return Admitted(end, taken[-1] if taken else pins, is_all)
        most = min(_ALL, most * 4)


def _all(
    database: Database, connection: Connection, start: int, tables: PinnedTables, pins: Pins
) -> Admitted:
    end: int | None = None
    for each, before in database.describing_transactions(connection):
        if each.lsn < start:
            continue
        try:
            pins = tables.after(pins, each)
        except LaminarError:
            if before is None or before.lsn < start:
                raise
            return Admitted(before.end, pins, is_all=False)
        end = each.end
    return Admitted(end, pins, is_all=True)


def _readable(
    transactions: Iterable[Transaction], tables: PinnedTables, pins: Pins
) -> tuple[list[tuple[Transaction, Pins]], LaminarError | None]:
    """The leading transactions whose tables match, with the pins after each, and what stops it."""
    readable: list[tuple[Transaction, Pins]] = []
    for each in transactions:
        try:
            pins = tables.after(pins, each)
        except LaminarError as error:
            return readable, error
        readable.append((each, pins))
    return readable, None


def within(transactions: Iterable[Transaction], limits: Admission) -> tuple[int | None, bool]:
    """The end of the transactions that fit into an epoch, and whether there are more of them."""
    end: int | None = None
    records = size = 0
    for each in transactions:
        records += each.changes
        size += each.size_bytes
        is_over = (limits.max_records is not None and records > limits.max_records) or (
            limits.max_bytes is not None and size > limits.max_bytes
        )
        if is_over and end is not None:
            return end, True
        end = each.end
        if is_over:
            return end, True
    return end, False
