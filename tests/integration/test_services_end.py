"""No service outlives the process that started it, however that process ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from infra.catalogue import SERVICES
from infra.load import Deadline
from infra.process import ProcessId

_SCRIPT = """
import pathlib, sys, time
from infra.catalogue import SERVICES
server = SERVICES[sys.argv[1]]()
server.start(pathlib.Path(sys.argv[2]))
print(server.identity.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's help is needed")
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.service(each)) for each in SERVICES]
)
def test_it_dies_with_a_killed_parent(tmp_path: Path, name: str) -> None:
    SERVICES[name]().install()
    command = [sys.executable, "-c", _SCRIPT, name, str(tmp_path)]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent, parent.stdout:
        server = ProcessId.of(int(parent.stdout.readline()))
        assert server is not None
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    deadline = Deadline(10)
    while server.is_running() and not deadline.is_over:
        time.sleep(0.05)
    assert not server.is_running()
