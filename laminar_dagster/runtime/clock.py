"""The system clock and the generator of ids: the core reads neither, and gets both passed in."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import uuid_utils

from laminar_dagster.core.ids import CheckpointId


class SystemClock:
    """The machine's time."""

    def now(self) -> datetime:
        """The wall clock, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never run backwards."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


def mint_checkpoint_id() -> CheckpointId:
    """A new UUID v7. Ids minted by one process sort in the order of minting."""
    return CheckpointId(str(uuid_utils.uuid7()))
