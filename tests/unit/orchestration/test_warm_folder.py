"""How processes that do not know each other find a keeper, or find it dead."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from laminar_dagster.orchestration.warm.folder import (
    KeeperFolder,
    Record,
    hold,
    is_held,
    wait_until_free,
)

RECORD = Record(keeper_pid=1, worker_pid=2, socket="/run/s", runs=("a", "b"))


def test_a_folder_is_for_its_user_alone(tmp_path: Path) -> None:
    folder = KeeperFolder.of(tmp_path, "key")
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert folder.path.parent.stat().st_mode & 0o777 == 0o700
    assert KeeperFolder.all(tmp_path) == (folder,)


def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    folder = KeeperFolder.of(tmp_path, "key")
    folder.path.chmod(0o755)
    with pytest.raises(PermissionError, match="not a folder of this user alone"):
        KeeperFolder.of(tmp_path, "key")


def test_an_instance_without_keepers_has_none(tmp_path: Path) -> None:
    assert KeeperFolder.all(tmp_path) == ()


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = KeeperFolder.of(tmp_path, "key")
    assert folder.record() is None
    folder.write(RECORD)
    assert folder.record() == RECORD
    folder.forget()
    folder.forget()
    assert folder.record() is None


def test_a_record_that_is_damaged_is_none(tmp_path: Path) -> None:
    folder = KeeperFolder.of(tmp_path, "key")
    (folder.path / "record.json").write_text('{"keeper_pid": 1')
    assert folder.record() is None


def test_the_socket_lies_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whatever the tests' own folder is called.
    monkeypatch.chdir(tmp_path)
    assert KeeperFolder(Path("short")).choose_socket() == Path("short/socket")


def test_a_path_too_long_for_a_socket_has_it_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = Path(os.path.relpath(tmp_path / "run"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    first = KeeperFolder(tmp_path / ("x" * 120) / "a").choose_socket()
    second = KeeperFolder(tmp_path / ("x" * 120) / "b").choose_socket()

    assert first != second
    assert first.parent == runtime / f"laminar-{os.getuid()}"
    assert first.parent.stat().st_mode & 0o777 == 0o700


def test_somebody_elses_folder_for_sockets_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / f"laminar-{os.getuid()}").symlink_to("/tmp")
    with pytest.raises(PermissionError):
        KeeperFolder(tmp_path / ("x" * 120)).choose_socket()


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert not is_held(lock)
    with hold(lock, 0):
        assert is_held(lock)
        with pytest.raises(TimeoutError, match="held by another process"), hold(lock, 0.05):
            pass
    assert wait_until_free(lock, 0)


def test_a_lock_is_freed_with_its_holder(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    program = (
        "import sys, time; from pathlib import Path;"
        "from laminar_dagster.orchestration.warm.folder import hold\n"
        "with hold(Path(sys.argv[1]), 0): print(flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(lock)], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert not wait_until_free(lock, 0.05)
        holder.kill()
        assert wait_until_free(lock, 5)


def test_a_long_log_is_moved_aside_under_its_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laminar_dagster.orchestration.warm.folder._MAX_LOG_BYTES", 10)
    folder = KeeperFolder.of(tmp_path, "key")
    folder.trim_log()
    with folder.log.open("ab", buffering=0) as writer:
        writer.write(b"0123456789ab")
        folder.trim_log()
        writer.write(b"new")
    assert folder.log.read_bytes() == b"new"
    assert folder.log.with_name("log.1").read_bytes() == b"0123456789ab"
