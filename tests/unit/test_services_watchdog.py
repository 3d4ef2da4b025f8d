"""A test that hangs where no exception reaches it must not hold up the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from infra.load import Deadline
from tests.services import watchdog

DEAF = """
import signal, time

def test_deaf():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    time.sleep(60)

def test_other():
    pass
"""
IMPATIENT = """
from tests.services import watchdog
watchdog._GRACE = 1.0
pytest_plugins = ("tests.services.watchdog",)
"""


def run_alone(folder: Path, test: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(IMPATIENT)
    (folder / "test_it.py").write_text(test)
    (folder / "pytest.ini").write_text("[pytest]\ntimeout = 1\n")
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pytest", str(folder), "-p", "no:cacheprovider", *options]
    return subprocess.run(
        command,
        cwd=root,
        env={"PYTHONPATH": str(root), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=Deadline(60).left,
    )


def test_a_test_that_hears_nothing_is_ended_and_told_of(tmp_path: Path) -> None:
    done = run_alone(tmp_path, DEAF, "-n", "1")
    assert done.returncode == 1
    assert "1 failed, 1 passed" in done.stdout
    assert "test_it.py::test_deaf" in done.stdout
    assert 'test_it.py", line 6 in test_deaf' in done.stderr


@pytest.mark.timeout(77)
def test_the_limit_of_a_test_is_its_own(request: pytest.FixtureRequest) -> None:
    assert watchdog.limit_of(request.node) == 77


def test_the_limit_of_all_others_is_that_of_the_suite(request: pytest.FixtureRequest) -> None:
    assert watchdog.limit_of(request.node) == 300
