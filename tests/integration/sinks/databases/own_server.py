"""A server to be ill-treated."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from infra.database import DatabaseServer
from infra.errors import ServiceFailed

P = TypeVar("P")


@dataclass(frozen=True)
class OwnServer(Generic[P]):
    """One that is killed, stopped and started again, on the same files.

    Attributes:
        place_on: What a test has on it.
    """

    service: DatabaseServer[Any]
    folder: Path
    place_on: Callable[[Any], P]

    def start(self) -> P:
        return self.place_on(self.service.start(self.folder))

    def kill(self) -> None:
        os.kill(self.service.identity.pid, signal.SIGKILL)

    def restart(self) -> P:
        self.service.stop()
        for _ in range(20):
            try:
                return self.start()
            except ServiceFailed:
                # What the killed one left behind has not gone yet.
                time.sleep(0.5)
        raise AssertionError("the server does not start again")
