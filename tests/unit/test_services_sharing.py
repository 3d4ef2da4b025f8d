"""One set of services for all processes of a run, which ends with the run, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path

import pytest

from infra.load import Deadline
from infra.process import ProcessId
from tests.services.sharing import ServiceDesk

ROOT = Path(__file__).parents[2]
SLEEPER = """
import os, sys
from infra.errors import ServiceUnavailable
from infra.service import Endpoint, Launch, Service

class Sleeper(Service):
    name = "sleeper"
    def install(self): pass
    def launch(self, data_dir, port):
        self.files = data_dir
        return Launch(["sleep", "600"], {}, Endpoint("127.0.0.1", port))
    def stop(self):
        if self._process is not None:
            with open("stopped", "a") as out:
                out.write(f"{self.files.exists()}\\n")
        super().stop()
    def is_ready(self, endpoint):
        with open("started", "a") as out:
            out.write(f"{self._process.pid}\\n")
        return True

class Missing(Sleeper):
    def install(self):
        with open("tried", "a") as out:
            out.write("once\\n")
        raise ServiceUnavailable("sleeper", "install it")

class Broken(Sleeper):
    def install(self):
        with open("tried", "a") as out:
            out.write("once\\n")
        raise ZeroDivisionError
"""
CONFTEST = """
import pytest
from sleeper import Broken, Missing, Sleeper
pytest_plugins = ("tests.services.sharing", "tests.services.summary")

@pytest.fixture(scope="session")
def sleeper(services):
    return services.endpoint("sleeper", Sleeper)

@pytest.fixture(scope="session")
def broken(services):
    return services.endpoint("broken", Broken)

@pytest.fixture(scope="session")
def missing(services):
    return services.endpoint("missing", Missing)
"""
SETTINGS = "[pytest]\ntmp_path_retention_policy = failed\n"
# Each module is a worker's; both are there before either goes on.
SHARED = """
import os, pathlib, time

def test_it(sleeper):
    with open("ports", "a") as out:
        out.write(f"{sleeper.port} {os.getpid()}\\n")
    while len(pathlib.Path("ports").read_text().splitlines()) < 2:
        time.sleep(0.01)
"""
MISSING = """
def test_it(missing):
    pass
"""
BROKEN = """
def test_it(broken):
    pass
"""
DYING = """
import os, time
from infra.process import ProcessId

def test_one(sleeper):
    os._exit(7)

def test_other(sleeper):
    pid = int(open("started").read())
    assert ProcessId.of(pid) is not None
    open("survived", "w").close()
"""
HANGING = """
import os, time

def test_it(sleeper):
    open("hangs", "w").close()
    while not os.path.exists("over"):
        time.sleep(0.02)
"""


def lay_out(folder: Path, *modules: str) -> None:
    texts = {"sleeper.py": SLEEPER, "conftest.py": CONFTEST, "pytest.ini": SETTINGS}
    texts |= {f"test_{number}.py": text for number, text in enumerate(modules)}
    for name, text in texts.items():
        (folder / name).write_text(text)


def begin(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    outer = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    temporary = folder / "temporary"
    temporary.mkdir()
    own = {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "PYTEST_DEBUG_TEMPROOT": str(temporary)}
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**outer, **own, "CI": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def outcome(run: subprocess.Popen[str]) -> str:
    told, _ = run.communicate(timeout=Deadline(120).left)
    return told


def started(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "started").read_text().splitlines()]


def must_be_gone(folder: Path) -> None:
    """The one service that was started."""
    (pid,) = started(folder)
    deadline = Deadline(60)
    while ProcessId.of(pid) is not None:
        assert not deadline.is_over
        time.sleep(0.02)


def lines_of(folder: Path, name: str) -> list[list[str]]:
    return [line.split() for line in (folder / name).read_text().splitlines()]


def test_all_workers_use_one(tmp_path: Path) -> None:
    lay_out(tmp_path, SHARED, SHARED)
    assert "2 passed" in outcome(begin(tmp_path, "-n", "2", "--dist", "loadfile"))
    ports, workers = zip(*lines_of(tmp_path, "ports"), strict=True)
    assert len({*workers}) == 2
    assert len({*ports}) == 1
    must_be_gone(tmp_path)
    # Before pytest removed its folders, with the server's files in them.
    assert lines_of(tmp_path, "stopped") == [["True"]]
    assert not [*(tmp_path / "temporary").rglob("services")]


def test_without_workers_it_is_the_process_s_own(tmp_path: Path) -> None:
    lay_out(tmp_path, SHARED.replace("< 2", "< 1"))
    assert "1 passed" in outcome(begin(tmp_path))
    must_be_gone(tmp_path)


@pytest.mark.parametrize("options", [(), ("-n", "2", "--dist", "loadfile")], ids=["alone", "xdist"])
def test_one_that_is_missing_is_tried_once(tmp_path: Path, options: tuple[str, ...]) -> None:
    lay_out(tmp_path, MISSING, MISSING)
    told = outcome(begin(tmp_path, *options))
    assert "2 skipped: sleeper: install it" in told
    assert len(lines_of(tmp_path, "tried")) == 1


def test_one_that_cannot_start_is_told_to_every_worker(tmp_path: Path) -> None:
    lay_out(tmp_path, BROKEN, BROKEN)
    told = outcome(begin(tmp_path, "-n", "2", "--dist", "loadfile"))
    assert "2 errors" in told
    assert "broken: it cannot be started: ZeroDivisionError()" in told
    assert len(lines_of(tmp_path, "tried")) == 1


@pytest.mark.slow
def test_a_worker_that_dies_takes_none_along(tmp_path: Path) -> None:
    lay_out(tmp_path, DYING)
    told = outcome(begin(tmp_path, "-n", "1"))
    assert "1 failed, 1 passed" in told
    assert (tmp_path / "survived").exists()
    must_be_gone(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("options", [(), ("-n", "2", "--dist", "loadfile")], ids=["alone", "xdist"])
def test_a_run_that_is_ended_leaves_none(
    tmp_path: Path, number: signal.Signals, options: tuple[str, ...]
) -> None:
    if number is signal.SIGKILL and not sys.platform.startswith("linux"):
        pytest.skip("the kernel's help is needed")
    lay_out(tmp_path, HANGING)
    run = begin(tmp_path, *options)
    while not (tmp_path / "hangs").exists():
        assert run.poll() is None
        time.sleep(0.02)
    run.send_signal(number)
    run.wait(Deadline(120).left)
    must_be_gone(tmp_path)
    # A worker whose owner was killed goes on until its test is over.
    (tmp_path / "over").touch()
    assert "passed" not in outcome(run)


def test_who_does_not_show_the_key_is_not_heard() -> None:
    desk = ServiceDesk({})
    try:
        assert Path(desk.address).parent.stat().st_mode & 0o077 == 0
        with pytest.raises(AuthenticationError):
            Client(desk.address, authkey=b"another").close()
        # Nor does it keep others from being heard.
        Client(desk.address, authkey=desk.key).close()
    finally:
        desk.close()
