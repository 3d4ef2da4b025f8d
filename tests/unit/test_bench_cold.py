"""How the benchmark of cold runs counts: every process of a tree, whoever it is left to."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.cold_shapes import SHAPES
from bench.process_tree import CommandFailed, Ledger, below, measure_tree
from bench.spark_watch import Process

# Uses the processor for so many seconds.
BURN = "import time\nwhile time.process_time() < {seconds}: pass"


def test_what_descends_counts_and_nothing_else() -> None:
    processes = {
        1: Process(0, "init", 0.0, 0.0),
        10: Process(1, "python", 0.0, 0.0),
        11: Process(10, "java", 0.0, 0.0),
        12: Process(11, "python", 0.0, 0.0),
        20: Process(1, "python", 0.0, 0.0),
    }
    assert set(below(processes, 10)) == {11, 12}
    assert set(below(processes, 1)) == {10, 11, 12, 20}


def test_the_last_that_was_read_of_a_process_counts() -> None:
    ledger = Ledger()
    first = {
        10: Process(1, "laminar", 1.0, 0.0),
        11: Process(10, "java", 4.0, 0.0),
        12: Process(11, "python", 2.0, 0.0),
    }
    ledger.read(first, [10, 11, 12], driver=10)
    # The worker has ended; what Java waited for is not added to it a second time.
    later = {10: Process(1, "laminar", 1.5, 0.0), 11: Process(10, "java", 6.0, 2.0)}
    ledger.read(later, [10, 11], driver=10)
    found = ledger.total(9.0)
    assert (found.wall, found.driver, found.java, found.others) == (9.0, 1.5, 6.0, 2.0)
    assert found.processor == 9.5


def test_a_child_of_a_parent_that_ignores_it_and_is_gone_is_counted(tmp_path: Path) -> None:
    # As Spark's daemon for Python workers: nobody is told what its children used.
    worker = BURN.format(seconds=0.5)
    daemon = (
        "import signal, subprocess, sys\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        f"subprocess.Popen([sys.executable, '-c', {worker!r}])\n"
    )
    before = time.process_time()
    found = measure_tree([sys.executable, "-c", daemon], tmp_path, os.environ)
    own = time.process_time() - before
    assert 0.4 < found.others < 1.0
    assert found.driver < 0.4
    assert found.java == 0
    assert found.processor < 1.5
    assert own < found.processor, "what measures is not measured"


def test_a_command_that_fails_gives_no_figure(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="no such thing"):
        measure_tree([sys.executable, "-c", "raise SystemExit('no such thing')"], tmp_path, {})


def test_every_shape_has_a_peer_and_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert [shape.name for shape in SHAPES] == ["projections", "windows", "joins", "groups"]
    assert all(shape.peer for shape in SHAPES)
    assert main(["--list"]) == 0
    assert "  cold " in capsys.readouterr().out
