"""The store in memory keeps the contract of the real ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.testing.memory_store import MemoryStore
from laminar_dagster.testing.store_contract import ObjectStoreContract


class TestMemoryStore(ObjectStoreContract):
    large = 1000

    @pytest.fixture
    def store(self) -> ObjectStore:
        return MemoryStore()

    @pytest.fixture
    def sibling(self, store: ObjectStore) -> ObjectStore:
        return MemoryStore(store.url.removeprefix("memory://"))


def test_stores_without_a_name_share_nothing() -> None:
    first, second = MemoryStore(), MemoryStore()
    first.create("a", b"1")
    assert second.read_versioned("a") is None


def test_a_place_ends_with_its_last_store() -> None:
    MemoryStore("gone").create("a", b"1")
    assert MemoryStore("gone").read_versioned("a") is None


def test_a_test_can_set_the_clock() -> None:
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    times = iter([moment, moment + timedelta(days=1)])
    store = MemoryStore(now=lambda: next(times))
    store.put("a", b"")
    store.put("b", b"")
    assert [info.modified for info in store.list("")] == [moment, moment + timedelta(days=1)]
