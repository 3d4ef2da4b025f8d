"""After every epoch, the sum of all weights is the table as it was after that very transaction."""

from __future__ import annotations

import random
from collections import Counter
from threading import Thread
from typing import Any

import pytest

from laminar_dagster.core.ports import Admission
from tests.integration.postgres.random_changes import MAKE, RandomWriter
from tests.integration.postgres.tables import Reading, Tables, bad_of, read, rows_of

pytestmark = pytest.mark.service("postgres")

COLUMNS = {"id": "bigint!", "owner": "string", "amount": "bigint"}


@pytest.mark.parametrize("seed", [1, 2])
def test_weights_add_up_to_the_table_at_every_epoch(tables: Tables, seed: int) -> None:
    tables.run(*MAKE)
    writer = RandomWriter(tables, seed)
    writer.write(20)
    chance = random.Random(seed)

    def open_anew() -> Any:
        return tables.source(
            COLUMNS,
            tables="accounts, clock",
            before="required",
            snapshot__file__bytes="8KiB",
            retain__wal="64KiB",
        )

    reading = Reading(open_anew())
    writing: Thread | None = None
    sums: Counter[tuple[str, Any, Any, Any]] = Counter()
    is_copied = False
    while True:
        # Another process goes on from what is stored.
        reading.source = open_anew()
        limits = Admission(max_records=chance.choice((1, 10, 200)) if is_copied else 30)
        plan = reading.plan(limits)
        if writing is None:
            writing = Thread(target=writer.write, args=(60,))
            writing.start()
        is_over = not writing.is_alive()
        if chance.random() < 0.3:
            # An attempt that dies: it has read something, and nothing comes of it.
            for split in reading.source.splits(plan.ranges[0]):
                next(iter(reading.source.reader().read(split)), None)
        reading.previous = plan
        chunks = read(open_anew(), plan)
        assert bad_of(chunks) == []
        for row in rows_of(chunks):
            key = (row["_table"], row["id"], row["owner"], row["amount"])
            sums[key] += row["_weight"]
            if not sums[key]:
                del sums[key]
        end: Any = plan.ranges[0].end
        if end.snapshot is None:
            assert set(sums.values()) <= {1}
            (at,) = [key[1] for key in sums if key[0] == "public.clock"]
            found = {key[1:] for key in sums if key[0] == "public.accounts"}
            assert found == set(writer.states[at].values())
            is_copied = True
            reading.source.acknowledge(reading.at)
            if is_over and plan.ranges[0].is_empty:
                break
    writing.join()
    live = tables.fetch("SELECT id, owner, amount FROM accounts")
    assert {key[1:] for key in sums if key[0] == "public.accounts"} == set(live)
    assert len(writer.states) == 81
