"""The probe finds every way in which a store can take a condition lightly."""

from __future__ import annotations

import pytest

from laminar_dagster.core.errors import ConditionsIgnored, ObjectExists, StoreUnavailable
from laminar_dagster.core.ports import ObjectStore, VersionedObject
from laminar_dagster.stores.probe import prove_conditions
from laminar_dagster.testing.faulty_store import Fault, FaultyStore
from laminar_dagster.testing.memory_store import MemoryStore


class LastWriterWins(MemoryStore):
    def create(self, key: str, data: bytes) -> None:
        self.put(key, data)


class ReplacesAnything(MemoryStore):
    def replace(self, key: str, data: bytes, expected: str | None) -> None:
        self.put(key, data)


class ReplacesWhatIsThere(MemoryStore):
    def replace(self, key: str, data: bytes, expected: str | None) -> None:
        if expected is not None and self.read_versioned(key) is not None:
            self.put(key, data)
        else:
            super().replace(key, data, expected)


class ReplacesNothing(MemoryStore):
    def replace(self, key: str, data: bytes, expected: str | None) -> None:
        if expected is not None:
            raise ObjectExists(key)
        super().replace(key, data, expected)


class CreatesNothing(MemoryStore):
    def create(self, key: str, data: bytes) -> None:
        raise ObjectExists(key)


class ForgetsWrites(MemoryStore):
    def read_versioned(self, key: str, *, limit: int | None = None) -> VersionedObject | None:
        return None


class ServesOldVersions(MemoryStore):
    def read_versioned(self, key: str, *, limit: int | None = None) -> VersionedObject | None:
        found = super().read_versioned(key)
        return VersionedObject(b"first", found.version) if found else None


@pytest.mark.parametrize(
    ("store", "reason"),
    [
        (LastWriterWins(), "second conditional create went through"),
        (ReplacesAnything(), "does not exist was replaced"),
        (ReplacesWhatIsThere(), "stale version went through"),
        (ReplacesNothing(), "replace of the current version was refused"),
        (CreatesNothing(), "could not be created"),
        (ForgetsWrites(), "does not read as it was written"),
        (ServesOldVersions(), "does not read as it was replaced"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_store_that_lies_is_refused(store: ObjectStore, reason: str) -> None:
    with pytest.raises(ConditionsIgnored, match=reason):
        prove_conditions(store)
    assert [*store.list("")] == []


def test_an_honest_store_passes_and_keeps_nothing() -> None:
    store = MemoryStore()
    prove_conditions(store)
    assert [*store.list("")] == []


@pytest.mark.parametrize("operation", range(1, 9))
def test_a_store_that_goes_away_is_not_called_a_liar(operation: int) -> None:
    store = MemoryStore()
    with pytest.raises(StoreUnavailable):
        prove_conditions(FaultyStore(store, {operation: Fault.AWAY}))
    assert len([*store.list("")]) == (1 if operation == 8 else 0)
