"""Processes are recognised by more than their number, and only the right one is ended."""

from __future__ import annotations

import dataclasses
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra import state
from infra.load import Deadline
from infra.process import ProcessId, spawn, tail
from infra.state import Running


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        yield process
        process.kill()


def identity(process: subprocess.Popen[bytes]) -> ProcessId:
    found = ProcessId.of(process.pid)
    assert found is not None
    return found


def test_a_process_is_running_until_it_ended(sleeper: subprocess.Popen[bytes]) -> None:
    process = identity(sleeper)
    assert process.is_running()
    process.end()
    assert not process.is_running()
    assert sleeper.wait() == -signal.SIGTERM


def test_a_zombie_is_not_running(sleeper: subprocess.Popen[bytes]) -> None:
    process = identity(sleeper)
    sleeper.kill()
    deadline = Deadline(10)
    while process.is_running() and not deadline.is_over:
        time.sleep(0.01)
    assert not process.is_running()


def test_a_namesake_is_neither_taken_for_it_nor_ended(sleeper: subprocess.Popen[bytes]) -> None:
    earlier = dataclasses.replace(identity(sleeper), started="before that")
    assert not earlier.is_running()
    earlier.end()
    assert sleeper.poll() is None


def test_a_process_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True)"
    log = tmp_path / "log"
    process = spawn(
        [sys.executable, "-c", f"{script}; time.sleep(60)"],
        log=log,
        cwd=tmp_path,
        environment=os.environ,
    )
    deadline = Deadline(30)
    while not log.stat().st_size and not deadline.is_over:
        time.sleep(0.02)
    identity(process).end(grace=0.1)
    assert process.wait() == -signal.SIGKILL


def test_output_goes_to_the_log(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo $GREETING; pwd; echo oops >&2"]
    environment = {**os.environ, "GREETING": "hello"}
    log = tmp_path / "log"
    assert spawn(command, log=log, cwd=tmp_path, environment=environment).wait() == 0
    assert tail(log) == f"hello\n{tmp_path}\noops"
    assert tail(log, lines=1) == "oops"
    assert tail(tmp_path / "none") == "(the log is empty)"


_STARTS_IN_A_THREAD = """
import os, sys, threading
from pathlib import Path
from infra.process import spawn

def start() -> None:
    here = Path(sys.argv[1])
    started = spawn(["sleep", "60"], log=here / "log", cwd=here, environment=os.environ)
    print(started.pid, flush=True)

thread = threading.Thread(target=start)
thread.start()
thread.join()
sys.stdin.read()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel of Linux does it")
def test_it_outlives_the_thread_that_started_it_and_not_the_process(tmp_path: Path) -> None:
    program = [sys.executable, "-c", _STARTS_IN_A_THREAD, str(tmp_path)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout
        pid = int(starter.stdout.readline())
        found = ProcessId.of(pid)
        assert found
        time.sleep(0.5)
        assert found.is_running()
        starter.kill()
    deadline = Deadline(10)
    while found.is_running() and not deadline.is_over:
        time.sleep(0.01)
    assert not found.is_running()


def test_a_program_that_is_not_there_is_an_error_of_its_starter(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        spawn(["sleep", "1"], log=tmp_path / "log", cwd=tmp_path / "none", environment=os.environ)


def test_state_is_private_and_survives(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    file = tmp_path / "state" / "services.json"
    recorded = {"s3": Running(identity(sleeper), "/data", {"AWS_SECRET_ACCESS_KEY": "x"})}
    assert state.read(file) == {}
    state.write(recorded, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert state.read(file) == recorded
    assert state.read(file)["s3"].is_running()
    assert os.listdir(file.parent) == ["services.json"]
