"""Workers are forked from a process that has imported everything, and has opened nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.integration.proof.look_around import CLIENTS

ROOT = Path(__file__).parents[3]
PROGRAM = (
    "import sys; from pathlib import Path; from tests.integration.proof.look_around import main;"
    " main(Path(sys.argv[1]))"
)


def test_it_has_every_client_and_no_handle_of_any(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["there"] == [*CLIENTS]
    assert not [name for name in found["threads"] if name.startswith(("rdk:", "grpc", "tokio"))]
    # Its own one, at which it is asked for workers.
    assert found["sockets"] == 1
