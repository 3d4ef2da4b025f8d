"""What the pipeline reads, and what must come of it: computed in plain Python.

The input is two lanes of whole numbers, each a change of an account: an amount that is added to it,
or nothing, which closes it. Two views: every change, to append; the balances, to be put by account,
where closing one deletes its row.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Literal

from laminar_dagster.testing.memory_pipeline import MemoryLog

View = Literal["moves", "balances"]
Rows = Counter[tuple[Any, ...]]

COLUMNS: Final[dict[View, tuple[str, ...]]] = {
    "moves": ("lane", "place", "account", "amount"),
    "balances": ("account", "balance", "changes"),
}
KEY: Final = "account"

_ACCOUNTS: Final = 12
_CLOSES: Final = 0.25


def log_of(seed: int, records: int) -> MemoryLog:
    """The input, the same in every process. An account belongs to one lane."""
    chance = random.Random(seed)
    lanes: list[list[int]] = [[], []]
    for lane, numbers in enumerate(lanes):
        for _ in range(records):
            account = chance.randrange(lane, _ACCOUNTS, len(lanes))
            amount = 0 if chance.random() < _CLOSES else chance.randint(1, 999)
            numbers.append(amount * _ACCOUNTS + account)
    return MemoryLog(lanes)


def read_number(number: int) -> tuple[str, int]:
    """The account, and the amount; no amount closes the account."""
    amount, account = divmod(number, _ACCOUNTS)
    return f"account {account:02d}", amount


def right_rows(view: View, log: MemoryLog, ends: Sequence[int]) -> Rows:
    """What a sink must hold when so much of each lane has been read, however it was cut."""
    moves: Rows = Counter()
    balances: dict[str, tuple[int, int]] = {}
    for lane, (numbers, end) in enumerate(zip(log.partitions, ends, strict=True)):
        for place, (account, amount) in enumerate(map(read_number, numbers[:end])):
            moves[lane, place, account, amount] += 1
            if amount:
                balance, changes = balances.get(account, (0, 0))
                balances[account] = (balance + amount, changes + 1)
            else:
                balances.pop(account, None)
    if view == "moves":
        return moves
    return Counter((account, *held) for account, held in balances.items())
