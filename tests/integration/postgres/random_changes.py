"""Random transactions on a table, and what the table held after each of them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg

from tests.integration.postgres.tables import Tables

Row = tuple[int, str | None, int]

MAKE: Final = (
    "CREATE TABLE accounts (id bigint PRIMARY KEY, owner text, amount bigint NOT NULL)",
    "ALTER TABLE accounts ALTER COLUMN owner SET STORAGE EXTERNAL",
    "ALTER TABLE accounts REPLICA IDENTITY FULL",
    # The last change of every transaction: tells which one it was.
    "CREATE TABLE clock (id bigint NOT NULL)",
    "ALTER TABLE clock REPLICA IDENTITY FULL",
    "INSERT INTO clock VALUES (0)",
)


@dataclass
class RandomWriter:
    """Writes, commits and rolls back; knows the table after each commit by heart.

    Attributes:
        states: The rows by id, after each transaction that was committed.
    """

    tables: Tables
    seed: int
    states: list[Mapping[int, Row]] = field(default_factory=lambda: [{}])

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def write(self, transactions: int) -> None:
        """So many commits, with some rollbacks between them."""
        with self.tables.connect() as connection:
            for _ in range(transactions):
                while self._chance.random() < 0.2:
                    with connection.transaction(force_rollback=True):
                        self._change(connection, dict(self.states[-1]))
                with connection.transaction():
                    rows = dict(self.states[-1])
                    self._change(connection, rows)
                    if self._chance.random() < 0.3:
                        with connection.transaction(force_rollback=True):
                            self._change(connection, dict(rows))
                        self._change(connection, rows)
                    connection.execute("UPDATE clock SET id = %s", (len(self.states),))
                    # Known before anybody can read it.
                    self.states.append(rows)

    def _change(self, connection: psycopg.Connection[Any], rows: dict[int, Row]) -> None:
        chance = self._chance
        for _ in range(chance.choice((1, 1, 2, 5, 20))):
            known = sorted(rows)
            kind = chance.choice(("insert", "update", "update", "delete", "move"))
            if kind == "insert" or not known:
                key = chance.randrange(10**6)
                if key in rows:
                    continue
                owner = chance.choice((None, "", "ü", "x" * 9000, f"owner {key}"))
                rows[key] = (key, owner, chance.randrange(-1000, 1000))
                insert = "INSERT INTO accounts VALUES (%s, %s, %s)"
                connection.execute(insert, rows[key])
                continue
            key = chance.choice(known)
            _, owner, amount = rows[key]
            if kind == "delete":
                del rows[key]
                connection.execute("DELETE FROM accounts WHERE id = %s", (key,))
            elif kind == "update":
                rows[key] = (key, owner, amount + 1)
                connection.execute("UPDATE accounts SET amount = amount + 1 WHERE id = %s", (key,))
            else:
                del rows[key]
                other = key + 10**6
                rows[other] = (other, owner, amount)
                move = "UPDATE accounts SET id = %s WHERE id = %s"
                connection.execute(move, (other, key))
