"""What ``python -m infra up`` started, so that a later ``down`` ends exactly that."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from infra.process import ProcessId

STATE_FILE = Path(".laminar") / "services.json"


@dataclass(frozen=True, slots=True)
class Running:
    """One service that was started and left running.

    Attributes:
        process: The server's process.
        data_dir: Its data and log.
        environment: Variables that point a client at it, with credentials.
    """

    process: ProcessId
    data_dir: str
    environment: dict[str, str]

    def is_running(self) -> bool:
        """Tell whether the recorded process, and not a namesake, still runs."""
        return self.process.is_running()


def read(state_file: Path = STATE_FILE) -> dict[str, Running]:
    """Return what was recorded, by service name; nothing if there is no record."""
    try:
        recorded = json.loads(state_file.read_text())
    except FileNotFoundError:
        return {}
    return {
        name: Running(
            ProcessId(entry["process"]["pid"], entry["process"]["started"]),
            entry["data_dir"],
            entry["environment"],
        )
        for name, entry in recorded.items()
    }


def write(services: Mapping[str, Running], state_file: Path = STATE_FILE) -> None:
    """Replace the record in one step, readable by its owner alone: it holds credentials."""
    state_file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = state_file.with_name(f"{state_file.name}.{os.getpid()}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as handle:
        json.dump({name: asdict(running) for name, running in services.items()}, handle, indent=2)
    unfinished.replace(state_file)
