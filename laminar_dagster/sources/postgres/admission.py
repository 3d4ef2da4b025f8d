"""How much an epoch takes of the stream: whole transactions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from laminar_dagster.clients.postgres.server import Connection
from laminar_dagster.core.ports import Admission
from laminar_dagster.sources.postgres.database import Database, Transaction

# What is looked at beyond the limit, since messages that are no changes count too.
_MORE: Final = 1000
# Where there is a limit of bytes alone, so many changes are looked at to begin with.
_FEW: Final = 10_000
_ALL: Final = 2**31 - 1


def admitted_transactions(
    database: Database, connection: Connection, start: int, limits: Admission
) -> int | None:
    """Where the log goes on after the last transaction that an epoch takes; None for none.

    At least one transaction is taken, however large it is.

    Args:
        database: That has them.
        connection: A session.
        start: Transactions that were committed before were read.
        limits: Of the epoch.
    """
    if limits.max_records is None and limits.max_bytes is None:
        last = database.last_transaction(connection)
        return last.end if last is not None and last.lsn >= start else None
    most = (limits.max_records or _FEW) + _MORE
    while True:
        found, may_be_more = database.transactions(connection, most)
        new = [each for each in found if each.lsn >= start]
        end, is_full = within(new, limits)
        if is_full or not may_be_more or most >= _ALL:
            return end
        most = min(_ALL, most * 4)


def within(transactions: Iterable[Transaction], limits: Admission) -> tuple[int | None, bool]:
    """Where those end that fit into an epoch, and whether the next one does not."""
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
