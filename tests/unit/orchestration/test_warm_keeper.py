"""A keeper as a process: when it ends, and what it says when it has no worker to offer."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from laminar_dagster.orchestration.private_api import CodeOrigin
from laminar_dagster.orchestration.warm.folder import KeeperFolder, wait_until_free
from laminar_dagster.orchestration.warm.keepers import Keepers, Limits, NotServed
from laminar_dagster.orchestration.warm.protocol import Ask, Cancel, Unknown

pytestmark = pytest.mark.slow

ORIGIN = CodeOrigin(
    text="code", executable=sys.executable, folder=None, image=None, location="a", is_local=True
)
NO_INSTANCE = '{"__class__": "NoInstance"}'


def keepers(root: Path, *, idle: float = 60, start: float = 30) -> Keepers:
    return Keepers(NO_INSTANCE, root, Limits(idle=idle, start=start, terminate=2))


def starter(keepers: Keepers, folder: KeeperFolder) -> Callable[[], None]:
    return lambda: keepers._start(folder, ORIGIN, dict(os.environ))


def test_a_keeper_without_launchers_ends(tmp_path: Path) -> None:
    folder = KeeperFolder.of(tmp_path, "a")
    one, other = keepers(tmp_path), keepers(tmp_path)
    one._find_or_start(folder, starter(one, folder))
    other._find_or_start(folder, lambda: pytest.fail("there is a keeper"))

    one.close()
    assert not wait_until_free(folder.keeper_lock, 4)
    other.close()

    assert wait_until_free(folder.keeper_lock, 10)
    assert folder.record() is None
    assert not folder.choose_socket().exists()


def test_a_keeper_without_runs_ends_and_the_next_launch_starts_another(tmp_path: Path) -> None:
    folder = KeeperFolder.of(tmp_path, "a")
    launcher = keepers(tmp_path, idle=0.5)
    first = launcher._find_or_start(folder, starter(launcher, folder))
    assert wait_until_free(folder.keeper_lock, 10)

    second = launcher._find_or_start(folder, starter(launcher, folder))

    assert not first.is_open
    assert second.ask(Ask(run_id="a"), 5) == Unknown()
    assert second.ask(Cancel(run_id="a"), 5) == Unknown()
    launcher.close()
    assert wait_until_free(folder.keeper_lock, 10)


def test_a_worker_that_cannot_start_is_told(tmp_path: Path) -> None:
    launcher = keepers(tmp_path)

    with pytest.raises(NotServed, match="could not be started: it exited with code 1; see "):
        launcher.submit("a", ORIGIN)

    (folder,) = KeeperFolder.all(tmp_path)
    assert "NoInstance" in folder.log.read_text()
    assert launcher.holder("a") is None
    launcher.close()
    assert wait_until_free(folder.keeper_lock, 10)


def test_a_worker_that_takes_too_long_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "slow" / "dagster"
    slow.mkdir(parents=True)
    (slow / "__init__.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setenv("PYTHONPATH", str(slow.parent))
    launcher = keepers(tmp_path, start=3)
    before = time.monotonic()

    with pytest.raises(NotServed, match="could not be started: it was not ready after 3 s"):
        launcher.submit("a", ORIGIN)

    assert time.monotonic() - before < 15
    (folder,) = KeeperFolder.all(tmp_path)
    launcher.close()
    assert wait_until_free(folder.keeper_lock, 10)
    assert wait_until_free(folder.worker_lock, 0)
