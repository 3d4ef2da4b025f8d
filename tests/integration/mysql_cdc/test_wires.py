"""A wire that is cut, and a copy that dies: a second try is right."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import count

import pytest

from laminar_dagster.core.errors import SourceUnavailable
from laminar_dagster.core.ports import Admission
from laminar_dagster.runtime.snapshots import StoredSnapshots
from laminar_dagster.testing.crash import Crash
from laminar_dagster.testing.faulty_store import Fault, FaultyStore
from laminar_dagster.testing.memory_store import MemoryStore
from tests.integration.mysql_cdc.shop import SOURCE, Shop
from tests.services.faulty_wire import WireFactory


def test_a_cut_wire(shop: Shop, faulty_wire: WireFactory) -> None:
    server = shop.source().reader().options.server
    wire = faulty_wire(server.host, server.port)
    shop.options["server"] = replace(server, port=wire.port)
    shop.insert([(1, "a")])
    wire.cut_next_request(lambda request: b"FROM `shop" in request)
    with pytest.raises(SourceUnavailable):
        shop.plan()
    assert shop.keeper.newest() is None
    assert [row["id"] for row in shop.epoch()] == [1]

    shop.insert([(key, "x" * 90) for key in range(2, 5000)])
    wire.cut_next_request(lambda request: b"\x01\0\0\0\0\0binlog." in request)
    with pytest.raises(SourceUnavailable):
        shop.plan()
    plan = shop.plan()
    wire.swallow_next_reply(lambda request: b"\x01\0\0\0\0\0binlog." in request)
    with pytest.raises(SourceUnavailable):
        shop.read(plan)
    assert shop.read(plan).column("id").to_pylist() == [*range(2, 5000)]

    wire.refuse()
    with pytest.raises(SourceUnavailable):
        shop.plan()


def test_a_copy_that_dies_is_started_over(shop: Shop) -> None:
    """Wherever it dies. What was deleted since a copy is taken back by the log, or not in it."""
    shop.insert([(key, "x" * 90) for key in range(300)])
    shop.options["snapshot_file"] = 8192
    store = MemoryStore()
    for place in count(1):
        shop.keeper = StoredSnapshots(FaultyStore(store, {place: Fault.CRASH_AFTER}), SOURCE)
        try:
            shop.plan()
            break
        except Crash:
            shop.run(f"DELETE FROM orders WHERE id = {place}")
    assert place > 2
    shop.keeper = StoredSnapshots(store, SOURCE)
    found = shop.read(shop.plans[-1]).to_pylist() + shop.catch_up(Admission(max_records=100))
    total = Counter[int]()
    for row in found:
        total[row["id"]] += row["_weight"]
    assert +total == Counter([0, *range(place, 300)])
