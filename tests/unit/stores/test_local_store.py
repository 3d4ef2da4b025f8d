"""The local store: the contract, and what it does about a disk and a power cut."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn

import pytest

from laminar_dagster.core.errors import (
    AuthFailed,
    ConditionsIgnored,
    InvalidName,
    ObjectExists,
    ObjectMissing,
    StoreUnavailable,
    WriteOutcomeUnknown,
)
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.stores.local import LocalStore
from laminar_dagster.testing.store_contract import ObjectStoreContract

LATER = timedelta(days=1)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(root)


class TestLocalStore(ObjectStoreContract):
    @pytest.fixture
    def store(self, tmp_path_factory: pytest.TempPathFactory) -> ObjectStore:
        return LocalStore(tmp_path_factory.mktemp("local") / "root")

    @pytest.fixture
    def sibling(self, store: ObjectStore) -> ObjectStore:
        return LocalStore(Path(store.url.removeprefix("file://")))


class Recorder:
    """What the store asks of the system, in order, with names instead of descriptors."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.events: list[tuple[str, str]] = []
        fsync, link, rename, unlink = os.fsync, os.link, os.rename, os.unlink

        def recorded_fsync(descriptor: int) -> None:
            self.note("fsync", os.readlink(f"/proc/self/fd/{descriptor}"))
            fsync(descriptor)

        def recorded_link(source: Path, target: Path) -> None:
            link(source, target)
            self.note("link", target)

        def recorded_rename(source: Path, target: Path) -> None:
            rename(source, target)
            self.note("rename", target)

        def recorded_unlink(path: Path) -> None:
            unlink(path)
            self.note("unlink", path)

        monkeypatch.setattr(os, "fsync", recorded_fsync)
        monkeypatch.setattr(os, "link", recorded_link)
        monkeypatch.setattr(os, "rename", recorded_rename)
        monkeypatch.setattr(os, "unlink", recorded_unlink)

    def note(self, event: str, path: Path | str) -> None:
        name = os.path.relpath(path, self.root)
        self.events.append((event, re.sub(r"[0-9a-f]{32}", "*", name)))


# --- durability -----------------------------------------------------------------------------------


def test_create_syncs_the_file_before_and_every_folder_after_it_has_its_name(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(root, monkeypatch)
    store.create("a/b/c", b"x")
    assert recorder.events == [
        ("fsync", ".tmp/*"),
        ("link", "a/b/c"),
        ("fsync", "a/b"),
        ("fsync", "a"),
        ("fsync", "."),
        ("unlink", ".tmp/*"),
    ]


def test_replace_syncs_in_the_same_order(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("a/b", b"1")
    found = store.read_versioned("a/b")
    assert found is not None
    recorder = Recorder(root, monkeypatch)
    store.replace("a/b", b"2", found.version)
    assert recorder.events == [
        ("fsync", ".tmp/*"),
        ("link", ".tmp/*.second"),
        ("rename", "a/b"),
        ("fsync", "a"),
        ("fsync", "."),
        ("unlink", ".tmp/*"),
    ]


def test_put_syncs_in_the_same_order(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(root, monkeypatch)
    store.put("a/b", b"x")
    assert recorder.events == [
        ("fsync", ".tmp/*"),
        ("rename", "a/b"),
        ("fsync", "a"),
        ("fsync", "."),
    ]


def test_a_new_root_is_synced_before_anything_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(tmp_path, monkeypatch)
    LocalStore(tmp_path / "x" / "y")
    assert recorder.events[:2] == [("fsync", "x"), ("fsync", ".")]
    assert (tmp_path / "x" / "y" / ".tmp").is_dir()


@pytest.mark.parametrize("way", ["create", "read", "list", "replace"])
def test_a_name_that_a_killed_writer_did_not_sync_is_synced_by_whoever_finds_it(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    store.create("a/b", b"x")
    found = store.read_versioned("a/b")
    assert found is not None
    # As after kill -9 between the link and the unlink of the temporary name.
    os.link(root / "a/b", root / ".tmp" / ("0" * 32))
    recorder = Recorder(root, monkeypatch)
    if way == "create":
        store.create("a/b", b"x")
    elif way == "read":
        store.read("a/b")
    elif way == "list":
        assert [info.key for info in store.list("")] == ["a/b"]
    else:
        with pytest.raises(ObjectExists):
            store.replace("a/b", b"y", "another version")
    assert [("fsync", "a"), ("fsync", ".")] == [
        event for event in recorder.events if event[1] in ("a", ".")
    ][:2]


def test_a_name_that_was_synced_is_not_synced_again_by_readers(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("a/b", b"x")
    store.replace("a/b", b"y", hash_of(store, "a/b"))
    recorder = Recorder(root, monkeypatch)
    store.read("a/b")
    assert [info.key for info in store.list("")] == ["a/b"]
    assert recorder.events == []


@pytest.mark.parametrize("way", ["create", "replace"])
def test_a_name_that_cannot_be_synced_is_an_unknown_outcome(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    store.create("a/old", b"x")
    version = hash_of(store, "a/old")
    fsync = os.fsync

    def failing(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}") == str(root / "a"):
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(WriteOutcomeUnknown, match="Input/output error"):
        if way == "create":
            store.create("a/new", b"y")
        else:
            store.replace("a/old", b"y", version)
    # It stays marked: no reader takes it for durable as long as that cannot be had.
    with pytest.raises(StoreUnavailable):
        store.read("a/new" if way == "create" else "a/old")
    monkeypatch.undo()
    assert store.read("a/new" if way == "create" else "a/old") == b"y"


def test_sweeping_a_killed_writers_mark_syncs_first(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("a/b", b"x")
    store.create("c/d", b"x")
    os.link(root / "a/b", root / ".tmp" / ("0" * 32))
    recorder = Recorder(root, monkeypatch)
    assert store.sweep(datetime.now(UTC) + LATER) == 1
    assert recorder.events == [("fsync", "a"), ("fsync", "."), ("unlink", ".tmp/*")]
    assert store.read("a/b") == b"x"


# --- what a crash leaves --------------------------------------------------------------------------


def test_unfinished_writes_are_not_listed_and_are_swept_when_they_are_old(
    store: LocalStore, root: Path
) -> None:
    store.put("a", b"")
    old, new = root / ".tmp" / "old", root / ".tmp" / "new"
    old.write_bytes(b"half")
    new.write_bytes(b"half")
    week_ago = datetime.now(UTC) - timedelta(days=7)
    os.utime(old, (week_ago.timestamp(), week_ago.timestamp()))
    assert [info.key for info in store.list("")] == ["a"]
    assert [*store.list_folders("")] == []
    assert store.sweep(datetime.now(UTC) - timedelta(days=1)) == 1
    assert (old.exists(), new.exists()) == (False, True)


def test_a_killed_probe_is_swept(store: LocalStore, root: Path) -> None:
    store.put("_probe/0123", b"")
    store.put("kept", b"")
    assert store.sweep(datetime.now(UTC) - LATER) == 0
    assert store.sweep(datetime.now(UTC) + LATER) == 1
    assert [info.key for info in store.list("")] == ["kept"]


def test_a_folder_without_objects_is_not_listed(store: LocalStore, root: Path) -> None:
    (root / "checkpoints" / "killed" / "operators").mkdir(parents=True)
    store.put("checkpoints/alive/x", b"")
    assert [*store.list_folders("checkpoints/")] == ["alive"]


WRITER = """
    import sys
    from pathlib import Path
    from laminar_dagster.stores.local import LocalStore
    store = LocalStore(Path(sys.argv[1]))
    name, number = sys.argv[2], 0
    while True:
        key = f"epochs/{name}-{number}/plan.json"
        data = (key + " ").encode() * 5000
        store.create(key, data)
        latest = store.read_versioned("checkpoints/_latest")
        store.replace("checkpoints/_latest", data, latest and latest.version)
        print(key, flush=True)
        number += 1
"""


def test_kill_9_leaves_whole_objects_and_everything_that_was_reported(
    store: LocalStore, root: Path
) -> None:
    reported: set[str] = set()
    for name in range(8):
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITER), str(root), str(name)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        with child, child.stdout as lines:
            for _ in range(name + 1):
                reported.add(lines.readline().strip())
            child.send_signal(signal.SIGKILL)
            reported.update(line.strip() for line in lines if line.endswith("\n"))
        assert child.returncode == -signal.SIGKILL
        found = {info.key for info in store.list("epochs/")}
        assert reported <= found
        for key in found:
            assert store.read(key) == (key + " ").encode() * 5000
        latest = store.read("checkpoints/_latest").decode().split(" ")[0]
        assert latest in found
    assert len(reported) >= 8
    # A killed process holds no lock.
    store.replace("checkpoints/_latest", b"next", hash_of(store, "checkpoints/_latest"))
    store.sweep(datetime.now(UTC) + LATER)
    assert [*(root / ".tmp").iterdir()] == []


# --- the lock -------------------------------------------------------------------------------------


def test_a_lock_that_is_never_released_is_reported(root: Path) -> None:
    store = LocalStore(root, lock_timeout=0.05)
    store.create("a", b"1")
    holder = LocalStore(root)
    with holder._files.exclusive(), pytest.raises(StoreUnavailable, match="another process"):
        store.replace("a", b"2", hash_of(store, "a"))
    store.replace("a", b"2", hash_of(store, "a"))
    assert store.read("a") == b"2"


def test_a_lock_file_that_is_tidied_away_does_not_let_two_in(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = LocalStore(root), LocalStore(root), LocalStore(root, lock_timeout=0.05)
    acquire = second._files._acquire
    has_opened = threading.Event()
    inside: list[str] = []

    def acquire_and_tell(lock: int, deadline: float) -> None:
        has_opened.set()
        acquire(lock, deadline)

    def wait_for_the_lock() -> None:
        with second._files.exclusive():
            inside.append("second")
            # Whoever comes now finds the lock taken, although the first file is gone.
            with contextlib.suppress(StoreUnavailable), third._files.exclusive():
                inside.append("third")

    monkeypatch.setattr(second._files, "_acquire", acquire_and_tell)
    with first._files.exclusive():
        waiting = threading.Thread(target=wait_for_the_lock)
        waiting.start()
        has_opened.wait()
        (root / ".lock").unlink()
    waiting.join()
    assert inside == ["second"]


def test_a_folder_that_is_removed_under_a_writer_is_made_again(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link
    removed: list[Path] = []

    def remove_first(source: Path, target: Path) -> None:
        if len(removed) < 3 and target.parent.is_dir():
            shutil.rmtree(root / "a")
            removed.append(target)
        link(source, target)

    monkeypatch.setattr(os, "link", remove_first)
    store.create("a/b/c", b"1")
    assert len(removed) == 3
    assert store.read("a/b/c") == b"1"


# --- a disk with problems -------------------------------------------------------------------------


def test_a_missing_root_is_made(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "x" / "y" / "z")
    store.create("a", b"1")
    assert (tmp_path / "x" / "y" / "z" / "a").read_bytes() == b"1"


def test_a_root_that_vanished_is_not_made_again(store: LocalStore, root: Path) -> None:
    store.put("a", b"1")
    again: LocalStore = pickle.loads(pickle.dumps(store))
    shutil.rmtree(root)
    for each in (store, again):
        for call in (
            lambda s: s.create("a/b", b"1"),
            lambda s: s.replace("a", b"1", "version"),
            lambda s: s.put("a", b"1"),
            lambda s: s.read("a"),
            lambda s: s.read_versioned("a"),
            lambda s: [*s.list("")],
            lambda s: [*s.list("checkpoints/")],
            lambda s: [*s.list_folders("")],
            lambda s: s.delete(["a"]),
            lambda s: s.sweep(datetime.now(UTC)),
            lambda s: s.probe(),
        ):
            with pytest.raises(StoreUnavailable, match="is the disk mounted"):
                call(each)
    assert not root.exists()


def test_an_unmounted_disk_is_not_written_to(store: LocalStore, root: Path) -> None:
    shutil.rmtree(root)
    root.mkdir()
    for write in (store.create, store.put):
        with pytest.raises(StoreUnavailable):
            write("a/b", b"1")
    assert [*root.iterdir()] == []


def test_a_full_disk_is_reported_and_leaves_nothing(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    for write in (store.create, store.put):
        with pytest.raises(StoreUnavailable, match="No space left"):
            write("a/b", b"1")
    monkeypatch.undo()
    assert [*store.list("")] == []
    assert [*(root / ".tmp").iterdir()] == []


def test_a_file_system_without_hard_links_is_refused(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(source: Path, target: Path) -> NoReturn:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", unsupported)
    with pytest.raises(ConditionsIgnored, match="hard links"):
        store.create("a/b", b"1")
    with pytest.raises(ConditionsIgnored, match="hard links"):
        store.probe()
    assert [*store.list("")] == []


@pytest.fixture
def powerless() -> Iterator[Path]:
    """A folder of this user, whom permissions bind for the time of the test even if it is root."""
    folder = Path(tempfile.mkdtemp())
    user = os.geteuid()
    nobody = 65534
    if user == 0:
        os.chown(folder, nobody, nobody)
        os.seteuid(nobody)
    try:
        yield folder
    finally:
        os.seteuid(user)
        shutil.rmtree(folder)


def test_a_read_only_root_can_be_read_and_not_written(powerless: Path) -> None:
    root = powerless / "root"
    LocalStore(root).create("a", b"1")
    (root / ".tmp").rmdir()
    (root / ".lock").unlink(missing_ok=True)
    root.chmod(0o555)
    try:
        store = LocalStore(root)
        assert store.read("a") == b"1"
        assert [info.key for info in store.list("")] == ["a"]
        for write in (store.create, store.put):
            with pytest.raises(StoreUnavailable):
                write("b", b"1")
        with pytest.raises(StoreUnavailable):
            store.delete(["a"])
        assert store.read("a") == b"1"
    finally:
        root.chmod(0o755)


def test_a_root_that_cannot_be_made_is_reported(powerless: Path) -> None:
    powerless.chmod(0o555)
    with pytest.raises(AuthFailed, match="cannot be made: Permission denied"):
        LocalStore(powerless / "root")
    powerless.chmod(0o755)


def test_an_object_that_may_not_be_read_is_reported(powerless: Path) -> None:
    store = LocalStore(powerless / "root")
    store.put("a", b"1")
    (powerless / "root" / "a").chmod(0)
    with pytest.raises(AuthFailed, match="Permission denied"):
        store.read("a")


# --- who may read ---------------------------------------------------------------------------------


def _modes(root: Path) -> dict[str, int]:
    found = {".": root, **{str(path.relative_to(root)): path for path in root.rglob("*")}}
    return {name: stat.S_IMODE(path.stat().st_mode) for name, path in found.items()}


def _write_everything(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"3")
    store.create("created/a", b"1")
    store.put("put/deep/a", b"2")
    store.put_file("put/file", tmp_path / "source")
    store.replace("_latest", b"1", None)
    found = store.read_versioned("_latest")
    assert found
    store.replace("_latest", b"2", found.version)


def _with_umask(mask: int, act: Callable[[], None]) -> None:
    before = os.umask(mask)
    try:
        act()
    finally:
        os.umask(before)


@pytest.mark.parametrize("mask", [0, 0o022, 0o077])
def test_what_is_made_is_its_own_accounts_alone(tmp_path: Path, mask: int) -> None:
    root = tmp_path / "below" / "store"
    _with_umask(mask, lambda: _write_everything(LocalStore(root), tmp_path))
    modes = _modes(root)
    assert {".", ".lock", ".tmp", "_latest", "created/a", "put/deep", "put/file"} <= set(modes)
    for name, mode in modes.items():
        assert mode == (0o700 if (root / name).is_dir() else 0o600), name
    assert LocalStore(root).exposure() == ""


@pytest.mark.parametrize(
    ("mode", "folders", "files", "lock"),
    [(0o755, 0o755, 0o644, 0o600), (0o750, 0o750, 0o640, 0o600), (0o770, 0o770, 0o660, 0o660)],
)
def test_a_folder_that_was_there_keeps_its_mode(
    tmp_path: Path, mode: int, folders: int, files: int, lock: int
) -> None:
    root = tmp_path / "store"
    root.mkdir()
    root.chmod(mode)
    _with_umask(0, lambda: _write_everything(LocalStore(root), tmp_path))
    modes = _modes(root)
    assert modes.pop(".") == mode
    assert modes.pop(".lock") == lock
    for name, found in modes.items():
        assert found == (folders if (root / name).is_dir() else files), name
    who = "every account" if mode & 0o007 else "its group"
    assert who in LocalStore(root).exposure()


def test_nothing_becomes_wider_than_the_umask(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir(0o755)
    _with_umask(0o077, lambda: _write_everything(LocalStore(root), tmp_path))
    modes = _modes(root)
    assert modes.pop(".") == 0o755
    assert all(not mode & 0o077 for mode in modes.values())


def test_a_reader_cannot_hold_the_lock(powerless: Path) -> None:
    powerless.chmod(0o755)
    root = powerless / "root"
    root.mkdir(0o755)
    store = LocalStore(root, lock_timeout=0.1)
    store.replace("_latest", b"1", None)
    # As an older version has left it.
    (root / ".lock").touch()
    (root / ".lock").chmod(0o644)
    found = store.read_versioned("_latest")
    assert found
    store.replace("_latest", b"2", found.version)
    with _another_account(), pytest.raises(PermissionError):
        os.open(root / ".lock", os.O_RDONLY)
    with _another_account():
        assert (root / "_latest").read_bytes() == b"2"


@contextlib.contextmanager
def _another_account() -> Iterator[None]:
    """Neither the owner nor root."""
    user = os.geteuid()
    if os.getuid() != 0:
        pytest.skip("only root can become another account")
    os.seteuid(0)
    os.seteuid(65533)
    try:
        yield
    finally:
        os.seteuid(0)
        os.seteuid(user)


# --- what is not ours -----------------------------------------------------------------------------


def test_symbolic_links_are_not_followed(store: LocalStore, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    store.put("kept", b"")
    for key in ("folder/secret", "file"):
        with pytest.raises(InvalidName, match="symbolic link"):
            store.read(key)
        with pytest.raises(InvalidName, match="symbolic link"):
            store.put(key, b"overwritten")
        with pytest.raises(InvalidName, match="symbolic link"):
            store.delete([key])
    with pytest.raises(InvalidName, match="symbolic link"):
        [*store.list("folder/")]
    assert [info.key for info in store.list("")] == ["kept"]
    assert [*store.list_folders("")] == []
    assert (outside / "secret").read_bytes() == b"secret"


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store = LocalStore(tmp_path / "link")
    store.create("a/b", b"1")
    assert (tmp_path / "real/a/b").read_bytes() == b"1"
    assert store.read("a/b") == b"1"


def test_files_of_strangers_are_not_listed(store: LocalStore, root: Path) -> None:
    store.put("a", b"")
    (root / ".DS_Store").write_bytes(b"")
    (root / "back\\slash").write_bytes(b"")
    (root / os.fsdecode(b"latin-\xe9")).write_bytes(b"")
    os.mkfifo(root / "pipe")
    assert [info.key for info in store.list("")] == ["a"]


def test_a_key_below_an_object_is_refused(store: LocalStore) -> None:
    store.put("a", b"")
    for write in (store.create, store.put):
        with pytest.raises(InvalidName, match="below another object"):
            write("a/b/c", b"")
    with pytest.raises(ObjectMissing):
        store.read("a/b/c")


def test_delete_removes_empty_folders_and_never_the_root(store: LocalStore, root: Path) -> None:
    store.put("a/b/c", b"")
    store.put("a/d", b"")
    store.delete(["a/b/c"])
    assert not (root / "a/b").exists() and (root / "a/d").exists()
    store.delete(["a/d"])
    assert not (root / "a").exists() and root.is_dir()


def test_a_relative_root_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = LocalStore(Path("here"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.put("a", b"1")
    assert (tmp_path / "here/a").read_bytes() == b"1"


def test_a_missing_file_of_the_caller_is_not_blamed_on_the_store(
    store: LocalStore, tmp_path: Path
) -> None:
    store.put("a", b"1")
    with pytest.raises(FileNotFoundError):
        store.put_file("b", tmp_path / "missing")
    with pytest.raises(FileNotFoundError):
        store.download("a", tmp_path / "missing" / "file")


def hash_of(store: LocalStore, key: str) -> str:
    found = store.read_versioned(key)
    assert found is not None
    return found.version
