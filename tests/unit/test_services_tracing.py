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


LEFT_OUT = """
import measured, pytest
from hypothesis import given, strategies as st

@pytest.mark.slow
def test_slow():
    assert measured.nowhere() == 3

@given(st.integers())
def test_property(_):
    assert measured.in_a_child() == 2

def test_quick():
    assert measured.in_the_test() == 1
"""


@pytest.mark.parametrize(
    ("folder", "share"),
    [
        # Three definitions, and of three bodies those that run in tests that are measured.
        ("tests/unit", "measured.py       6      2    67%"),
        ("tests/unit/core", "measured.py       6      0   100%"),
        ("tests/integration", "measured.py       6      1    83%"),
    ],
)
def test_what_takes_long_is_not_measured(tmp_path: Path, folder: str, share: str) -> None:
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "test_more.py").write_text(LEFT_OUT)
    told = run_measured(tmp_path, "tests.services.tracing", "")
    assert "3 passed" in told
    assert share in told
