"""The contract of ``ObjectStore`` as tests. Subclass it to check an adapter.

::

    class TestMyStore(ObjectStoreContract):
        @pytest.fixture
        def store(self) -> ObjectStore: ...     # on an empty place

        @pytest.fixture
        def sibling(self, store) -> ObjectStore: ...     # another instance on the same place
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar, Final

import pytest

from laminar_dagster.core.errors import (
    InvalidName,
)
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.testing.store_reading import ReadingContract, keys_of
from laminar_dagster.testing.store_writing import WritingContract

_BAD_KEYS: Final = (
    "",
    "/",
    "/etc/passwd",
    "..",
    "../outside",
    "a/../../outside",
    "a/..",
    "a/./b",
    "a//b",
    "a/",
    "a\\..\\b",
    "a\0b",
    "a\nb",
    ".hidden",
    "a/.hidden",
)


class ObjectStoreContract(WritingContract, ReadingContract):
    """Tests that every object store must pass.

    Attributes:
        large: The size of an object that the store writes in parts and reads in ranges.
        many: More objects than the store lists in one request.
        racers: How many writers race for one object.
    """

    large: ClassVar[int] = 20 * 1024 * 1024 + 7
    many: ClassVar[int] = 1001
    racers: ClassVar[int] = 8

    @pytest.fixture
    def store(self) -> ObjectStore:
        """A store on an empty place that no other test uses."""
        raise NotImplementedError("a subclass provides the store")

    @pytest.fixture
    def sibling(self) -> ObjectStore:
        """A second store on the same place, which shares nothing else with the first."""
        raise NotImplementedError("a subclass provides the sibling")

    # --- delete, sweep, probe ---------------------------------------------------------------------

    def test_delete_removes_its_keys_and_no_others(self, store: ObjectStore) -> None:
        """A delete is idempotent, and a key does not match as a prefix of others."""
        for key in ("a/b", "a/b2", "a/c/d", "e/f/g", "h"):
            store.put(key, b"")
        store.delete(["a/b", "e/f/g", "missing", "a/c", "h/below", "a/b"])
        assert keys_of(store, "") == ["a/b2", "a/c/d", "h"]
        store.delete(["a/b"])
        store.delete([])
        assert keys_of(store, "") == ["a/b2", "a/c/d", "h"]
        assert [*store.list_folders("")] == ["a"]

    def test_racing_writes_and_deletes_in_one_folder(
        self, store: ObjectStore, sibling: ObjectStore
    ) -> None:
        """A folder that empties and fills again loses no object."""

        def work(name: int) -> None:
            racer = (store, sibling)[name % 2]
            for turn in range(15):
                key = f"f/g/h/{name}-{turn}"
                racer.create(key, key.encode())
                assert racer.read(key) == key.encode()
                racer.delete([key])

        with ThreadPoolExecutor(self.racers) as pool:
            for _ in pool.map(work, range(self.racers)):
                pass
        assert keys_of(store, "") == []

    def test_sweep_leaves_finished_objects_alone(self, store: ObjectStore) -> None:
        """``sweep`` removes no finished object, whatever its age."""
        store.create("a/created", b"1")
        store.replace("a/replaced", b"1", None)
        store.put("a/put", b"1")
        before = [*store.list("")]
        assert store.sweep(datetime.now(UTC) + timedelta(days=1)) == 0
        assert [*store.list("")] == before

    def test_probe_leaves_nothing_behind(self, store: ObjectStore) -> None:
        """``probe`` deletes its test object, and can be repeated."""
        store.probe()
        assert keys_of(store, "") == []
        store.put("a", b"")
        store.probe()
        store.probe()
        assert keys_of(store, "") == ["a"]

    # --- all methods ------------------------------------------------------------------------------

    def test_a_key_that_could_leave_the_base_is_refused(
        self, store: ObjectStore, tmp_path: Path
    ) -> None:
        """Every method that takes a key refuses a bad one before it changes anything."""
        source, target = tmp_path / "source", tmp_path / "target"
        source.write_bytes(b"")
        calls: Sequence[Callable[[str], object]] = (
            lambda key: store.create(key, b""),
            lambda key: store.replace(key, b"", None),
            lambda key: store.replace(key, b"", "version"),
            lambda key: store.put(key, b""),
            lambda key: store.put_file(key, source),
            lambda key: store.read(key),
            lambda key: store.read_versioned(key),
            lambda key: store.read_range(key, 0, 1),
            lambda key: store.download(key, target),
            lambda key: store.delete([key]),
            lambda key: store.delete(["kept", key]),
        )
        store.put("kept", b"")
        for key in _BAD_KEYS:
            for call in calls:
                with pytest.raises(InvalidName):
                    call(key)
            ((_, error),) = store.read_many([key])
            assert isinstance(error, InvalidName)
        assert keys_of(store, "") == ["kept"]

    def test_a_prefix_that_could_leave_the_base_is_refused(self, store: ObjectStore) -> None:
        """Nothing outside the base is ever listed."""
        for prefix in ("/", "..", "../", "a/../", "a//", "\0", ".hidden"):
            with pytest.raises(InvalidName):
                [*store.list(prefix)]
            with pytest.raises(InvalidName):
                [*store.list_folders(prefix)]

    def test_names_of_any_script(self, store: ObjectStore, sibling: ObjectStore) -> None:
        """Identifiers may have letters of any script, and so may keys."""
        keys = ["operators/größe/0.snap", "operators/合計/0.snap", "operators/сумма/0.snap"]
        for key in keys:
            store.create(key, key.encode())
        assert keys_of(sibling, "operators/") == sorted(keys)
        for key in keys:
            assert sibling.read(key) == key.encode()
        assert keys_of(sibling, "operators/合") == [keys[1]]
        sibling.delete(keys)
        assert keys_of(store, "") == []

    def test_a_store_pickles(self, store: ObjectStore) -> None:
        """Before and after its first use; the copy opens the same place."""
        early: ObjectStore = pickle.loads(pickle.dumps(store))
        early.create("a", b"x")
        late: ObjectStore = pickle.loads(pickle.dumps(store))
        assert late.read("a") == store.read("a") == b"x"
        assert early.url == late.url == store.url

    def test_a_store_is_safe_to_share_between_threads(self, store: ObjectStore) -> None:
        """Concurrent writes and reads of different keys do not mix."""

        def work(name: int) -> None:
            for turn in range(10):
                data = f"{name}/{turn}".encode() * 50
                store.put(f"t/{name}-{turn}", data)
                assert store.read(f"t/{name}-{turn}") == data

        with ThreadPoolExecutor(self.racers) as pool:
            for _ in pool.map(work, range(self.racers)):
                pass
        assert len(keys_of(store, "t/")) == 10 * self.racers
