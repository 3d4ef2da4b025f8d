"""The store that fails on schedule fails as it says."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from laminar_dagster.core.errors import ObjectExists, StoreUnavailable, WriteOutcomeUnknown
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.testing.crash import Crash
from laminar_dagster.testing.faulty_store import Fault, FaultyStore
from laminar_dagster.testing.memory_store import MemoryStore


@pytest.fixture
def inner() -> MemoryStore:
    return MemoryStore()


def keys(store: ObjectStore) -> list[str]:
    return [info.key for info in store.list("")]


def test_without_faults_it_is_the_store_behind(inner: MemoryStore, tmp_path: Path) -> None:
    store = FaultyStore(inner, {})
    store.probe()
    store.create("f/a", b"1")
    found = store.read_versioned("f/a")
    assert found is not None
    store.replace("f/a", b"2", found.version)
    store.put("f/b", b"3")
    store.download("f/b", tmp_path / "b")
    store.put_file("c", tmp_path / "b")
    assert store.read("f/a") == inner.read("f/a") == b"2"
    assert store.read_range("c", 0, 1) == b"3"
    assert [*store.read_many(["f/a", "c"])] == [("f/a", b"2"), ("c", b"3")]
    assert keys(store) == ["c", "f/a", "f/b"]
    assert [*store.list_folders("")] == ["f"]
    store.delete(["f/a"])
    assert store.sweep(datetime.now(UTC)) == 0
    assert keys(inner) == ["c", "f/b"]
    assert store.url == inner.url
    assert store.operations[:3] == [("probe", ""), ("create", "f/a"), ("read", "f/a")]


@pytest.mark.parametrize(("fault", "happened"), [("CRASH_BEFORE", False), ("CRASH_AFTER", True)])
def test_a_crash_ends_everything(inner: MemoryStore, fault: str, happened: bool) -> None:
    store = FaultyStore(inner, {2: Fault[fault]})
    store.create("a", b"1")
    with pytest.raises(Crash):
        try:
            store.create("b", b"1")
        finally:
            # As a clean-up in the code under test would.
            store.delete(["a"])
    assert store.is_dead
    assert keys(inner) == (["a", "b"] if happened else ["a"])
    with pytest.raises(Crash):
        store.read("a")
    assert not issubclass(Crash, Exception)


@pytest.mark.parametrize("fault", [Fault.AWAY, Fault.LOST_REQUEST, Fault.LOST_REPLY])
@pytest.mark.parametrize("way", ["create", "replace", "put", "delete", "read"])
def test_an_operation_without_a_reply(inner: MemoryStore, fault: Fault, way: str) -> None:
    inner.put("there", b"0")
    store = FaultyStore(inner, {1: fault})
    conditional = way in ("create", "replace") and fault is not Fault.AWAY
    with pytest.raises(WriteOutcomeUnknown if conditional else StoreUnavailable):
        match way:
            case "create":
                store.create("new", b"1")
            case "replace":
                store.replace("new", b"1", None)
            case "put":
                store.put("new", b"1")
            case "delete":
                store.delete(["there"])
            case _:
                store.read("there")
    happened = fault is Fault.LOST_REPLY
    assert (inner.read_versioned("new") is not None) == (
        happened and way in ("create", "replace", "put")
    )
    assert (inner.read_versioned("there") is None) == (happened and way == "delete")
    # One fault strikes once.
    store.create("new", b"1")
    assert store.read("new") == b"1"


def test_a_lost_reply_hides_a_refusal(inner: MemoryStore) -> None:
    inner.put("a", b"theirs")
    store = FaultyStore(inner, {1: Fault.LOST_REPLY, 3: Fault.CRASH_AFTER})
    with pytest.raises(WriteOutcomeUnknown):
        store.create("a", b"mine")
    with pytest.raises(ObjectExists):
        store.create("a", b"mine")
    with pytest.raises(Crash):
        store.create("a", b"mine")
    assert inner.read("a") == b"theirs"


def test_a_late_write_arrives_after_it_was_not_seen(inner: MemoryStore) -> None:
    store = FaultyStore(inner, {1: Fault.LATE_WRITE})
    with pytest.raises(WriteOutcomeUnknown):
        store.create("a", b"late")
    assert store.read_versioned("a") is None
    assert store.read("a") == b"late"


def test_a_late_write_whose_condition_no_longer_holds_changes_nothing(inner: MemoryStore) -> None:
    store = FaultyStore(inner, {1: Fault.LATE_WRITE})
    with pytest.raises(WriteOutcomeUnknown):
        store.create("a", b"late")
    store.create("a", b"retried")
    assert store.read("a") == b"retried"


def test_a_late_write_survives_its_sender(inner: MemoryStore) -> None:
    store = FaultyStore(inner, {1: Fault.LATE_WRITE})
    with pytest.raises(WriteOutcomeUnknown):
        store.create("a", b"late")
    assert inner.read_versioned("a") is None
    store.land()
    store.land()
    assert inner.read("a") == b"late"


def test_listings_can_be_stale(inner: MemoryStore) -> None:
    inner.put("f/old", b"")
    store = FaultyStore(inner, dict.fromkeys((1, 3, 4, 6), Fault.STALE_LISTING))
    assert keys(store) == ["f/old"]
    store.put("g/new", b"")
    assert keys(store) == ["f/old"]
    assert [*store.list_folders("")] == ["f"]
    store.delete(["f/old"])
    assert [info.key for info in store.list("", start_after="f/old")] == ["g/new"]
    assert keys(store) == ["g/new"]


def test_listings_can_hold_everything_twice(inner: MemoryStore) -> None:
    inner.put("f/a", b"")
    store = FaultyStore(inner, {1: Fault.DUPLICATED_LISTING, 2: Fault.DUPLICATED_LISTING})
    assert keys(store) == ["f/a", "f/a"]
    assert [*store.list_folders("")] == ["f", "f"]
    assert keys(store) == ["f/a"]
