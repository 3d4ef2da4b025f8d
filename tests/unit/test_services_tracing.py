"""A process that a test starts measures coverage where the test says so, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.measured_run import run_measured

TESTS = """
import subprocess, sys
from tests.services.tracing import traced

def test_one():
    start("import measured; measured.nowhere()")
    with traced():
        start("import measured; measured.in_a_child()")
    start("import measured; measured.nowhere()")

def start(program):
    subprocess.run([sys.executable, "-c", program], check=True)
"""


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["serial", "xdist"])
def test_only_what_is_started_to_be_measured_is(tmp_path: Path, workers: list[str]) -> None:
    told = run_measured(tmp_path, "tests.services.tracing", TESTS, *workers)
    assert "1 passed" in told
    # Three definitions, and the one body that was to be measured.
    assert "measured.py       6      2    67%" in told
