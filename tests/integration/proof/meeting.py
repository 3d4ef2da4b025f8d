"""Two processes meet before a step of the protocol, so that both take it at once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.runtime import steps


def meet_before(step: str, folder: Path, patience: float = 30.0) -> None:
    """Have this process wait before a step until another one is there too, in each epoch.

    The other may never come: it may be past this epoch.
    """
    original: Callable[..., Any] = getattr(steps, step)

    def meeting(pipeline: Any, subject: steps.Attempt | CheckpointManifest, *others: Any) -> Any:
        here = folder / str(_epoch_of(subject))
        here.mkdir(parents=True, exist_ok=True)
        (here / str(os.getpid())).touch()
        deadline = time.monotonic() + patience
        while len(list(here.iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        return original(pipeline, subject, *others)

    setattr(steps, step, meeting)


def _epoch_of(subject: steps.Attempt | CheckpointManifest) -> EpochNumber:
    return subject.plan.epoch if isinstance(subject, steps.Attempt) else subject.epoch


def those_that_met(folder: Path) -> list[int]:
    """The epochs at which both were."""
    return sorted(int(epoch.name) for epoch in folder.iterdir() if len(list(epoch.iterdir())) > 1)
