"""What a keyed operator gives back when it was called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from laminar_dagster.models.columns import Columns


@dataclass(frozen=True, slots=True)
class Step:
    """What becomes of some keys: everything in it has one row for each of them, in their order.

    Attributes:
        state: Their new state, every column of it. None leaves it as it is. A key whose columns are
            all null and that has no timer is forgotten.
        timer: When each wants to be called again, an array of ``TIMESTAMP``; null for not at all.
            None leaves timers as they are; one that has just fired is gone.
        rows: What each puts out. None puts out nothing.
        emits: An array of booleans: which of ``rows`` are put out. None for all of them.
    """

    state: Columns | None = None
    timer: Any = None
    rows: Columns | None = None
    emits: Any = None
