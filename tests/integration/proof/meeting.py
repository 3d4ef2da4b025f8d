"""Two processes meet before a step of the protocol, so that both take it at once."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from laminar_dagster.core.ids import EpochNumber
from tests.integration.proof.kill_points import STEPS


@dataclass(frozen=True)
class Meeting:
    """Has a process wait before a step until another one is there too, in each epoch.

    An ``EpochRunner`` calls it as steps begin. The other may never come: it may be past the epoch.
    """

    step: str
    folder: Path
    patience: float = 30.0

    def __call__(self, epoch: EpochNumber, step: str) -> None:
        if step != STEPS[self.step].__name__:
            return
        here = self.folder / str(epoch)
        here.mkdir(parents=True, exist_ok=True)
        (here / str(os.getpid())).touch()
        deadline = time.monotonic() + self.patience
        while len(list(here.iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)


def those_that_met(folder: Path) -> list[int]:
    """The epochs at which both were."""
    return sorted(int(epoch.name) for epoch in folder.iterdir() if len(list(epoch.iterdir())) > 1)
