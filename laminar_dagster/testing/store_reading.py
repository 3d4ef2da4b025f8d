"""What the contract of ``ObjectStore`` says about reading. See `store_contract`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

import pytest

from laminar_dagster.core.errors import (
    InvalidName,
    MalformedDocument,
    ObjectMissing,
)
from laminar_dagster.core.ports import ObjectStore


class ReadingContract:
    """``read`` in all its forms, ``list`` and ``list_folders``."""

    many: ClassVar[int]

    # --- read -------------------------------------------------------------------------------------

    def test_what_is_missing_is_named(self, store: ObjectStore, tmp_path: Path) -> None:
        """``ObjectMissing`` names the key, also when objects with similar keys exist."""
        store.put("folder/object", b"x")
        for key in ("missing", "folder", "folder/obj", "folder/object2"):
            reads: Sequence[Callable[[str], object]] = (
                store.read,
                lambda key: store.read_range(key, 0, 1),
                lambda key: store.read_range(key, 0, 0),
                lambda key: store.download(key, tmp_path / "target"),
            )
            for read in reads:
                with pytest.raises(ObjectMissing) as caught:
                    read(key)
                assert caught.value.key == key
            assert store.read_versioned(key) is None
        assert [*tmp_path.iterdir()] == []

    def test_an_object_over_the_limit_is_refused(self, store: ObjectStore) -> None:
        """The limit is inclusive."""
        store.put("a", b"12345")
        store.put("empty", b"")
        assert store.read("a", limit=5) == b"12345"
        assert store.read("empty", limit=0) == b""
        found = store.read_versioned("a", limit=5)
        assert found is not None and found.data == b"12345"
        for limit in (0, 4):
            with pytest.raises(MalformedDocument):
                store.read("a", limit=limit)
            with pytest.raises(MalformedDocument):
                store.read_versioned("a", limit=limit)
        assert store.read_versioned("missing", limit=0) is None

    def test_ranges_are_cut_at_the_end(self, store: ObjectStore) -> None:
        """Fewer bytes at the end, none past it."""
        store.put("a", b"12345")
        for start in range(7):
            for length in range(7):
                wanted = b"12345"[start : start + length]
                assert store.read_range("a", start, length) == wanted, (start, length)

    def test_ranges_of_an_empty_object_are_empty(self, store: ObjectStore) -> None:
        """The object exists, so this is no ``ObjectMissing``."""
        store.put("a", b"")
        for start, length in ((0, 0), (0, 1), (1, 0), (1, 1)):
            assert store.read_range("a", start, length) == b""

    def test_a_range_that_is_none_is_refused(self, store: ObjectStore) -> None:
        """Stores disagree about negative offsets, so they are refused."""
        store.put("a", b"12345")
        for start, length in ((-1, 2), (0, -1)):
            with pytest.raises(ValueError):
                store.read_range("a", start, length)

    def test_read_many_keeps_the_order_and_the_errors(self, store: ObjectStore) -> None:
        """A key that cannot be read yields its error, at its place in the order."""
        for number in range(40):
            store.put(f"a/{number}", str(number).encode())
        store.put("large", b"x" * 100)
        numbers = [*range(40)]
        random.Random(2).shuffle(numbers)
        keys = [f"a/{number}" for number in numbers]
        keys[10:10] = ["missing"]
        keys[20:20] = ["large", keys[0]]
        found = [*store.read_many(iter(keys), limit=99)]
        assert [key for key, _ in found] == keys
        for key, value in found:
            if key == "missing":
                assert isinstance(value, ObjectMissing)
            elif key == "large":
                assert isinstance(value, MalformedDocument)
            else:
                assert value == key.removeprefix("a/").encode()
        assert [*store.read_many([])] == []

    def test_read_many_need_not_be_read_to_the_end(self, store: ObjectStore) -> None:
        """Keys are consumed lazily, so an endless iterator is fine."""
        store.put("a", b"x")

        def endless() -> Iterator[str]:
            while True:
                yield "a"

        found = store.read_many(endless())
        assert [next(found) for _ in range(3)] == [("a", b"x")] * 3
        del found
        assert store.read("a") == b"x"

    def test_download(self, store: ObjectStore, tmp_path: Path) -> None:
        """A download creates or replaces its target, and leaves no other file."""
        store.put("a", b"content")
        store.put("empty", b"")
        store.download("a", tmp_path / "file")
        assert (tmp_path / "file").read_bytes() == b"content"
        store.download("empty", tmp_path / "file")
        assert (tmp_path / "file").read_bytes() == b""
        assert [path.name for path in tmp_path.iterdir()] == ["file"]

    # --- list -------------------------------------------------------------------------------------

    def test_a_listing_is_sorted_by_the_bytes_of_the_key(self, store: ObjectStore) -> None:
        """Keys sort by their UTF-8 bytes, with '/' as an ordinary character."""
        keys = ["a/x", "a-b/x", "a.b", "b/c/d", "b/c-d", "b/c.d/e", "b/c0", "é", "z", "Z"]
        # By UTF-16 these two would sort the other way round.
        keys += ["\ufb00", "\U0001d4b3"]
        for key in keys:
            store.put(key, key.encode())
        found = [*store.list("")]
        assert [info.key for info in found] == sorted(keys, key=lambda key: key.encode())
        assert [info.size for info in found] == [len(info.key.encode()) for info in found]

    def test_a_listing_tells_when_an_object_was_written(self, store: ObjectStore) -> None:
        """``modified`` is in UTC; an hour's tolerance covers the two clocks' difference."""
        store.put("a", b"")
        (info,) = store.list("")
        assert info.modified.utcoffset() == timedelta(0)
        assert abs(datetime.now(UTC) - info.modified) < timedelta(hours=1)

    def test_a_prefix_is_compared_by_characters(self, store: ObjectStore) -> None:
        """A prefix may end within a segment; with a final '/', it matches one folder only."""
        keys = ["checkpoints/1/a", "checkpoints/10/a", "checkpoints/_latest", "checkpoints2/1/a"]
        for key in keys:
            store.put(key, b"")
        for prefix in (
            "", "check", "checkpoints", "checkpoints/", "checkpoints/1", "checkpoints/1/",
            "checkpoints/1/a", "checkpoints/1/a/", "checkpoints/1/ab", "checkpoints/2", "other/",
            "checkpoints2/",
        ):  # fmt: skip
            assert keys_of(store, prefix) == [key for key in keys if key.startswith(prefix)]

    def test_a_listing_can_begin_after_a_key(self, store: ObjectStore) -> None:
        """``start_after`` is exclusive, and need not be an existing key."""
        keys = ["a/1", "a/2", "b-c", "b/1/x", "b/1/y", "b/2/x", "c"]
        for key in keys:
            store.put(key, b"")
        for prefix in ("", "a/", "b", "b/", "b/1/"):
            for after in ("", "0", "a", "a/", "a/1", "b", "b/", "b/1/", "b/1/x", "b/1/y", "d"):
                wanted = [key for key in keys if key.startswith(prefix) and key > after]
                assert keys_of(store, prefix, after) == wanted

    def test_folders_are_listed_by_name(self, store: ObjectStore) -> None:
        """Only direct subfolders that hold objects, each once, in the order of the keys."""
        for key in ("f/a/1", "f/a/2/3", "f/a-b/1", "f/object", "f/é/1", "f2/c/1", "g"):
            store.put(key, b"")
        assert [*store.list_folders("f/")] == ["a-b", "a", "é"]
        assert [*store.list_folders("f/a/")] == ["2"]
        assert [*store.list_folders("missing/")] == []
        assert [*store.list_folders("")] == ["f", "f2"]
        store.delete(["f/a/1", "f/a/2/3"])
        assert [*store.list_folders("f/")] == ["a-b", "é"]
        with pytest.raises(InvalidName):
            [*store.list_folders("f")]

    def test_many_objects_are_listed_and_deleted(self, store: ObjectStore) -> None:
        """More objects than fit into one request."""
        keys = [f"many/{number:05d}/x" for number in range(self.many)]
        with ThreadPoolExecutor(16) as pool:
            for _ in pool.map(lambda key: store.put(key, b""), keys):
                pass
        store.put("other", b"")
        assert keys_of(store, "many/") == keys
        assert keys_of(store, "many/", keys[9]) == keys[10:]
        assert [*store.list_folders("many/")] == [key.split("/")[1] for key in keys]
        store.delete(keys)
        assert keys_of(store, "") == ["other"]


def keys_of(store: ObjectStore, prefix: str, start_after: str = "") -> list[str]:
    """The keys of a listing."""
    return [info.key for info in store.list(prefix, start_after=start_after)]
