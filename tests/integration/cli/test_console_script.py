"""The installed `laminar` script: pipes, terminals, signals, start-up."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from laminar_dagster.stores.durable_files import LOCK
from tests.unit.cli.conditions import History

SCRIPT = str(Path(sys.executable).with_name("laminar"))
QUIET = (
    "FORCE_COLOR",
    "NO_COLOR",
    "LAMINAR_STORE",
    "LAMINAR_DEBUG",
    "COLUMNS",
    "DAGSTER_HOME",
)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    return History(tmp_path_factory.mktemp("cli") / "store").run(3)


def environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in QUIET} | more


def run(*args: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, *args], capture_output=True, text=True, env=environment(**more), timeout=60
    )


def run_on_terminal(columns: int, env: Mapping[str, str], *args: str) -> str:
    """All that a command writes to a terminal, standard error included."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    with subprocess.Popen(
        [SCRIPT, *args], stdin=terminal, stdout=terminal, stderr=terminal, env=env
    ) as process:
        os.close(terminal)
        written = b""
        # Linux ends a terminal without a writer with an error.
        try:
            while piece := os.read(controller, 65536):
                written += piece
        except OSError:
            pass
        process.wait(60)
    os.close(controller)
    return written.decode()


def test_the_script_runs(history: History) -> None:
    listed = run("checkpoints", "list", "--json", LAMINAR_STORE=str(history.root))
    assert (listed.returncode, listed.stderr) == (0, "")
    assert [row["epoch"] for row in json.loads(listed.stdout)] == [3, 2, 1]
    refused = run("checkpoints", "show", "nothing", "--store", str(history.root))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error[invalid_checkpoint_id]: ")


@pytest.mark.parametrize("command", ["list --json", "list", "show latest", "--help", "zzz --json"])
def test_a_reader_that_goes_away_is_no_news(history: History, command: str) -> None:
    # The pipe has no reader from the start, so that the first write fails, however short it is.
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [SCRIPT, "checkpoints", *command.split()],
            stdout=writer,
            stderr=subprocess.PIPE,
            env=environment(LAMINAR_STORE=str(history.root)),
            timeout=60,
        )
    finally:
        os.close(writer)
    assert done.stderr == b""
    assert done.returncode != 0


def test_head_takes_one_line(history: History) -> None:
    pipeline = f"{SCRIPT} checkpoints show latest --json | head -1"
    done = subprocess.run(
        ["bash", "-c", pipeline],
        capture_output=True,
        text=True,
        env=environment(LAMINAR_STORE=str(history.root)),
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "{\n", "")


def test_a_terminal_gets_colours_and_a_bar(history: History) -> None:
    env = environment(TERM="xterm-256color", LAMINAR_STORE=str(history.root))
    listed = run_on_terminal(160, env, "checkpoints", "list")
    assert "\x1b[32mlatest" in listed
    assert "Left out" not in listed
    assert "Verifying" in run_on_terminal(160, env, "checkpoints", "verify")
    assert "Looking for garbage" in run_on_terminal(160, env, "checkpoints", "gc", "--dry-run")


def test_a_terminal_may_be_narrow_and_without_colour(history: History) -> None:
    env = environment(TERM="xterm-256color", LAMINAR_STORE=str(history.root), NO_COLOR="1")
    listed = run_on_terminal(80, env, "checkpoints", "list")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", listed)
    for checkpoint in history.ids.values():
        assert checkpoint in listed
    assert "Left out, the terminal is too narrow: " in listed


def test_removing_shows_how_far_it_is(history: History, tmp_path: Path) -> None:
    copy = history.copy(tmp_path / "copy")
    env = environment(TERM="xterm-256color", LAMINAR_STORE=str(copy.root))
    told = run_on_terminal(160, env, "checkpoints", "gc", "--retain", "1")
    assert "Removing" in told
    assert "Removed 2 checkpoints" in told


def test_ctrl_c_ends_it_at_once(history: History, tmp_path: Path) -> None:
    copy = history.copy(tmp_path / "copy")
    with open(copy.root / LOCK, "w") as lock:
        # While another process holds the lock, nothing can be removed.
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen(
            [SCRIPT, "checkpoints", "gc", "--retain", "1", "--store", str(copy.root)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        time.sleep(3)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, "")
    assert err.strip() == "error[interrupted]: interrupted"


def test_help_imports_nothing_heavy() -> None:
    program = """
import sys
from laminar_dagster.cli.main import cli
try:
    cli.main(["checkpoints", "--help"])
except SystemExit:
    pass
heavy = {"boto3", "botocore", "dagster", "msgspec", "pyarrow", "pyspark", "rich", "pandas"}
print(sorted(heavy & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr == "[]\n"


def test_a_local_store_needs_no_client_of_another(history: History) -> None:
    program = """
import sys
from laminar_dagster.cli.main import cli
try:
    cli.main(["checkpoints", "list", "--store", sys.argv[1]])
except SystemExit:
    pass
heavy = {"boto3", "botocore", "dagster", "pyarrow", "pyspark", "rich", "pandas"}
print(sorted(heavy & set(sys.modules)), file=sys.stderr)
"""
    args = [sys.executable, "-c", program, str(history.root)]
    assert subprocess.run(args, capture_output=True, text=True).stderr == "[]\n"
