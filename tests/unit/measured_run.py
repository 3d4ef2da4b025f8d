"""A run of pytest that measures coverage, in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from infra.load import Deadline

_SETTINGS = """
[run]
source = measured
parallel = true
patch = subprocess
disable_warnings = no-data-collected, module-not-imported
"""
_MEASURED = """
def in_the_test():
    return 1

def in_a_child():
    return 2

def nowhere():
    return 3
"""


def run_measured(folder: Path, plugin: str, tests: str, *options: str) -> str:
    """All that a run says which has to pass, with a report of ``measured.py``."""
    for name, text in {
        "conftest.py": f"pytest_plugins = ({plugin!r},)\n",
        "test_it.py": tests,
        "measured.py": _MEASURED,
        ".coveragerc": _SETTINGS,
        "pytest.ini": "[pytest]\nmarkers =\n    slow: it is\n",
    }.items():
        (folder / name).write_text(text)
    root = Path(__file__).parents[2]
    # The run around this one measures by itself, elsewhere.
    outer = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--cov", *options],
        cwd=folder,
        env={**outer, "PYTHONPATH": f"{root}{os.pathsep}{folder}"},
        capture_output=True,
        text=True,
        timeout=Deadline(120).left,
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    return told
