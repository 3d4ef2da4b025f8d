"""`laminar run`, asked to stop as service managers, `timeout` and terminals ask: all at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from infra.load import Deadline
from tests.integration.cli.stopped_runs import STEPS, members
from tests.integration.cli.test_console_script import SCRIPT, environment
from tests.integration.cli.test_new_project import ROOT, Answer, check_outputs, document, laminar

ASKED = "stopping after the epoch at hand; once more ends at once"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    assert laminar(tmp_path, "init", "shop").returncode == 0
    return tmp_path / "shop"


def test_the_whole_group_is_asked_in_every_step(project: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.cli.stopped_runs", str(project)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    out, err = process.communicate(timeout=400)
    assert process.returncode == 128 + signal.SIGTERM, err
    *runs, torn, last = [json.loads(line) for line in out.splitlines()]
    ways = [(each["step"], each["how"]) for each in runs]
    assert ways == [*((step, "ask_the_group") for step in STEPS), ("compute", "press_ctrl_c")]
    for number, told in enumerate(runs, 1):
        assert told["exit_code"] == 0, told
        assert [each["epoch"] for each in told["document"]["epochs"]] == [number], told
    assert len({each["java"] for each in runs[1:]}) == 1, "one Java lived through it all"
    assert torn["java"] == runs[-1]["java"] is not None
    # Of Spark's workers, those that plan do not go on: whoever asks them too may have to wait.
    assert torn["exit_code"] in (0, 143), torn
    assert torn["exit_code"] == 0 or torn["document"]["error"]["kind"] == "interrupted", torn
    assert (last["error"]["kind"], last["error"]["exit_code"]) == ("interrupted", 143)
    assert err.splitlines() == [ASKED] * (len(runs) + 2)
    await_the_end_of(process.pid)
    document(project, "run")
    check_outputs(project, Answer(project))


def await_the_end_of(session: int) -> None:
    """Java ends with its standard input, and Spark's workers with Java."""
    deadline = Deadline(60)
    while left := [*members(session)]:
        assert not deadline.is_over, left
        time.sleep(0.1)


def test_java_that_ends_with_the_signal_is_no_bug(project: Path, tmp_path: Path) -> None:
    """While it starts, it cannot know yet that it is to go on."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nkill -TERM 0\nexit 143\n")
    java.chmod(0o755)
    process = subprocess.Popen(
        [SCRIPT, "run"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment(), "JAVA_HOME": str(java.parents[1])},
        start_new_session=True,
    )
    _, err = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert ASKED in err
    assert "error[interrupted]: stopped as asked, before the epoch at hand was finished" in err
    assert "bug" not in err
    await_the_end_of(process.pid)


def test_killed_it_leaves_nobody_behind(project: Path) -> None:
    process = subprocess.Popen(
        [SCRIPT, "run", "--forever"],
        cwd=project,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("epoch 1: ")
        assert len([*members(process.pid)]) > 1
    finally:
        os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    await_the_end_of(process.pid)
