"""A store within a store keeps the contract, and sees nothing beyond its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from laminar_dagster.core.errors import InvalidName
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.stores.local import LocalStore
from laminar_dagster.stores.nested import NestedStore
from laminar_dagster.testing.memory_store import MemoryStore
from laminar_dagster.testing.store_contract import ObjectStoreContract


class TestNestedStore(ObjectStoreContract):
    large = 1000

    @pytest.fixture
    def store(self) -> ObjectStore:
        return NestedStore(MemoryStore(), "branches/fix/")

    @pytest.fixture
    def sibling(self, store: NestedStore) -> ObjectStore:
        return NestedStore(store.inner, store.folder)


def test_it_sees_and_removes_nothing_beyond_its_folder(tmp_path: Path) -> None:
    around = LocalStore(tmp_path)
    for key in ("epochs/1", "branches/fix/epochs/1", "branches/fix2/epochs/1"):
        around.create(key, key.encode())
    nested = NestedStore(around, "branches/fix/")
    assert [info.key for info in nested.list("")] == ["epochs/1"]
    assert [*nested.list_folders("")] == ["epochs"]
    assert nested.read("epochs/1") == b"branches/fix/epochs/1"
    nested.delete([info.key for info in nested.list("")])
    assert [info.key for info in around.list("")] == ["branches/fix2/epochs/1", "epochs/1"]
    with pytest.raises(InvalidName):
        nested.read("../fix2/epochs/1")
    with pytest.raises(InvalidName):
        NestedStore(around, "branches/fix")


def test_its_address_is_the_folders(tmp_path: Path) -> None:
    nested = NestedStore(LocalStore(tmp_path), "branches/fix/")
    assert nested.url == (tmp_path / "branches" / "fix").as_uri()
