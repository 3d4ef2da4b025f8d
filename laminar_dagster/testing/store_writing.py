"""What the contract of ``ObjectStore`` says about writing. See `store_contract`."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import pytest

from laminar_dagster.core.errors import (
    ObjectExists,
)
from laminar_dagster.core.ports import ObjectStore


class WritingContract:
    """``create``, ``replace``, ``put`` and ``put_file``."""

    large: ClassVar[int]
    racers: ClassVar[int]

    # --- create -----------------------------------------------------------------------------------

    def test_what_was_created_can_be_read(self, store: ObjectStore, sibling: ObjectStore) -> None:
        """This instance and another one read the same bytes back."""
        store.create("a/b.json", b"bytes")
        assert store.read("a/b.json") == b"bytes"
        assert sibling.read("a/b.json") == b"bytes"

    def test_creating_again_with_the_same_bytes_succeeds(
        self, store: ObjectStore, sibling: ObjectStore
    ) -> None:
        """Create is idempotent: the conflict may be with the writer's own earlier request."""
        store.create("a", b"mine")
        before = store.read_versioned("a")
        store.create("a", b"mine")
        sibling.create("a", b"mine")
        assert store.read_versioned("a") == before

    def test_creating_again_with_other_bytes_is_refused(
        self, store: ObjectStore, sibling: ObjectStore
    ) -> None:
        """Another writer's object is left unchanged."""
        store.create("a", b"first")
        for late in (store, sibling):
            with pytest.raises(ObjectExists) as caught:
                late.create("a", b"second")
            assert caught.value.key == "a"
        assert store.read("a") == b"first"

    def test_a_prefix_of_the_bytes_is_not_the_same_bytes(self, store: ObjectStore) -> None:
        """The idempotency check compares all bytes."""
        store.create("a", b"first and more")
        with pytest.raises(ObjectExists):
            store.create("a", b"first")
        with pytest.raises(ObjectExists):
            store.create("a", b"first and more and more")
        with pytest.raises(ObjectExists):
            store.create("a", b"")

    def test_one_of_several_racing_creates_succeeds(
        self, store: ObjectStore, sibling: ObjectStore
    ) -> None:
        """Exactly one writer wins, and its bytes are stored."""
        for turn in range(5):
            key = f"race/{turn}"

            def create(racer: ObjectStore, data: bytes, key: str = key) -> None:
                racer.create(key, data)

            winners = self._race(store, sibling, create)
            assert len(winners) == 1
            assert store.read(key) == winners[0]

    def test_an_object_can_be_created_again_after_its_deletion(self, store: ObjectStore) -> None:
        """After a delete, a conditional create succeeds again."""
        store.create("a/b", b"first")
        store.delete(["a/b"])
        store.create("a/b", b"second")
        assert store.read("a/b") == b"second"

    # --- replace ----------------------------------------------------------------------------------

    def test_replace_moves_an_object_forward(
        self, store: ObjectStore, sibling: ObjectStore
    ) -> None:
        """Each replace gives a new version, which other instances can read and replace."""
        store.replace("a", b"1", None)
        first = sibling.read_versioned("a")
        assert first is not None and first.data == b"1"
        sibling.replace("a", b"2", first.version)
        second = store.read_versioned("a")
        assert second is not None and second.data == b"2"
        assert second.version != first.version

    def test_a_stale_replace_is_refused(self, store: ObjectStore, sibling: ObjectStore) -> None:
        """The version has moved on."""
        store.replace("a", b"1", None)
        first = store.read_versioned("a")
        assert first is not None
        sibling.replace("a", b"2", first.version)
        with pytest.raises(ObjectExists):
            store.replace("a", b"3", first.version)
        assert store.read("a") == b"2"

    def test_replacing_nothing_needs_nothing_to_be_there(self, store: ObjectStore) -> None:
        """With ``expected=None``, a replace is a create."""
        store.replace("a", b"1", None)
        with pytest.raises(ObjectExists):
            store.replace("a", b"2", None)
        assert store.read("a") == b"1"

    def test_replacing_an_object_that_is_gone_is_refused(self, store: ObjectStore) -> None:
        """A replace does not bring an object back."""
        store.replace("a/b", b"1", None)
        first = store.read_versioned("a/b")
        assert first is not None
        store.delete(["a/b"])
        with pytest.raises(ObjectExists):
            store.replace("a/b", b"2", first.version)
        assert store.read_versioned("a/b") is None

    def test_replacing_again_with_the_same_bytes_succeeds(self, store: ObjectStore) -> None:
        """Idempotent, although the expected version is the old one by then."""
        store.replace("a", b"1", None)
        store.replace("a", b"1", None)
        first = store.read_versioned("a")
        assert first is not None
        store.replace("a", b"2", first.version)
        store.replace("a", b"2", first.version)
        assert store.read("a") == b"2"

    def test_one_of_several_racing_replaces_succeeds(
        self, store: ObjectStore, sibling: ObjectStore
    ) -> None:
        """When all expect no object, and when all expect the same version."""
        expected: str | None = None
        for _ in range(5):

            def replace(racer: ObjectStore, data: bytes, expected: str | None = expected) -> None:
                racer.replace("a", data, expected)

            winners = self._race(store, sibling, replace)
            found = store.read_versioned("a")
            assert found is not None
            assert winners == [found.data]
            expected = found.version

    def test_no_update_of_racing_replaces_is_lost(
        self, store: ObjectStore, sibling: ObjectStore
    ) -> None:
        """A counter that racing writers add to ends at the number of their successes."""
        store.create("n", b"0 start")

        def add(name: int) -> int:
            racer = (store, sibling)[name % 2]
            wins = 0
            for turn in range(10):
                found = racer.read_versioned("n")
                assert found is not None
                count = int(found.data.split()[0])
                try:
                    racer.replace("n", f"{count + 1} {name}.{turn}".encode(), found.version)
                    wins += 1
                except ObjectExists:
                    pass
            return wins

        with ThreadPoolExecutor(self.racers) as pool:
            wins = sum(pool.map(add, range(self.racers)))
        assert wins > 0
        assert int(store.read("n").split()[0]) == wins

    # --- put --------------------------------------------------------------------------------------

    @pytest.mark.parametrize("data", [b"", b"x", bytes(range(256))])
    def test_put_takes_any_bytes(self, store: ObjectStore, data: bytes) -> None:
        """Empty bytes and a ``memoryview`` too."""
        store.put("a/bytes", data)
        store.put("a/view", memoryview(data))
        assert store.read("a/bytes") == store.read("a/view") == data

    def test_put_overwrites(self, store: ObjectStore) -> None:
        """``put`` is unconditional."""
        store.put("a", b"a long first version")
        store.put("a", b"second")
        assert store.read("a") == b"second"

    def test_put_file(self, store: ObjectStore, tmp_path: Path) -> None:
        """A file becomes an object and stays where it is."""
        path = tmp_path / "file"
        path.write_bytes(b"content")
        store.put_file("a", path)
        store.put_file("again", path)
        assert store.read("a") == store.read("again") == b"content"
        assert path.read_bytes() == b"content"

    def test_a_large_object_makes_the_round_trip(self, store: ObjectStore, tmp_path: Path) -> None:
        """Through every method that writes or reads, multipart or not."""
        data = random.Random(1).randbytes(self.large)
        source, target = tmp_path / "source", tmp_path / "target"
        source.write_bytes(data)
        store.create("created", data)
        store.put("put", memoryview(data))
        store.put_file("file", source)
        for key in ("created", "put", "file"):
            # Not `assert a == b`: explaining the difference of two such objects takes minutes.
            assert (store.read(key) == data) is True
            found = store.read_versioned(key)
            assert found is not None and (found.data == data) is True
            store.download(key, target)
            assert (target.read_bytes() == data) is True
        assert store.read_range("put", self.large - 3, 10) == data[-3:]
        assert [info.size for info in store.list("")] == [self.large] * 3
        store.create("created", data)
        with pytest.raises(ObjectExists):
            store.create("created", data[:-1] + bytes([data[-1] ^ 1]))

    def _race(
        self,
        store: ObjectStore,
        sibling: ObjectStore,
        write: Callable[[ObjectStore, bytes], None],
    ) -> list[bytes]:
        """Let writers with different bytes write concurrently; returns the winners' bytes."""
        start = threading.Barrier(self.racers)

        def run(name: int) -> bytes | None:
            data = f"writer {name} {random.random()}".encode()
            start.wait()
            try:
                write((store, sibling)[name % 2], data)
            except ObjectExists:
                return None
            return data

        with ThreadPoolExecutor(self.racers) as pool:
            results = [*pool.map(run, range(self.racers))]
        return [data for data in results if data is not None]
