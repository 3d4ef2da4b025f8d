"""The return value of a keyed operator's methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from laminar_dagster.models.columns import Columns


@dataclass(frozen=True, slots=True)
class Step:
    """New state, timers and output rows of some keys: one row for each key, in the keys' order.

    Attributes:
        state: The new state, with every column of it. None leaves the state as it is. The state of
            a key is removed when its columns are all null and it has no timer.
        timer: The time of each key's next call, an array of ``TIMESTAMP``; null sets no timer.
            None leaves timers as they are; a timer that has just fired is gone.
        rows: The output row of each key. None emits nothing.
        emits: An array of booleans: which of ``rows`` are emitted. None emits all of them.
    """

    state: Columns | None = None
    timer: Any = None
    rows: Columns | None = None
    emits: Any = None
