"""A process that is killed while it writes down its coverage takes nobody else's along."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.torn_measurements import torn_files
from tests.unit.measured_run import run_measured

TESTS = """
import pathlib, subprocess, sys

def test_here():
    import measured
    measured.in_the_test()

def test_child():
    program = "import measured; measured.in_a_child()"
    subprocess.run([sys.executable, "-c", program], check=True)

def test_killed():
    pathlib.Path(".coverage.host.pid77.Xabcdefx").write_bytes(b"SQLite format 3\\0 and no more")
"""


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["serial", "xdist"])
def test_what_others_have_measured_is_summed_up_without_a_word(
    tmp_path: Path, workers: list[str]
) -> None:
    told = run_measured(tmp_path, "tests.services.torn_measurements", TESTS, *workers)
    assert "3 passed" in told
    # Three definitions and three bodies, of which one was never run.
    assert "measured.py       6      1    83%" in told
    assert "CoverageWarning" not in told
    assert not [*torn_files(tmp_path / ".coverage")]


def test_only_files_without_their_hash_are_torn(tmp_path: Path) -> None:
    whole = "data.host.pid1.Xabcdefx.Hzyxwvutsrqh"
    for name in ("data", "data.host.pid1.Xabcdefx", whole, "data.host.pid1.Xabcdefx.combine"):
        (tmp_path / name).touch()
    assert [file.name for file in torn_files(tmp_path / "data")] == ["data.host.pid1.Xabcdefx"]
