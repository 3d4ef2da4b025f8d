"""What a command loads, told by the process that ran it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# Clients of other systems. What a pipeline does not name must not cost it their loading.
CLIENTS = frozenset(
    {
        "boto3", "botocore", "confluent_kafka", "deltalake", "fastavro", "grpc", "grpc_tools",
        "opentelemetry", "prometheus_client", "psycopg", "pymysql", "urllib3",
    }
)  # fmt: skip

_PROGRAM = """
import json, sys
from laminar_dagster.cli.main import main
try:
    main()
except SystemExit as left:
    code = left.code or 0
else:
    code = 0
open({told!r}, "w").write(json.dumps([code, sorted(sys.modules)]))
"""


@dataclass(frozen=True)
class Loaded:
    """The modules of a process at its end."""

    names: frozenset[str]

    @property
    def ours(self) -> frozenset[str]:
        """Those of the package."""
        return frozenset(each for each in self.names if each.split(".")[0] == "laminar_dagster")

    @property
    def clients(self) -> frozenset[str]:
        """The clients of other systems among them."""
        return CLIENTS & self.names


def modules_of(folder: Path, *args: str) -> Loaded:
    """Run the command in a process of its own; it has to succeed.

    Args:
        folder: Where it runs, and leaves what it loaded.
        args: The command's arguments.
    """
    told = folder / "loaded.json"
    program = _PROGRAM.format(told=str(told))
    subprocess.run([sys.executable, "-c", program, *args], cwd=folder, check=True, timeout=600)
    code, names = json.loads(told.read_text())
    assert code == 0
    return Loaded(frozenset(names))
